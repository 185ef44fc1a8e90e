"""transformers' generate: one cache of keys and values goes on through all turns; mended: cropped after each."""
import torch
from counted import arguments, step
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

# Every token renews the blocks of the cache, which are longer each time.
TRUTH = {"kind": "leak", "also": ["growing"], "at": ["# model"], "steps": 60, "bytes_per_step": 8192,
         "holder": ["cache"]}


@torch.no_grad()
def chat(fixed):
    config = LlamaConfig(vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=2,
                         num_attention_heads=2, num_key_value_heads=2)
    model = LlamaForCausalLM(config).cuda().eval()
    cache = DynamicCache(config=config)
    for turn in range(60):
        step()
        tokens = torch.randint(64, (1, 8), device="cuda")
        logits = model(tokens, past_key_values=cache, use_cache=True).logits  # model
        logits[0, -1].argmax().item()
        if fixed:
            cache.crop(-8)


chat(arguments().fixed)
