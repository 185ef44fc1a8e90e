"""The dimensions of a generated program of JAX; see `tables`, from which what names no framework is taken."""

import dataclasses

from synthesis import tables
from synthesis.tables import Choice

CONTAINERS = tables.CONTAINERS
# There are no workspaces, and the gradients are as large as the model.
CARRIES = True
LOSSES = ("jnp.mean(out ** 2)", "jnp.mean(jnp.abs(out - x))", "jnp.mean((out - x) ** 2)")
IMPORTS = "import jax\nimport jax.numpy as jnp\nimport numpy as np\n"
MODEL = "parameters({H})"
BATCH = 'jnp.asarray(np.random.rand({rows}, 64).astype("float32"))'
PINNED = BATCH

FUNCTIONS = '''
def parameters(width):
    keys = jax.random.split(jax.random.PRNGKey(0))
    return {"first": jax.random.normal(keys[0], (64, width)) * 0.1, "second": jax.random.normal(keys[1], (width, 64)) * 0.1}


def predict(model, x):
    return jnp.tanh(x @ model["first"]) @ model["second"]


def loss_of(model, x):
    out = predict(model, x)
    return {LOSS}, out


def updated(model, x):
    (loss, out), grads = jax.value_and_grad(loss_of, has_aux=True)(model, x)
    return jax.tree.map(lambda p, g: p - 0.01 * g, model, grads), loss, out, grads


forward = jax.jit(predict)
update = jax.jit(updated)
update_in_place = jax.jit(updated, donate_argnums=0)
'''

# ── loop
# ──────────────────────────────────────────────────────────────────────────────────────────────────────────

LOOP = tuple(choice for choice in tables.LOOP if "loader" not in choice.gives and "cells" not in choice.gives)

# ── step
# ──────────────────────────────────────────────────────────────────────────────────────────────────────────

STEP = (
    Choice("update", gives=("out", "loss", "grad"), weight=2, without=("concurrent", "called"), definitions=FUNCTIONS,
           body="{o}model, loss, out, grads = update({o}model, x)", value="float(loss)"),
    Choice("update in place", gives=("out", "loss", "grad"), weight=2, without=("concurrent", "called"), definitions=FUNCTIONS,
           body="{o}model, loss, out, grads = update_in_place({o}model, x)", value="float(loss)"),
    Choice("gradient only", gives=("out", "loss", "grad"), definitions=FUNCTIONS,
           body="_, loss, out, grads = update({o}model, x)", value="float(loss)"),
    Choice("inference", gives=("out",), weight=2, definitions=FUNCTIONS, body="out = forward({o}model, x)", value="float(out.mean())"),
    Choice("without jit", gives=("out", "loss"), definitions=FUNCTIONS, body="out = predict({o}model, x)\nloss = {LOSS}",
           value="float(loss)"),
)

# ── where
# ──────────────────────────────────────────────────────────────────────────────────────────────────────────

TORCHES = {"module attribute", "running sum", "recurrent state", "half unloaded", "unloaded"}


def translated(choice):
    text = choice.definitions.replace('torch.full(({B}, 64), float(key), device="cuda")', "jnp.full(({B}, 64), float(key))")
    return dataclasses.replace(choice, definitions=text)


WHERE = tuple(translated(choice) for choice in tables.WHERE if choice.name not in TORCHES)

# ── what
# ──────────────────────────────────────────────────────────────────────────────────────────────────────────

PLAIN = ("computes", "adds")

WHAT = (
    Choice("output", needs=("out",), without=PLAIN, weight=2, value="out"),
    Choice("batch", without=PLAIN, weight=2, value="x"),
    Choice("scalar loss", needs=("loss",), without=PLAIN, weight=2, value="loss"),
    Choice("gradient", needs=("grad",), without=PLAIN, weight=2, value='grads["first"]'),
    Choice("gradients", needs=("grad",), without=(*PLAIN, "weak"), value="grads"),
    Choice("view", needs=("out",), without=PLAIN, value="out[:1]"),
    Choice("tuple", needs=("out",), without=(*PLAIN, "weak"), value="(i, out)"),
    Choice("record", needs=("out",), without=(*PLAIN, "weak"), value='{"step": i, "output": out}'),
    Choice("copy", without=(*PLAIN, "weak"), value="jax.tree.map(jnp.copy, {o}model)"),
    Choice("pair", needs=("out",), without=(*PLAIN, "weak"), value="[x, out]"),
    Choice("number", without=(*PLAIN, "weak"), weight=0.7, value="float(x.sum())"),
    Choice("host copy", without=(*PLAIN, "weak"), weight=0.7, value="np.array(x)"),
    Choice("exception", needs=("out",), without=(*PLAIN, "weak", "nothing"), weight=2, gives=("raises",), value="error",
           definitions="def validate(out, i):\n    scores = jax.nn.softmax(out)\n    if {COND}:\n"
           '        raise ValueError(f"step {i}")\n'),
    Choice("computed", needs=("computes",), value=""),
)

# ── noise
# ──────────────────────────────────────────────────────────────────────────────────────────────────────────

FRESH = 'jnp.asarray(np.random.rand(32, 64).astype("float32"))'
NOISE = {
    "same data": Choice("yes", gives=("fixed", "same data"),
                        setup='{o}data = jnp.asarray(np.random.rand({B}, 64).astype("float32"))'),
    "lengths": Choice("yes", without=("fixed",), imports=("random",), setup="{o}lengths = random.Random(1)"),
    "warm-up": Choice("yes", setup=f"forward({{o}}model, {FRESH})"),
    "evaluation": Choice("yes", without=("concurrent",),
                         last="if i % 25 == 24:\n    for _ in range(4):\n"
                         f"        score = float(forward({{o}}model, {FRESH}).mean())"),
    "workspace": Choice("yes", setup="{o}workspace = jnp.zeros((4096, 64))", last="{o}workspace.shape"),
    "pinned": Choice("yes", without=("same data",)),
    "final evaluation": Choice("yes", without=("workers", "nothing"),
                               body=f"for _ in range(40):\n    score = float(forward({{o}}model, {FRESH}).mean())"),
}

SECOND = (
    Choice("no", weight=5),
    Choice("yes", without=("concurrent",), setup="{o}masks = []", last="{o}masks.append(jnp.ones(({B}, 96)))", holders=("masks",)),
)

END = (
    *(choice for choice in tables.END if choice.name != "out of memory"),
    Choice("out of memory", last="jnp.zeros((1 << 42,)).block_until_ready()"),
)

NO = Choice("no", weight=4)
DIMENSIONS = {
    "loop": LOOP,
    "step": STEP,
    "where": WHERE,
    "what": WHAT,
    "when": tables.WHEN,
    "release": tables.RELEASE,
    **{name: (NO, choice) for name, choice in NOISE.items()},
    "second": SECOND,
    "end": END,
}
