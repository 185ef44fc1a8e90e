"""A learning rate that is another number of Python's in each step."""

import tensorflow as tf

weights = tf.Variable(tf.random.normal((128, 128)))
optimizer = tf.keras.optimizers.SGD(0.1)
for step in range(60):
    optimizer.learning_rate = 0.1 / (1 + step)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(weights * weights)
    optimizer.apply_gradients([(tape.gradient(loss, weights), weights)])
