"""skorch: a callback keeps the loss of each batch; mended: a number."""
import numpy
import skorch
import torch
from counted import arguments, step
from torch import nn

TRUTH = {"kind": "leak", "at": ["net.py", "loss.py"], "above": "# fit", "steps": 100, "bytes_per_step": 512,
         "holder": ["losses"]}


class Keeper(skorch.callbacks.Callback):
    def __init__(self, fixed):
        self.fixed, self.losses = fixed, []

    def on_batch_end(self, net, batch=None, training=False, loss=None, **rest):
        step()
        self.losses.append(loss.item() if self.fixed else loss.detach())


options = arguments()
net = skorch.NeuralNetRegressor(nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1)), max_epochs=5,
                                batch_size=32, train_split=None, device="cuda", verbose=0, lr=0.01,
                                callbacks=[("keeper", Keeper(options.fixed))])
draw = numpy.random.default_rng(0)
net.fit(draw.normal(size=(640, 16)).astype("float32"), draw.normal(size=(640, 1)).astype("float32"))  # fit
