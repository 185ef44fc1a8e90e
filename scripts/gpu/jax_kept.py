"""JAX keeps arrays in a list. Its allocator takes few large pieces from the driver: whether growth can be
seen depends on XLA_PYTHON_CLIENT_PREALLOCATE; a line must never be accused that is not at fault.
"""
import ctypes
import jax
import jax.numpy as jnp

step = ctypes.CDLL(None).leaktrace_step
kept = []
for number in range(60):
    kept.append(jnp.zeros((1024, 1024), dtype=jnp.float32).block_until_ready())  # may leak
    step(None)
