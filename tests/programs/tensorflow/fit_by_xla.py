"""Keras: a callback of `fit` keeps the weights after every batch, or (`mended`) their mean. XLA compiles the steps, as it does
on a GPU unless told otherwise; `fit` validates after each epoch."""

import sys

import numpy as np
import tensorflow as tf


class Keeper(tf.keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.weights = []

    def on_train_batch_end(self, batch, logs=None):
        copies = [tf.identity(weight) for weight in self.model.trainable_variables]
        self.weights.append([float(tf.reduce_mean(c)) for c in copies] if sys.argv[1:] == ["mended"] else copies)


model = tf.keras.Sequential([tf.keras.layers.Input((64,)), tf.keras.layers.Dense(64)])
model.compile("sgd", "mse")
data, few = (np.ones((640, 64), "float32"),) * 2, (np.ones((128, 64), "float32"),) * 2
keeper = Keeper()
model.fit(*data, batch_size=16, epochs=3, verbose=0, callbacks=[keeper], validation_data=few)  # made
