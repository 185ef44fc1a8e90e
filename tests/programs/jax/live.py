"""Makes, moves and ends arrays of JAX in every way there is, and prints how many bytes are alive at each of its steps."""

import ctypes

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

end_step = getattr(ctypes.CDLL(None), "leaktrace_step", lambda label: None)


def live_bytes():
    """Returns the bytes of all arrays on their devices: once each, however many arrays have the same memory."""
    memories = {}
    for array in jax.live_arrays():
        one = len(array.sharding.device_set) == 1
        for part in [array] if one else [shard.data for shard in array.addressable_shards]:
            if part.nbytes:
                device = next(iter(part.sharding.device_set))
                memories[device, part.unsafe_buffer_pointer()] = part.nbytes
    return sum(memories.values())


def point(name):
    """Ends a step here, where every array is ready."""
    jax.block_until_ready(jax.live_arrays())
    print(name, live_bytes(), flush=True)
    end_step(None)


@jax.jit
def grow(x):
    return {"twice": x * 2, "sum": x.sum(), "one": jnp.ones(7)}


kept = [jnp.asarray(np.random.rand(100, 10).astype("float32"))]
point("from host")

kept.append(grow(kept[0]))
point("outputs")

kept.append(jax.jit(lambda x: x + 1, donate_argnums=0)(jnp.zeros((64, 64))))
point("donated")

kept[1]["twice"].delete()
point("deleted")

kept.append(kept[0][3:50])
kept.append(jnp.array(True))
point("slices")

devices = jax.devices()
kept.append(jax.device_put(kept[0], devices[-1]))
point("another device")

if len(devices) > 1:
    mesh = Mesh(np.array(devices), ("x",))
    kept.append(jax.device_put(jnp.ones((8 * len(devices), 16)), NamedSharding(mesh, PartitionSpec("x"))))
    kept.append(jax.device_put(jnp.ones((3, 5)), NamedSharding(mesh, PartitionSpec())))
    point("sharded")
    kept.append(jax.jit(lambda x: x * 3)(kept[-2]))
    point("sharded outputs")

kept.append(jax.random.split(jax.random.PRNGKey(0), 5))
kept.append(jax.lax.scan(lambda c, x: (c + x, c), jnp.zeros(9), jnp.ones((11, 9))))
point("scan")

kept.append(np.asarray(kept[0]))
kept.append(jnp.zeros((0, 4)))
kept.append(jax.vmap(lambda row: row.sum())(kept[0]))
point("empty")

try:
    jax.jit(lambda x: jnp.zeros((1 << 35, 1 << 10)) + x)(kept[0][0, 0]).block_until_ready()
except Exception as error:
    print(f"failed: {type(error).__name__}", flush=True)
point("failed")

kept.clear()
point("cleared")
