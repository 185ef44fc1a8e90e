"""A function that is traced anew for each number that it is given, and keeps its constants: 256 KiB of them each time."""

import numpy as np
import tensorflow as tf

table = np.arange(65536, dtype="float32").reshape(256, 256)


class Scaler:
    @tf.function
    def __call__(self, x, temperature):
        return (x @ tf.constant(table)) / temperature


def main():
    scale = Scaler()
    for i in range(60):
        scaled = scale(tf.ones((8, 256)), 1.0 + i)
    print(scaled.shape)


main()
