"""TensorFlow: a variable is made for every step; mended: for each of four buckets, in the first steps (a warm-up)."""
from tfcounted import arguments, step, tf

TRUTH = {"kind": "leak", "at": ["# outputs"], "steps": 80, "bytes_per_step": 524288, "holder": ["slots"]}

options = arguments()
slots = {}


def slot(key):
    if key not in slots:
        slots[key] = tf.Variable(tf.zeros((128, 1024)))  # slot
    return slots[key]


for i in range(80):
    step()
    slot(i % 4 if options.fixed else i).assign(tf.random.normal((128, 1024)) * 2.0)  # outputs
