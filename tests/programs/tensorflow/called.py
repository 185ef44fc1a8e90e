"""A loop that does nothing but call a tf.function and keep its output, or (`mended`) the output's mean."""

import sys

import numpy as np
import tensorflow as tf

weights = tf.Variable(tf.ones((256, 1024)))
data = tf.data.Dataset.from_tensor_slices(np.ones((320, 256), "float32")).batch(16)


@tf.function
def predict(x):
    y = tf.matmul(x, weights)
    return y, tf.reduce_mean(y)


kept = []
for epoch in range(4):
    for x in data:
        output, mean = predict(x)  # made
        kept.append(float(mean) if sys.argv[1:] == ["mended"] else output)
