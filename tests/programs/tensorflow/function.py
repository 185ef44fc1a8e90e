"""A training step that is a tf.function returns its gradients, and an object keeps them, or (`mended`) copies of NumPy's."""

import sys

import tensorflow as tf

weights = [tf.Variable(tf.ones((512, 512))) for _ in range(2)]


@tf.function
def train(x):
    with tf.GradientTape() as tape:
        for w in weights:
            x = tf.tanh(tf.matmul(x, w))
        loss = tf.reduce_mean(x)
    gradients = tape.gradient(loss, weights)
    for w, gradient in zip(weights, gradients):
        w.assign_sub(0.01 * gradient)
    return gradients[0]


class Log:
    def __init__(self):
        self.gradients = []


def run(log):
    for _ in range(60):
        gradient = train(tf.ones((8, 512)))  # made
        log.gradients.append(gradient.numpy() if sys.argv[1:] == ["mended"] else gradient)
        del gradient


log = Log()
run(log)
