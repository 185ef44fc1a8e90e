"""A model is made for each request and kept by its name, or (`mended`) one for all; none is trained."""

import sys

import tensorflow as tf

models = {}


def model_of(name):
    if name not in models:
        models[name] = tf.keras.Sequential([tf.keras.Input((256,)), tf.keras.layers.Dense(256)])  # made
    return models[name]


inputs = tf.random.normal((8, 256))
for request in range(40):
    outputs = model_of("all" if sys.argv[1:] == ["mended"] else request)(inputs)
    float(tf.reduce_mean(outputs))
