"""TensorFlow, eager: a total of the losses is a tensor's list, with the outputs beside them; mended: as NumPy has them."""
from tfcounted import arguments, step, tf

TRUTH = {"kind": "leak", "at": ["# outputs"], "steps": 80, "bytes_per_step": 262144, "holder": ["history"]}

options = arguments()
w = tf.Variable(tf.random.normal((512, 1024)))


def predict(x):
    return tf.nn.relu(tf.matmul(x, w))  # outputs


def run():
    history = {"outputs": []}
    for _ in range(80):
        step()
        outputs = predict(tf.random.normal((64, 512)))
        w.assign_sub(tf.zeros_like(w))
        history["outputs"].append(outputs.numpy() if options.fixed else outputs)


run()
