"""As `counting`, for TensorFlow: its own count is that of its allocator's bytes."""
import os

# XLA's compiler needs the vendor's assembler.
os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", TF_XLA_FLAGS="--tf_xla_auto_jit=-1")

import counting
import tensorflow as tf


def step():
    """Call it once per batch, at any place of the loop."""
    counting.step(tf.config.experimental.get_memory_info("GPU:0")["current"])


def arguments():
    tf.random.set_seed(0)
    return counting.arguments()


def network(units=64):
    """A small model, compiled without XLA."""
    layers = [tf.keras.layers.Input((256,)), tf.keras.layers.Dense(units, "relu"), tf.keras.layers.Dense(10)]
    model = tf.keras.Sequential(layers)
    model.compile(tf.keras.optimizers.SGD(0.01), "mse", jit_compile=False)
    return model
