"""One more member in each of 18 steps, and all of them are made anew in each: no block is old, but there are more and more."""
import torch

members = []
for step in range(1, 19):
    members.append(torch.zeros(64, 64).cuda())
    members = [member - torch.ones(64, 64).cuda() for member in members]  # made anew
    print(f"step {step}", flush=True)
