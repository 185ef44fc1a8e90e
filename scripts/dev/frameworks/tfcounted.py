"""As `counted`, for TensorFlow: its own count is that of its allocator's bytes."""
import argparse
import atexit
import json
import os

# XLA's compiler needs the vendor's assembler.
os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", TF_XLA_FLAGS="--tf_xla_auto_jit=-1")

import tensorflow as tf

series = []


def step():
    """Call it once per batch, at any place of the loop."""
    series.append(tf.config.experimental.get_memory_info("GPU:0")["current"])


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fixed", action="store_true", help="the mended form")
    tf.random.set_seed(0)
    return parser.parse_args()


def network(units=64):
    """A small model, compiled without XLA."""
    layers = [tf.keras.layers.Input((256,)), tf.keras.layers.Dense(units, "relu"), tf.keras.layers.Dense(10)]
    model = tf.keras.Sequential(layers)
    model.compile(tf.keras.optimizers.SGD(0.01), "mse", jit_compile=False)
    return model


@atexit.register
def tell():
    first = len(series) // 2 - 1
    slope = (series[-1] - series[first]) / (len(series) - 1 - first)
    print("counted", json.dumps({"steps": len(series), "bytes_per_step": slope}), flush=True)
