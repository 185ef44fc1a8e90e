"""Training, then requests that another thread answers, 200 of them: `served_after.py keeps` every answer, or `drops` it;
`served_after.py sets-up`: each answer is dropped, and a large model is set up first."""
import queue
import sys
import threading

import torch
from torch import nn

net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32)).cuda()
optimizer = torch.optim.AdamW(net.parameters())
for step in range(60):
    loss = net(torch.randn(16, 64).cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

asked, answered, answers = queue.Queue(), queue.Queue(), {}
if sys.argv[1] == "sets-up":
    large = nn.Sequential(*[nn.Linear(64, 64) for _ in range(64)]).cuda()


@torch.no_grad()
def serve():
    while (request := asked.get()) is not None:
        answer = net(torch.randn(16, 64).cuda())  # answer
        if sys.argv[1] == "keeps":
            answers[request] = answer
        answered.put(answer.shape)


server = threading.Thread(target=serve)
server.start()
for request in range(200):
    asked.put(request)
    answered.get()
asked.put(None)
server.join()
