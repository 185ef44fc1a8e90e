"""Keras: a model is dropped after its evaluation, but a registry keeps one of its weights; mended: that goes, too."""
import gc

from tfcounted import arguments, step, tf

TRUTH = {"kind": "residue", "at": ["# model"], "steps": 80, "bytes_per_step": 0, "holder": ["registry"]}

options = arguments()
registry = []


def evaluate_first():
    layers = [tf.keras.layers.Dense(512) for _ in range(12)]
    model = tf.keras.Sequential([tf.keras.layers.Input((512,)), *layers])  # model
    registry.append(model.layers[3].kernel)
    for _ in range(40):
        step()
        float(tf.reduce_mean(model(tf.ones((8, 512)), training=False)))


def evaluate_second():
    kernel = tf.Variable(tf.random.normal((256, 300)))
    for _ in range(40):
        step()
        float(tf.reduce_sum(tf.matmul(tf.ones((16, 256)), kernel)))


evaluate_first()
if options.fixed:
    registry.clear()
gc.collect()
evaluate_second()
