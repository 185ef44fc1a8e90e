"""transformers: the cache of keys and values of every conversation is kept; mended: the text alone."""
import torch
from counted import arguments, step
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

TRUTH = {"kind": "leak", "at": ["# model"], "steps": 40, "bytes_per_step": 24576, "holder": ["sessions"]}


@torch.no_grad()
def answer(model, number, fixed):
    cache = DynamicCache(config=model.config)
    text = torch.randint(64, (1, 16), device="cuda")
    for _ in range(9):
        logits = model(text[:, -1:] if cache.get_seq_length() else text, past_key_values=cache).logits  # model
        text = torch.cat([text, logits[:, -1:].argmax(-1)], 1)
    sessions[number] = text.tolist() if fixed else cache


def serve(fixed):
    config = LlamaConfig(vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=2,
                         num_attention_heads=2, num_key_value_heads=2)
    model = LlamaForCausalLM(config).cuda().eval()
    for number in range(40):
        step()
        answer(model, number, fixed)


sessions = {}
serve(arguments().fixed)
