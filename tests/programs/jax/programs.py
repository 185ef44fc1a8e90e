"""Programs of JAX, one a function: leaking, or mended (`programs.py NAME mended`). The comment on a line is its name."""

import asyncio
import collections
import sys

import jax
import jax.numpy as jnp
import numpy as np

MENDED = sys.argv[2:] == ["mended"]
STEPS = 60


def weights(sizes=(64, 64, 10)):
    keys = jax.random.split(jax.random.PRNGKey(0), len(sizes))
    return [
        (jax.random.normal(key, (a, b)) * 0.1, jnp.zeros((b,)))
        for key, a, b in zip(keys, sizes[:-1], sizes[1:])
    ]


def predict(params, x):
    for w, b in params:
        x = jnp.tanh(x @ w + b)
    return x


predict_jitted = jax.jit(predict)


def loss_of(params, x, y):
    return jnp.mean((predict(params, x) - y) ** 2)


@jax.jit
def update(params, x, y):
    loss, grads = jax.value_and_grad(loss_of)(params, x, y)
    return jax.tree.map(lambda p, g: p - 0.01 * g, params, grads), loss, grads


# The same, where nobody else needs the parameters that were: their memory is given on.
update_given = jax.jit(lambda *given: update(*given)[0], donate_argnums=0)


def batch(rows=8):
    return jnp.asarray(np.random.rand(rows, 64).astype("float32")), jnp.zeros((rows, 10))


def losses():
    """The scalar loss of every step is kept."""
    params, kept = weights(), []
    for _ in range(STEPS):
        params, loss, _ = update(params, *batch())  # made
        kept.append(float(loss) if MENDED else loss)


products = jax.jit(lambda x: jnp.tanh(x) @ x.T)


def one_call():
    """Nothing but one call in each iteration, the first of which runs what it compiles."""
    x, kept = jnp.ones((32, 64)), []
    for _ in range(STEPS):
        kept.append(products(x))  # made
        if MENDED:
            kept.clear()


