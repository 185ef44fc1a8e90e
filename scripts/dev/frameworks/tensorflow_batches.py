"""TensorFlow: the batches of a tf.data pipeline are kept for a plot; mended: a thumbnail of each, on the host."""
import numpy
from tfcounted import arguments, step, tf

TRUTH = {"kind": "leak", "at": ["# batch"], "steps": 80, "bytes_per_step": 262144, "holder": ["shown"]}

options = arguments()
w = tf.Variable(tf.random.normal((512, 64)))
images = numpy.random.default_rng(0).normal(size=(1280, 512)).astype("float32")
data = tf.data.Dataset.from_tensor_slices(images).batch(128).repeat(8).prefetch(2)


@tf.function
def train(x):
    w.assign_sub(tf.zeros_like(w))
    return tf.reduce_mean(tf.matmul(x, w))


def run():
    shown = []
    for batch in data:
        step()
        batch = tf.identity(batch) * 0.5  # batch
        float(train(batch))
        shown.append(batch[:1, :4].numpy() if options.fixed else batch)


run()
