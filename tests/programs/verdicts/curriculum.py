"""Sequences grow longer as the training goes on; nothing is kept."""
import torch
from torch import nn

embed, rnn, head = nn.Embedding(50, 32).cuda(), nn.GRU(32, 64, batch_first=True).cuda(), nn.Linear(64, 50).cuda()
optimizer = torch.optim.Adam([*embed.parameters(), *rnn.parameters(), *head.parameters()])
torch.manual_seed(0)
for step in range(1, 151):
    length = 8 + step // 5 + int(torch.randint(0, 4, ()))
    ids = torch.randint(0, 50, (8, length)).cuda()
    hidden, _ = rnn(embed(ids))
    loss = nn.functional.cross_entropy(head(hidden).flatten(0, 1), ids.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}", flush=True)