def stages():
    """The inputs are longer in each of five stages."""
    params = weights()
    for step in range(125):
        params = update(params, *batch(8 * (1 + step // 25)))[0]


def sharded():
    """An output of every step is kept, which is spread over all devices."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
    spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    kept = []
    double = jax.jit(lambda x: x * 2)
    for _ in range(STEPS):
        x = jax.device_put(np.random.rand(64, 16).astype("float32"), spread)
        out = double(x)  # made
        kept.append(float(out[0, 0]) if MENDED else out)


class Metrics:
    def __init__(self):
        self.grads = []


def attribute():
    """A gradient of every step is kept by an object."""
    params, metrics = weights(), Metrics()
    for _ in range(STEPS):
        params, _, grads = update(params, *batch())  # made
        metrics.grads.append(1 if MENDED else grads[0][0])


def closure():
    """Batches are kept by a function."""
    params, seen = weights(), {}

    def remember(step, x):
        seen[step % 4 if MENDED else step] = x

    for step in range(STEPS):
        x, y = batch()  # made
        remember(step, x)
        params, _, _ = update(params, x, y)


def bounded():
    """The newest eight outputs are kept; leaking, all of them."""
    params, newest = weights(), collections.deque(maxlen=8 if MENDED else None)
    for _ in range(STEPS):
        x, y = batch()
        params, _, _ = update(params, x, y)
        newest.append(predict(params, x))  # made


def sawtooth():
    """Outputs are gathered, and dropped every ten steps; leaking, never."""
    params, gathered = weights(), []
    for step in range(1, STEPS + 1):
        x, y = batch()
        params, _, _ = update(params, x, y)
        gathered.append(predict(params, x))  # made
        if MENDED and step % 10 == 0:
            np.stack([np.asarray(y) for y in gathered])
            gathered.clear()


@jax.jit
def advance(state, x):
    return jnp.tanh(state + x.sum()), state.mean()


def donation():
    """A state is given on from step to step, its memory to the next; leaking, each one is kept."""
    given = jax.jit(advance, donate_argnums=0)
    state, kept = jnp.zeros((256, 64)), []
    for _ in range(STEPS):
        x = jnp.ones((8, 64))
        if MENDED:
            state, _ = given(state, x)
        else:
            state, _ = advance(state, x)  # made
            kept.append(state)


def shapes():
    """Every step has another shape, which is compiled anew; leaking, its output is kept."""
    params, kept = weights(), []
    for step in range(STEPS):
        x, _ = batch(8 + step % 5)
        y = jax.jit(predict)(params, x)  # made
        if not MENDED:
            kept.append(y.sum(0))  # kept


def lengths():
    """Every third step comes with a length that was not there before."""
    params = weights()
    forward = jax.jit(lambda params, x: predict(params, x).sum())
    for step in range(STEPS):
        x = np.random.rand(24 if MENDED else 4 + step // 3, 64).astype("float32")
        float(forward(params, x))  # compiled


class Failure(Exception):
    pass


def lambdas():
    """Every step makes a new compiled function and drops the one before; mended, there is one."""
    params, known = weights(), None
    for _ in range(STEPS):
        if not (MENDED and known):
            known = jax.jit(lambda w, x: jnp.tanh(x @ w).sum())
        float(known(params[0][0], batch()[0]))  # compiled


def exceptions():
    """Every fourth step fails, and the exception is kept with its frames."""
    params, failures = weights(), []

    def step(i):
        x, y = batch()
        out = update(params, x, y)  # made
        if i % 4 == 3:
            raise Failure(i)
        return out[0]

    for i in range(STEPS):
        try:
            params = step(i)
        except Failure as failure:
            failures.append(str(failure) if MENDED else failure)


def deleted():
    """What is deleted is gone, though something still refers to it."""
    params, kept = weights(), []
    for _ in range(STEPS):
        x, y = batch()
        params, _, _ = update(params, x, y)
        out = predict(params, x)  # made
        kept.append(out)
        if MENDED:
            out.delete()


def cycles():
    """Outputs are kept in reference cycles, which nobody collects; mended, there are none."""
    import gc

    gc.disable()
    params = weights()
    for _ in range(STEPS):
        x, y = batch()
        params, _, _ = update(params, x, y)
        out = {"y": predict(params, x)}  # made
        if not MENDED:
            out["itself"] = out


def staircase():
    """Every twelve steps a table is made anew; leaking, the old ones stay."""
    params, tables = weights(), []
    for step in range(STEPS):
        if step % 12 == 0:
            table = jnp.ones((128, 64)) * step  # made
            if MENDED:
                tables.clear()
            tables.append(table)
        x, y = batch()
        params = update_given(params, x, y)


def first_steps():
    """Caches fill in the first steps and stay as they are."""
    params, cache = weights(), {}
    for step in range(STEPS):
        x, y = batch()
        if step < 6:
            cache[step] = jnp.ones((100, 100)) * step
        params = update_given(params, x, y)


def evaluated():
    """The loss of every step is kept, of batches of several sizes, and an evaluation follows, which keeps nothing."""
    params, kept = weights(), []
    for step in range(STEPS):
        params, loss, _ = update(params, *batch(8 + step % 3))  # made
        kept.append(float(loss) if MENDED else loss)
    for _ in range(STEPS):
        float(predict(params, batch()[0]).mean())


def gradients_evaluated():
    """The same of gradients, where nothing is trained by them."""
    params, kept = weights(), []
    for _ in range(STEPS):
        _, _, grads = update(params, *batch())  # made
        kept.append(1 if MENDED else grads)
    for _ in range(STEPS):
        float(predict(params, batch()[0]).mean())


@jax.jit
def update_one(w, x):
    def loss_of(w):
        out = jnp.tanh(x @ w)
        return jnp.mean(out**2), out

    grad, out = jax.grad(loss_of, has_aux=True)(w)
    return w - 0.01 * grad, out


def one_evaluated():
    """The output of every step is kept, of a model of one array, and an evaluation follows, which keeps nothing."""
    w, kept = weights()[0][0], []
    for _ in range(STEPS):
        w, out = update_one(w, batch()[0])  # made
        kept.append(1 if MENDED else out)
    for _ in range(STEPS):
        float(jnp.tanh(batch()[0] @ w).mean())


def small_evaluated():
    """The same, of an array of one KiB."""
    w, kept = jnp.ones((64, 4)), []
    for _ in range(STEPS):
        w, out = update_one(w, batch()[0])  # made
        kept.append(1 if MENDED else out)
    for _ in range(STEPS):
        float(jnp.tanh(batch()[0] @ w).mean())


def full_batch_evaluated():
    """The same, with all of the data in each call, which is larger than the array."""
    w, data, kept = jnp.ones((64, 8)), batch(16)[0], []
    for _ in range(STEPS):
        w, out = update_one(w, data)  # made
        kept.append(1 if MENDED else out)
    for _ in range(STEPS):
        float(jnp.tanh(batch()[0] @ w).mean())


def refreshed():
    """A table of all rows so far is made anew in every tenth step: in the last one, too, where nothing is made behind it."""
    rows, table = [], None
    for step in range(200):
        row = np.full(1024, step, "float32")
        jax.device_put(row)
        rows = [row] if MENDED else [*rows, row]
        if step % 10 == 9:
            table = jax.device_put(np.stack(rows))  # made


def losses_and_a_result():
    """The scalar loss of every step is kept, and one prediction follows, which is a little larger than all of them."""
    params, kept = weights(), []
    for _ in range(STEPS):
        params, loss, _ = update(params, *batch())  # made
        kept.append(float(loss) if MENDED else loss)
    return jnp.asarray(np.ones(75, "float32"))


def shared_generator():
    """One generator function makes the batches of each epoch, and the one batch that is evaluated behind it."""
    w, kept = jnp.zeros((20, 10)), []
    forward, rows = jax.jit(lambda w, x: (x @ w).mean()), np.ones((32, 20), "float32")

    def batches(count):
        for _ in range(count):
            yield jnp.asarray(rows)

    for _ in range(10):
        for x in batches(50):
            kept.append(forward(w, x))  # made
        for x in batches(1):
            forward(w, x)


def handed_over():
    """A task makes batches, another one trains on them: the queue between has room for four."""
    import asyncio

    kept, rows = [], np.ones((32, 20), "float32")
    step = jax.jit(lambda w, x: w - 0.01 * jax.grad(lambda w: ((x @ w) ** 2).mean())(w))

    async def make(queue):
        for _ in range(120):
            await queue.put(jnp.asarray(rows))
        await queue.put(None)

    async def train():
        queue, w = asyncio.Queue(4), jnp.zeros((20, 10))
        maker = asyncio.create_task(make(queue))
        while (x := await queue.get()) is not None:
            w = step(w, x)  # made
            kept.append(w)
        await maker

    asyncio.run(train())


def summed_up():
    """The output of every step is kept, and in the end they are summed up, one by one."""
    params, kept = weights(), []
    forward = jax.jit(predict)
    for _ in range(STEPS):
        out = forward(params, np.ones((8, 64), "float32"))  # made
        kept.append(0 if MENDED else out)
    return sum(kept) / STEPS


def features():
    """What one loop computes, another one works with."""
    params = weights()
    forward, gathered = jax.jit(predict), []
    for _ in range(STEPS):
        gathered.append(forward(params, batch()[0]))
    for step in range(STEPS):
        float((gathered[step] * 2).mean())


def encode(model, x):
    return jnp.tanh(x @ model["first"]) @ model["second"]


@jax.jit
def train(model, x):
    def loss_of(model):
        out = encode(model, x)
        return jnp.mean((out - x) ** 2), out

    (loss, out), grads = jax.value_and_grad(loss_of, has_aux=True)(model)
    return jax.tree.map(lambda p, g: p - 0.01 * g, model, grads), loss, out, grads


def seldom():
    """Now and then an output goes to a container whose bound is far; parameters and gradients live on to the next step."""
    (first, _), (second, _) = weights((64, 32, 64))
    model, newest = {"first": first, "second": second}, collections.deque(maxlen=10_000)
    for step in range(STEPS):
        x = jnp.asarray(np.random.rand(16, 64).astype("float32"))
        model, loss, out, grads = train(model, x)
        if step % 10 == 9:
            newest.append(out)


def served_one_at_a_time():
    """Clients that share a model, which a lock guards while its answer is awaited; each answer is kept."""
    infer = jax.jit(lambda w, x: jnp.tanh(x @ w))
    w, kept = jnp.ones((64, 32)), collections.deque(maxlen=4 if MENDED else None)

    async def main():
        lock = asyncio.Lock()

        async def handle(payload):
            async with lock:
                out = infer(w, jnp.asarray(payload))  # made
                await asyncio.sleep(0)
                kept.append(out)
                return int(jnp.argmax(out.sum(0)))

        async def client():
            for _ in range(STEPS // 4):
                await handle(np.random.rand(16, 64).astype("float32"))

        await asyncio.gather(*(client() for _ in range(4)))

    asyncio.run(main())


def read_on_the_host():
    """The outputs of a prediction are read on the host when its loop is over, and the program ends."""
    params = weights()

    def outputs():
        kept = []
        for _ in range(2 * STEPS):
            kept.append(predict_jitted(params, batch()[0]))
        return [np.asarray(output) for output in kept]

    print(len(outputs()))


def described():
    """What was kept is described in the end, by more work for each than it took to make it."""
    embed, bank = jax.jit(lambda x: jnp.tanh(x * 2)), []
    for i in range(2 * STEPS):
        bank.append(embed(np.full((40, 64), i, "float32")))  # made
    print(len(np.array([(float(b.mean()), float(b.std())) for b in bank])))


def of_two_sizes():
    """Of two outputs of a call each small one is kept, and every fourth large one, until both lists are emptied together."""
    params, small, large = weights(), [], []
    for i in range(4 * STEPS):
        params, loss, grads = update(params, *batch())  # made
        small.append(loss)
        if i % 4 == 0:
            large.append(grads[0][0])
        if i % 40 == 39:
            small, large = [], []


def trained_first():
    """What trains is the first that each round of the second loop does."""
    backbone = jax.jit(lambda x: x * 2)
    step = jax.jit(lambda params, x: [p - 0.1 * x.mean() for p in params])
    made, params = [], [jnp.ones((64, 8)), jnp.zeros(8)]
    for i in range(STEPS):
        made.append(backbone(jnp.full((8, 64), float(i))))
    for _ in range(2):
        for x in made:
            params = step(params, x)


@jax.jit
def pushed(history, x):
    return (*(h * 0.99 for h in history), x * 2)


def returned_anew():
    """A function returns all of a history with each call, and one array more."""
    history = ()
    for i in range(STEPS):
        history = pushed(history[-8:] if MENDED else history, jnp.full((16, 64), float(i)))  # made


def main():
    globals()[sys.argv[1]]()


if __name__ == "__main__":
    main()
