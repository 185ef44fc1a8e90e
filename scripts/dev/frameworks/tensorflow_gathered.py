"""TensorFlow: outputs are gathered for an average and never let go; mended: every tenth step (a sawtooth)."""
from tfcounted import arguments, step, tf

TRUTH = {"kind": "leak", "at": ["# outputs"], "steps": 100, "bytes_per_step": 262144, "holder": ["gathered"]}

options = arguments()
w = tf.Variable(tf.random.normal((256, 512)))


@tf.function
def forward(x):
    return tf.matmul(x, w)


def run():
    gathered = []
    for i in range(100):
        step()
        outputs = forward(tf.ones((128, 256)))  # outputs
        gathered.append(outputs)
        if i % 10 == 9:
            float(tf.reduce_mean(tf.stack(gathered)))
            if options.fixed:
                gathered.clear()


run()
