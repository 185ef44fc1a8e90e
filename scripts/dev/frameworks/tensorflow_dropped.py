"""Keras: a model is dropped after its training, and its weights stay in a registry; mended: they leave it, too."""
import gc

import numpy
from tfcounted import arguments, network, step, tf

TRUTH = {"kind": "residue", "at": ["# model"], "steps": 80, "bytes_per_step": 0, "holder": ["registry"]}

options = arguments()
registry = []
draw = numpy.random.default_rng(0)
x, y = draw.normal(size=(640, 256)).astype("float32"), draw.normal(size=(640, 10)).astype("float32")


class Count(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        step()


def train(units):
    model = network(units)  # model
    registry.append(model.weights)
    model.fit(x, y, batch_size=32, epochs=2, verbose=0, callbacks=[Count()])


train(8192)
if options.fixed:
    registry.clear()
gc.collect()
train(64)
