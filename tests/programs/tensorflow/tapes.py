"""Tapes that are kept have the results of what they recorded."""

import sys

import tensorflow as tf

weights = tf.Variable(tf.random.normal((256, 256)))
tapes = []


def train(batch):
    tape = tf.GradientTape(persistent=True)
    with tape:
        outputs = tf.matmul(batch, weights)
        loss = tf.reduce_sum(tf.tanh(outputs))
    weights.assign_sub(1e-3 * tape.gradient(loss, weights))
    if "mended" not in sys.argv:
        tapes.append(tape)


for step in range(40):
    train(tf.random.normal((256, 256)))  # made
