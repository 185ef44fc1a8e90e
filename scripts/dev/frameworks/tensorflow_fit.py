"""Keras: a callback of `fit` keeps the model's outputs for every batch; mended: their mean."""
import numpy
from tfcounted import arguments, network, step, tf

TRUTH = {"kind": "leak", "at": ["# outputs"], "steps": 80, "bytes_per_step": 163840, "holder": ["outputs"]}


class Keeper(tf.keras.callbacks.Callback):
    def __init__(self, probe):
        super().__init__()
        self.probe, self.outputs = probe, []

    def on_train_batch_end(self, batch, logs=None):
        step()
        outputs = self.model(self.probe, training=False)  # outputs
        self.outputs.append(float(tf.reduce_mean(outputs)) if options.fixed else outputs)


options = arguments()
draw = numpy.random.default_rng(0)
x, y = draw.normal(size=(1280, 256)).astype("float32"), draw.normal(size=(1280, 10)).astype("float32")
network().fit(x, y, batch_size=64, epochs=4, verbose=0, callbacks=[Keeper(tf.random.normal((4096, 256)))])
