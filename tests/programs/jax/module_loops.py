"""Loops outside of functions, in which one call of a compiled function is all that is seen: `module_loops.py array`, and so on."""
import sys

import jax
import jax.numpy as jnp
import numpy as np

inputs = np.random.rand(120, 32, 64).astype("float32")
predict = jax.jit(lambda x: jnp.tanh(x))
kept = []


class Items:
    def __len__(self):
        return len(inputs)

    def __getitem__(self, at):
        if at >= len(inputs):
            raise IndexError
        return inputs[at]


match sys.argv[1]:
    case "array":
        for x in inputs:
            kept.append(predict(x))
    case "items":
        for x in Items():
            kept.append(predict(x))
    case "while":
        at = 0
        while at < len(inputs):
            kept.append(predict(inputs[at]))
            at += 1
    # JAX makes a hundred pieces at once, and the others in the pass that drops those.
    case "pieces":
        for x in jnp.asarray(inputs):
            kept.append(predict(x))
    # Twelve folds are too few for a verdict: the steps are the batches.
    case "nested":
        for seed in range(2):
            for epoch in range(3):
                for fold in range(2):
                    for batch in range(10):
                        kept.append(predict(inputs[batch]))
