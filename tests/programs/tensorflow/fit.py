"""Keras: a callback of `fit` keeps the model's outputs for every batch, or (`mended`) their mean."""

import sys

import numpy as np
import tensorflow as tf


class Keeper(tf.keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.outputs = []

    def on_train_batch_end(self, batch, logs=None):
        outputs = self.model(probe, training=False)  # made
        self.outputs.append(float(tf.reduce_mean(outputs)) if sys.argv[1:] == ["mended"] else outputs)


layers = [tf.keras.layers.Input((64,)), tf.keras.layers.Dense(64, "relu"), tf.keras.layers.Dense(16)]
model = tf.keras.Sequential(layers)
model.compile(tf.keras.optimizers.SGD(0.01), "mse", jit_compile=False)
probe = tf.ones((4096, 64))
data = np.ones((480, 64), "float32"), np.ones((480, 16), "float32")
model.fit(*data, batch_size=16, epochs=2, verbose=0, callbacks=[Keeper()])
