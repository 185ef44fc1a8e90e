"""Workers that serve together keep samples in a bounded container, and each has its newest result in a local variable."""

import asyncio
import collections

import torch
from torch import nn
from torch.nn import functional as F


class Server:
    def __init__(self):
        self.queue = asyncio.Queue(4)
        self.model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)).to("cuda")
        self.samples = collections.deque(maxlen=16)
        self.data = torch.randn(8, 64).to("cuda")

    async def serve(self):
        while True:
            i = await self.queue.get()
            x = self.data
            out = self.model(x)
            loss = F.smooth_l1_loss(out, x)
            if i % 10 == 9:
                self.samples.append((i, out.detach()))
            print(f"step {i}")
            await asyncio.sleep(0)
            self.queue.task_done()


async def main():
    server = Server()
    workers = [asyncio.create_task(server.serve()) for _ in range(3)]
    for i in range(60):
        await server.queue.put(i)
    await server.queue.join()
    for worker in workers:
        worker.cancel()


asyncio.run(main())
