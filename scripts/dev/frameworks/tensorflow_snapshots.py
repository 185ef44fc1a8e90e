"""TensorFlow: every fifth step the weights are kept (a staircase); mended: only the newest ones.

`tf.identity` takes no memory (`get_memory_info` says 0 bytes): the variable gets new memory when it is assigned to next.
"""
from tfcounted import arguments, step, tf

TRUTH = {"kind": "leak", "also": ["growing"], "at": ["# assigned"], "steps": 100, "every": 5, "bytes_per_step": 1048576,
         "holder": ["snapshots"]}

options = arguments()
w = tf.Variable(tf.random.normal((512, 512)))


@tf.function
def train(x):
    w.assign_sub(0.01 * tf.matmul(x, x, transpose_a=True))


def run():
    snapshots = []
    for i in range(100):
        step()
        train(tf.ones((8, 512)))  # assigned
        if i % 5 == 0:
            if options.fixed:
                snapshots.clear()
            snapshots.append(tf.identity(w))


run()
