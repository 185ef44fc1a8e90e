"""TensorFlow: features are cached by the step's number, without a bound; mended: the newest eight."""
import collections

from tfcounted import arguments, step, tf

TRUTH = {"kind": "leak", "at": ["# features"], "steps": 80, "bytes_per_step": 524288, "holder": ["cache"]}

options = arguments()
w = tf.Variable(tf.random.normal((256, 1024)))
cache = collections.deque(maxlen=8 if options.fixed else None)


@tf.function
def features(x):
    return tf.nn.relu(tf.matmul(x, w))


for _ in range(80):
    step()
    found = features(tf.ones((128, 256)))  # features
    float(tf.reduce_sum(found))
    cache.append(found)
