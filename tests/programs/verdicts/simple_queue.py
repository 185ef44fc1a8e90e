"""An executor's queue, which has no bound: a batch comes in with each step, and few are taken out, which leaves empty places."""
import queue

import torch

waiting = queue.SimpleQueue()
for step in range(1, 61):
    waiting.put(torch.ones(16, 256).cuda())  # batch
    if step % 5 == 0:
        waiting.get()
    print(f"step {step}", flush=True)
