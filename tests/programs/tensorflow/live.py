"""Makes, moves and drops tensors of TensorFlow in every way there is, and prints what its allocators say is in use on each
device at each of its steps."""

import ctypes

import numpy as np
import tensorflow as tf

end_step = getattr(ctypes.CDLL(None), "leaktrace_step", lambda label: None)
devices = [device.name.removeprefix("/physical_device:") for device in tf.config.list_physical_devices("GPU")]


def point(name):
    """Ends a step here."""
    used = [tf.config.experimental.get_memory_info(device)["current"] for device in devices]
    print(name, *used, flush=True)
    end_step(None)


kept = [tf.ones((100, 10))]
point("eager")

weights = [tf.Variable(tf.ones((64, 64))) for _ in range(3)]
point("variables")


@tf.function
def train(x):
    with tf.GradientTape() as tape:
        for w in weights:
            x = tf.tanh(tf.matmul(x, w))
        loss = tf.reduce_mean(x)
    gradients = tape.gradient(loss, weights)
    for w, gradient in zip(weights, gradients):
        w.assign_sub(0.01 * gradient)
    return loss, gradients


for _ in range(3):
    kept.append(train(tf.ones((8, 64))))
point("function")

kept.append(tf.constant(np.arange(300, dtype="float32")) * 2.0)
point("from host")

with tf.device("/CPU:0"):
    host = tf.ones((64, 64))
kept.append(tf.matmul(host, weights[0]))
kept.append(host)
point("a copy of the host's")

kept.append(tf.constant(["on the host"]))
kept.append(kept[0][3:50])
kept.append(tf.reshape(kept[0], (10, 100)))
point("slices and views")

with tf.device(f"/{devices[-1]}"):
    kept.append(tf.identity(kept[0]))
    other = tf.Variable(tf.ones((33, 77)))
point("another device")


@tf.function
def loop(x):
    for _ in tf.range(5):
        x = x + tf.reduce_sum(x) * 0.0
    return tf.cond(tf.reduce_sum(x) > 0.0, lambda: x + 1.0, lambda: x * 2.0)


kept.append(loop(tf.ones((50, 50))))
point("loops and branches")

model = tf.keras.Sequential([tf.keras.layers.Input((16,)), tf.keras.layers.Dense(32, "relu"), tf.keras.layers.Dense(1)])
model.compile(tf.keras.optimizers.SGD(0.01), "mse", jit_compile=False)
model.fit(np.ones((64, 16), "float32"), np.ones((64, 1), "float32"), batch_size=8, epochs=1, verbose=0)
point("fit")

try:
    tf.zeros((1 << 20, 1 << 20))
except tf.errors.ResourceExhaustedError:
    pass
point("memory that ran out")

del kept[1:4]
point("dropped")

kept.clear()
del other
point("cleared")
