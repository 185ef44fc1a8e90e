"""TensorFlow: a training step that is a tf.function returns its gradients, and a log keeps them; mended: their sum."""
from tfcounted import arguments, step, tf

TRUTH = {"kind": "leak", "at": ["# call"], "steps": 80, "bytes_per_step": 1048576, "holder": ["gradients"]}


class Log:
    def __init__(self):
        self.gradients = []


options = arguments()
weights = [tf.Variable(tf.random.normal((512, 512)) * 0.01) for _ in range(2)]
optimizer = tf.keras.optimizers.SGD(0.01)


@tf.function
def train(x):
    with tf.GradientTape() as tape:
        for w in weights:
            x = tf.tanh(x @ w)
        loss = tf.reduce_mean(x)
    gradients = tape.gradient(loss, weights)
    optimizer.apply_gradients(zip(gradients, weights))
    return loss, gradients[0]


def run(log):
    for _ in range(80):
        step()
        loss, gradient = train(tf.ones((8, 512)))  # call
        log.gradients.append(float(tf.reduce_sum(gradient)) if options.fixed else gradient)
        del gradient


run(Log())
