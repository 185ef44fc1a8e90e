"""A training engine with callbacks, one of which keeps every batch's outputs and never lets them go."""
import torch
from torch import nn


class Callback:
    def on_batch_end(self, engine, outputs): ...
    def on_epoch_end(self, engine): ...


class KeepOutputs(Callback):
    def __init__(self):
        self.outputs = []

    def on_batch_end(self, engine, outputs):
        self.outputs.append(outputs.detach())


class Module(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(32, 64), nn.ReLU())
        self.head = nn.Linear(64, 64)

    def training_step(self, batch):
        out = self.head(self.net(batch))  # outputs
        return out.square().mean(), out


class Engine:
    def __init__(self, callbacks):
        self.callbacks, self.step = callbacks, 0

    def fit(self, module, epochs, batches):
        optimizer = torch.optim.Adam(module.parameters())
        for _ in range(epochs):
            for _ in range(batches):
                loss, out = module.training_step(torch.randn(64, 32).cuda())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                for callback in self.callbacks:
                    callback.on_batch_end(self, out)
                self.step += 1
                print(f"step {self.step}", flush=True)
            for callback in self.callbacks:
                callback.on_epoch_end(self)


Engine([Callback(), KeepOutputs()]).fit(Module().cuda(), 6, 20)
