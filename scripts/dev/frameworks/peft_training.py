"""peft with transformers: the hidden states of each step are kept for a comparison; mended: their norms."""
import torch
from counted import arguments, step
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel

TRUTH = {"kind": "leak", "at": ["# model"], "steps": 90, "bytes_per_step": 8192, "holder": ["states"]}


def train(fixed):
    config = GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=2)
    model = get_peft_model(GPT2LMHeadModel(config).cuda(), LoraConfig(r=4, target_modules=["c_attn"], fan_in_fan_out=True))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    states = []
    for _ in range(90):
        step()
        tokens = torch.randint(64, (4, 16), device="cuda")
        outputs = model(input_ids=tokens, labels=tokens, output_hidden_states=True)  # model
        outputs.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        states.append(outputs.hidden_states[-1].norm().item() if fixed else outputs.hidden_states[-1])


train(arguments().fixed)
