"""TensorFlow: a step's activations live until the next has made its own; mended: they end with the step."""
from tfcounted import arguments, step, tf

TRUTH = {"kind": "carry-over", "at": ["# activations"], "steps": 80, "bytes_per_step": 4194304, "holder": []}

options = arguments()
w = tf.Variable(tf.random.normal((256, 1024)))


@tf.function
def forward(x):
    return tf.nn.relu(tf.matmul(x, w))


def run():
    for _ in range(80):
        step()
        activations = forward(tf.ones((1024, 256)))  # activations
        float(tf.reduce_mean(activations))
        if options.fixed:
            del activations


run()
