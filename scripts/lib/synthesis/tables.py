"""The dimensions of a generated program, and the choices of each: what a choice writes into the program, and
what it does to the truth.

A choice `gives` features, `needs` features that earlier dimensions gave, and excludes (`without`) others;
nothing else decides which combinations are valid. The first choice of a dimension is the simplest one:
shrinking goes there. Knows nothing of how fragments become a program (`compose`), nor of leaktrace.

In fragments, `{o}` is the owner of names ("" or "self."), `{S}` the name of the container, `{V}` the value that is
kept, `{KEY}` a key that is new at each step, `{N}` the number of steps, and the other names are the numbers of
the plan.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Choice:
    """One choice of a dimension."""

    name: str
    gives: tuple = ()
    needs: tuple = ()
    without: tuple = ()
    weight: float = 1.0
    imports: tuple = ()
    definitions: str = ""  # classes and functions at the module level
    setup: str = ""  # statements beside those that make the model
    body: str = ""  # a loop's template; or what a step does
    last: str = ""  # statements after what is kept
    value: str = ""  # the expression that is kept, or that a step returns
    put: str = ""
    clear: str = ""
    trim: str = ""
    condition: str = ""
    holders: tuple = ()  # names that a holder's path may contain, beside the container's
    retention: str = ""  # of a container: unbounded, bounded, weak, garbage
    capacity: int = 0  # entries that a bounded container holds


# ── loop
# ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# @setup@, @step@ and @after@ are replaced by lines, at their indentation. `inline`: a step can bind names anew.

LOOP = (
    Choice("script", gives=("inline", "global"), body="@setup@\nfor i in range({N}):\n    @step@\n@after@\n"),
    Choice(
        "function",
        gives=("inline",),
        weight=1.5,
        body="def main():\n    @setup@\n    for i in range({N}):\n        @step@\n    @after@\n\n\nmain()\n",
    ),
    Choice(
        "step function",
        gives=("called", "global", "returns"),
        body="@setup@\n\n\ndef train_step(i):\n    @step@\n\n\nfor i in range({N}):\n    train_step(i)\n@after@\n",
    ),
    Choice(
        "nested step function",
        gives=("called", "returns"),
        body="def main():\n    @setup@\n\n    def train_step(i):\n        @step@\n\n    for i in range({N}):\n"
        "        train_step(i)\n    @after@\n\n\nmain()\n",
    ),
    Choice(
        "class",
        gives=("inline", "class"),
        weight=1.5,
        body="class Trainer:\n    def __init__(self):\n        @setup@\n\n    def training_step(self, i):\n        @step@\n\n"
        "    def fit(self, steps):\n        for i in range(steps):\n            self.training_step(i)\n        @after@\n\n\n"
        "Trainer().fit({N})\n",
    ),
    Choice(
        "engine",
        gives=("called", "global", "handler"),
        body="class Engine:\n    def __init__(self, process):\n        self.process, self.handlers = process, []\n\n"
        "    def on_iteration(self, handler):\n        self.handlers.append(handler)\n        return handler\n\n"
        "    def run(self, steps):\n        for self.iteration in range(steps):\n"
        "            self.output = self.process(self.iteration)\n            for handler in self.handlers:\n"
        "                handler(self)\n\n\n@setup@\n\n\ndef process(i):\n    @compute@\n    return i, @names@\n\n\n"
        "engine = Engine(process)\n\n\n@engine.on_iteration\ndef after_iteration(engine):\n    i, @names@ = engine.output\n"
        "    @keep@\n\n\nengine.run({N})\n@after@\n",
    ),
    Choice(
        "epochs",
        gives=("inline",),
        body="def main():\n    @setup@\n    for epoch in range({N} // 10):\n        for batch in range(10):\n"
        "            i = epoch * 10 + batch\n            @step@\n    @after@\n\n\nmain()\n",
    ),
    Choice(
        "generator",
        gives=("inline", "global", "fed"),
        body="def batches(steps):\n    for i in range(steps):\n        @batch@\n        yield i, x\n\n\n@setup@\n"
        "for i, x in batches({N}):\n    @rest@\n@after@\n",
    ),
    Choice(
        "while",
        gives=("inline",),
        body="def main():\n    @setup@\n    i = 0\n    while i < {N}:\n        @step@\n        i += 1\n    @after@\n\n\nmain()\n",
    ),
    Choice(
        "comprehension",
        gives=("called", "global", "returns"),
        body="@setup@\n\n\ndef train_step(i):\n    @step@\n    return @value@\n\n\n"
        "values = [train_step(i) for i in range({N})]\n@after@\n",
    ),
    Choice(
        "map",
        gives=("called", "global", "returns"),
        body="@setup@\n\n\ndef train_step(i):\n    @step@\n    return @value@\n\n\n"
        "values = list(map(train_step, range({N})))\n@after@\n",
    ),
    Choice(
        "asyncio",
        gives=("inline",),
        imports=("asyncio",),
        body="async def main():\n    @setup@\n    for i in range({N}):\n        @step@\n        await asyncio.sleep(0)\n    @after@\n"
        "\n\nasyncio.run(main())\n",
    ),
    Choice(
        "asyncio workers",
        gives=("inline", "class", "concurrent", "workers"),
        imports=("asyncio",),
        body="class Server:\n    def __init__(self):\n        self.queue = asyncio.Queue(4)\n        @setup@\n\n"
        "    async def serve(self):\n        @worker@\n        while True:\n            i = await self.queue.get()\n            @step@\n"
        "            await asyncio.sleep(0)\n            self.queue.task_done()\n\n\nasync def main():\n    server = Server()\n"
        "    workers = [asyncio.create_task(server.serve()) for _ in range(3)]\n    for i in range({N}):\n"
        "        await server.queue.put(i)\n    await server.queue.join()\n    @after@\n    for worker in workers:\n"
        "        worker.cancel()\n\n\nasyncio.run(main())\n",
    ),
    Choice(
        "thread per request",
        gives=("called", "global", "threads"),
        imports=("threading",),
        body="@setup@\n\n\ndef handle(i):\n    @step@\n\n\nfor i in range({N}):\n"
        "    thread = threading.Thread(target=handle, args=(i,))\n    thread.start()\n    thread.join()\n@after@\n",
    ),
    Choice(
        "worker pool",
        gives=("called", "global", "threads", "concurrent"),
        imports=("concurrent.futures",),
        body="@setup@\n\n\ndef handle(i):\n    @step@\n    return @value@\n\n\n"
        "with concurrent.futures.ThreadPoolExecutor(2) as pool:\n    values = list(pool.map(handle, range({N})))\n@after@\n",
    ),
    Choice(
        "recursion",
        gives=("called", "global"),
        body="@setup@\n\n\ndef train_step(i):\n    @step@\n\n\ndef level(depth):\n    for j in range(10):\n"
        "        train_step(depth * 10 + j)\n    if (depth + 1) * 10 < {N}:\n        level(depth + 1)\n\n\nlevel(0)\n@after@\n",
    ),
    Choice(
        "loader",
        gives=("inline", "loader", "fixed"),
        body="def main():\n    @setup@\n    loader = torch.utils.data.DataLoader(torch.randn({N} * {B}, 64), batch_size={B})\n"
        "    for i, batch in enumerate(loader):\n        @step@\n    @after@\n\n\nmain()\n",
    ),
    Choice(
        "epochs of a loader",
        gives=("inline", "class", "loader", "fixed"),
        body="class Trainer:\n    def __init__(self):\n        @setup@\n\n    def train_epoch(self, epoch, loader):\n"
        "        for number, batch in enumerate(loader):\n            i = epoch * 10 + number\n            @step@\n\n"
        "    def fit(self, loader):\n        for epoch in range({N} // 10):\n            self.train_epoch(epoch, loader)\n"
        "        @after@\n\n\n"
        "loader = torch.utils.data.DataLoader(torch.randn(10 * {B}, 64), batch_size={B}, shuffle=True)\ntrainer = Trainer()\n"
        "trainer.fit(loader)\n",
    ),
    Choice(
        "exec",
        gives=("inline", "global", "cells"),
        body='CELLS = [\n    """\n@imports@\n@setup@\n""",\n    """\nfor i in range({N}):\n    @step@\n""",\n]\n'
        "namespace = {}\nfor number, cell in enumerate(CELLS):\n"
        '    exec(compile(cell, f"<cell {number}>", "exec"), namespace)\n@after@\n',
    ),
    Choice(
        "exec per step",
        gives=("inline", "global", "cells"),
        weight=0.7,
        body='SETUP = """\n@imports@\n@setup@\n"""\nCELL = """\n@step@\n"""\nnamespace = {}\n'
        'exec(compile(SETUP, "<setup>", "exec"), namespace)\nfor i in range({N}):\n    namespace["i"] = i\n'
        '    exec(compile(CELL, f"<cell {i}>", "exec"), namespace)\n@after@\n',
    ),
)

# ── step
# ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# The body has `x` and makes `out` and, where it trains, `loss`.

SGD = "{o}optimizer = torch.optim.SGD({o}model.parameters(), lr=0.01)"
TRAIN = "{o}optimizer.zero_grad()\nout = {o}model(x)\nloss = {LOSS}\nloss.backward()\n{o}optimizer.step()"

STEP = (
    Choice("sgd", gives=("out", "loss", "grad", "optimizer"), weight=2, setup=SGD, body=TRAIN, value="loss.item()",
           without=("concurrent",)),
    Choice("inference", gives=("out", "bare"), weight=1.5, body="with torch.no_grad():\n    out = {o}model(x)",
           value="out.mean().item()"),
    Choice("inference with graph", gives=("out", "loss", "bare"), body="out = {o}model(x)\nloss = {LOSS}", value="loss.item()"),
    Choice("one call", gives=("out", "bare"), body="out = {o}model(x)", value="out.mean().item()"),
    Choice("one call by C", gives=("out", "bare"), weight=0.5, imports=("functools",),
           setup="{o}forward = functools.partial({o}model)", body="out = {o}forward(x)", value="out.mean().item()"),
    Choice("adam", gives=("out", "loss", "grad", "optimizer"), weight=1.5, without=("concurrent",),
           setup="{o}optimizer = torch.optim.AdamW({o}model.parameters(), lr=1e-3)", body=TRAIN, value="loss.item()"),
    Choice(
        "two optimizers",
        gives=("out", "loss", "grad", "optimizer"),
        without=("concurrent",),
        setup='{o}head = nn.Linear(64, 8).to("cuda")\n' + SGD + "\n"
        "{o}head_optimizer = torch.optim.AdamW({o}head.parameters(), lr=1e-3)",
        body="{o}optimizer.zero_grad()\n{o}head_optimizer.zero_grad()\nout = {o}model(x)\n"
        "loss = {LOSS} + {o}head(out).square().mean()\nloss.backward()\n{o}optimizer.step()\n{o}head_optimizer.step()",
        value="loss.item()",
    ),
    Choice(
        "optimizer per fold",
        gives=("out", "loss", "grad", "optimizer", "folds"),
        needs=("inline",),
        without=("concurrent", "fed"),
        body="if i % 20 == 0:\n    {o}model = {MODEL}\n    {o}optimizer = torch.optim.SGD({o}model.parameters(), lr=0.01, momentum=0.9)\n"
        + TRAIN,
        value="loss.item()",
    ),
    Choice(
        "accumulation",
        gives=("out", "loss", "optimizer", "accumulates"),
        without=("concurrent",),
        setup=SGD,
        body="out = {o}model(x)\nloss = {LOSS} / 2\nloss.backward()\nif i % 2 == 1:\n    {o}optimizer.step()\n"
        "    {o}optimizer.zero_grad()",
        value="loss.item()",
    ),
    Choice(
        "scaler",
        gives=("out", "loss", "grad", "optimizer"),
        without=("concurrent",),
        setup=SGD + '\n{o}scaler = torch.amp.GradScaler("cuda")',
        body="{o}optimizer.zero_grad()\nout = {o}model(x)\nloss = {LOSS}\n{o}scaler.scale(loss).backward()\n"
        "{o}scaler.step({o}optimizer)\n{o}scaler.update()",
        value="loss.item()",
    ),
    Choice(
        "closure",
        gives=("loss", "optimizer"),
        without=("concurrent",),
        setup=SGD,
        body="\ndef closure():\n    {o}optimizer.zero_grad()\n    out = {o}model(x)\n    loss = {LOSS}\n    loss.backward()\n    return loss\n\n"
        "loss = {o}optimizer.step(closure)",
        value="loss.item()",
    ),
    Choice(
        "by hand",
        gives=("out", "loss", "bare"),
        without=("concurrent",),
        weight=0.7,
        body="out = {o}model(x)\nloss = {LOSS}\nloss.backward()\nwith torch.no_grad():\n    for p in {o}model.parameters():\n"
        "        p -= 0.01 * p.grad\n        p.grad = None",
        value="loss.item()",
    ),
)

# ── where
# ──────────────────────────────────────────────────────────────────────────────────────────────────────────

LIST = {"put": "{o}{S}.append({V})", "clear": "{o}{S}.clear()", "trim": "if len({o}{S}) > 4:\n    del {o}{S}[0]"}
NODE = "class Node:\n    def __init__(self, value):\n        self.value = value\n        self.parent = self\n"
COMPUTED = 'def embed(key):\n    return torch.full(({B}, 64), float(key), device="cuda")\n'
U, B = "unbounded", "bounded"
UNLOADED = '{o}encoder = nn.Sequential(*[nn.Linear(256, 256) for _ in range(4)]).to("cuda")'
UNLOAD = 'if i < 30:\n    with torch.no_grad():\n        {o}encoder(torch.randn(4, 256, device="cuda"))\nelif i == 30:\n    {o}encoder = None'

WHERE = (
    Choice("list", weight=3, retention=U, gives=("clear",), setup="{o}{S} = []", **LIST),
    Choice("dict", weight=2, retention=U, gives=("clear",), setup="{o}{S} = {}", put="{o}{S}[{KEY}] = {V}",
           clear="{o}{S}.clear()", trim="if len({o}{S}) > 4:\n    del {o}{S}[next(iter({o}{S}))]"),
    Choice("closure", retention=U, holders=("record",), put="{o}record({V})", setup="{o}record = make_recorder()",
           definitions="def make_recorder():\n    {S} = []\n\n    def record(value):\n        {S}.append(value)\n\n    return record\n"),
    Choice("default argument", retention=U, holders=("remember", "__defaults__"), put="remember({V})",
           definitions="def remember(value, {S}=[]):\n    {S}.append(value)\n"),
    Choice("bounded deque", weight=1.5, retention=B, capacity=16, imports=("collections",), put="{o}{S}.append({V})",
           setup="{o}{S} = collections.deque(maxlen=16)"),
    Choice("bounded deque, not full", weight=1.5, retention=B, capacity=10_000, imports=("collections",), put="{o}{S}.append({V})",
           setup="{o}{S} = collections.deque(maxlen=10_000)"),
    Choice("unbounded deque", retention=U, gives=("clear",), imports=("collections",), put="{o}{S}.append({V})",
           setup="{o}{S} = collections.deque()", clear="{o}{S}.clear()", trim="if len({o}{S}) > 4:\n    {o}{S}.popleft()"),
    Choice("ring buffer", weight=1.5, retention=B, capacity=16, gives=("keyed",), setup="{o}{S} = [None] * 16",
           put="{o}{S}[i % 16] = {V}"),
    Choice("unbounded lru_cache", retention=U, gives=("computes",), imports=("functools",), holders=("embed", "lru_cache", "cache"),
           definitions="@functools.lru_cache(maxsize=None)\n" + COMPUTED, put="y = embed(i)"),
    Choice("bounded lru_cache", retention=B, capacity=16, gives=("computes",), imports=("functools",),
           definitions="@functools.lru_cache(maxsize=16)\n" + COMPUTED, put="y = embed(i)"),
    Choice("class attribute", retention=U, gives=("clear",), holders=("Registry",), definitions="class Registry:\n    {S} = []\n",
           put="Registry.{S}.append({V})", clear="Registry.{S}.clear()", trim="if len(Registry.{S}) > 4:\n    del Registry.{S}[0]"),
    Choice("module attribute", retention=U, without=("folds",), gives=("clear", "on model"), setup="{o}model.{S} = []",
           put="{o}model.{S}.append({V})", clear="{o}model.{S}.clear()", trim="if len({o}model.{S}) > 4:\n    del {o}model.{S}[0]"),
    Choice("object", retention=U, gives=("clear",), setup="{o}recorder = Recorder()", put="{o}recorder.add({V})",
           clear="{o}recorder.{S}.clear()", trim="if len({o}recorder.{S}) > 4:\n    del {o}recorder.{S}[0]",
           definitions="class Recorder:\n    def __init__(self):\n        self.{S} = []\n\n    def add(self, value):\n"
           "        self.{S}.append(value)\n"),
    Choice("metric", retention=U, gives=("clear",), setup="{o}metric = Metric()", put="{o}metric.update({V})", clear="{o}metric.reset()",
           trim="if len({o}metric.{S}) > 4:\n    del {o}metric.{S}[0]",
           definitions="class Metric:\n    def __init__(self):\n        self.reset()\n\n    def reset(self):\n        self.{S} = []\n\n"
           "    def update(self, value):\n        self.{S}.append(value)\n"),
    Choice("cycle", weight=1.5, retention="garbage", definitions=NODE, put="Node({V})"),
    Choice("cycles in a list", retention=U, definitions=NODE, setup="{o}{S} = []", put="{o}{S}.append(Node({V}))"),
    Choice("weak references", retention="weak", gives=("weak",), imports=("weakref",), setup="{o}{S} = []",
           put="{o}{S}.append(weakref.ref({V}))"),
    Choice("weak dictionary", retention="weak", gives=("weak",), imports=("weakref",), setup="{o}{S} = weakref.WeakValueDictionary()",
           put="{o}{S}[{KEY}] = {V}"),
    Choice("thread local", retention=U, without=("threads",), imports=("threading",), holders=("local",), put="{o}local.{S}.append({V})",
           setup="{o}local = threading.local()\n{o}local.{S} = []"),
    Choice("coroutine local", retention=U, needs=("workers",), gives=("local",), weight=4, put="{S}.append({V})", holders=("serve",)),
    Choice("running sum", weight=2, retention=U, needs=("inline", "loss"), without=("concurrent",), gives=("adds",),
           setup="{o}{S} = 0.0", put="{o}{S} = {o}{S} + {V}", holders=("next_functions", "grad_fn")),
    Choice("linked list", retention=U, needs=("inline",), without=("concurrent",), gives=("rebinds",), setup="{o}{S} = None",
           put="{o}{S} = ({V}, {o}{S})"),
    Choice("queue", retention=U, imports=("queue",), setup="{o}{S} = queue.Queue()", put="{o}{S}.put({V})"),
    Choice("dict of lists", retention=U, gives=("keyed",), imports=("collections",), setup="{o}{S} = collections.defaultdict(list)",
           put="{o}{S}[i % 3].append({V})"),
    Choice("evicting dict", retention=B, capacity=4, gives=("keyed",), imports=("collections",),
           setup="{o}{S} = collections.OrderedDict()",
           put="{o}{S}[i] = {V}\nif len({o}{S}) > 4:\n    {o}{S}.popitem(last=False)"),
    Choice("tuple grown", retention=U, needs=("inline",), without=("concurrent",), gives=("rebinds",), setup="{o}{S} = ()",
           put="{o}{S} = (*{o}{S}, {V})"),
    Choice("lambdas", retention=U, setup="{o}{S} = []", put="{o}{S}.append(lambda value={V}: value)"),
    Choice("suspended generators", retention=U, setup="{o}{S} = []", put="pending = hold({V})\nnext(pending)\n{o}{S}.append(pending)",
           definitions="def hold(value):\n    yield\n    print(value)\n"),
    Choice("bound methods", retention=U, setup="{o}{S} = []", put="{o}{S}.append(Request({V}).finish)",
           definitions="class Request:\n    def __init__(self, value):\n        self.value = value\n\n    def finish(self):\n"
           "        return self.value\n"),
    Choice("recurrent state", weight=1.5, retention=U, needs=("inline",), without=("concurrent", "lengths"), gives=("computes", "fixed"),
           holders=("next_functions", "grad_fn"),
           setup='{o}cell = nn.Linear(64, 64).to("cuda")\n{o}{S} = torch.zeros({B}, 64, device="cuda")',
           put="{o}{S} = torch.tanh({o}cell({o}{S}) + x)"),
    Choice("half unloaded", weight=1.5, retention="residue", needs=("inline",), without=("concurrent",), gives=("nothing",), setup=UNLOADED
           + '\n{o}{S} = {"first": {o}encoder[0], "third": {o}encoder[2]}', put=UNLOAD),
    Choice("unloaded", retention="weak", needs=("inline",), without=("concurrent",), gives=("nothing",), setup=UNLOADED, put=UNLOAD),
    Choice("none", weight=2, retention="weak", gives=("nothing",)),
)

# ── what
# ──────────────────────────────────────────────────────────────────────────────────────────────────────────

PLAIN = ("computes", "adds")

WHAT = (
    Choice("output", needs=("out",), without=PLAIN, weight=2, value="out.detach()"),
    Choice("batch", without=PLAIN, weight=2, value="x"),
    Choice("scalar loss", needs=("loss",), without=PLAIN, weight=2, value="loss.detach()"),
    Choice("loss with graph", needs=("loss",), without=("computes",), weight=2, value="loss"),
    Choice("output with graph", needs=("out",), without=PLAIN, weight=2, value="out"),
    Choice("activation by hook", needs=("out",), without=(*PLAIN, "keyed", "rebinds", "folds", "weak", "nothing", "workers", "fed"),
           weight=2, gives=("hooked",), value="output"),
    Choice("gradient", needs=("grad",), without=(*PLAIN, "weak"), value="{o}model[0].weight.grad"),
    Choice("gradient copy", needs=("grad",), without=PLAIN, value="{o}model[0].weight.grad.clone()"),
    Choice("view", needs=("out",), without=PLAIN, value="out.detach()[:1]"),
    Choice("tuple", needs=("out",), without=(*PLAIN, "weak"), value="(i, out.detach())"),
    Choice("record", needs=("out",), without=(*PLAIN, "weak"), value='{"step": i, "output": out.detach()}'),
    Choice("state", without=(*PLAIN, "weak"), value='{k: v.clone() for k, v in {o}model.state_dict().items()}'),
    Choice("pair", needs=("out",), without=(*PLAIN, "weak"), value="[x, out.detach()]"),
    Choice("number", without=(*PLAIN, "weak"), weight=0.7, value="x.sum().item()"),
    Choice("host copy", without=(*PLAIN, "weak"), weight=0.7, value="x.cpu()"),
    Choice("exception", needs=("out",), without=(*PLAIN, "weak", "nothing"), weight=2, gives=("raises",), value="error",
           definitions="def validate(out, i):\n    scores = out.detach().softmax(-1)\n    if {COND}:\n"
           '        raise ValueError(f"step {i}")\n'),
    Choice("computed", needs=("computes",), value=""),
)

# ── how often
# ──────────────────────────────────────────────────────────────────────────────────────────────────────────

WHEN = (
    Choice("each step", weight=3, condition=""),
    Choice("every k-th", without=("hooked", "nothing"), weight=1.5, condition="i % {K} == 0"),
    Choice("at random", without=("hooked", "raises", "nothing", "cells"), imports=("random",), setup="{o}rng = random.Random({N})",
           condition="{o}rng.random() < 0.4"),
    Choice("per epoch", without=("hooked", "nothing"), condition="i % 10 == 9"),
    Choice("between a and b", without=("hooked", "nothing"), gives=("plateau",), weight=1.5, condition="20 <= i < 32"),
    Choice("late", without=("hooked", "nothing"), condition="i >= {N} // 2"),
)

# ── how it ends
# ──────────────────────────────────────────────────────────────────────────────────────────────────────────

RELEASE = (
    Choice("never", weight=3),
    Choice("cleared", needs=("clear",), without=("plateau",), gives=("cleared",), weight=1.5),
    Choice("bound", needs=("clear",), without=("plateau",), gives=("trimmed",), weight=1.5),
)

# ── noise: each is a dimension of its own
# ──────────────────────────────────────────────────────────────────────────────────────────────────────────

NOISE = {
    "same data": Choice("yes", gives=("fixed", "same data"), without=("loader",), setup='{o}data = torch.randn({B}, 64).to("cuda")'),
    "lengths": Choice("yes", without=("fixed",), imports=("random",), setup="{o}lengths = random.Random(1)"),
    "warm-up": Choice("yes", setup='with torch.no_grad():\n    {o}model(torch.randn(8, 64).to("cuda"))', without=("hooked",)),
    "evaluation": Choice("yes", without=("hooked", "bare", "concurrent"),
                         last="if i % 25 == 24:\n    with torch.no_grad():\n        for _ in range(4):\n"
                         '            score = {o}model(torch.randn(32, 64).to("cuda")).mean().item()'),
    "ema": Choice("yes", needs=("optimizer",), setup="{o}ema = {k: v.clone() for k, v in {o}model.state_dict().items()}",
                  last="for k, v in {o}model.state_dict().items():\n    {o}ema[k].mul_(0.99).add_(v, alpha=0.01)"),
    "checkpoint": Choice("yes", needs=("optimizer",), imports=("copy",), setup="{o}best = {}",
                         last='if i % 30 == 29:\n    {o}best["model"] = copy.deepcopy({o}model.state_dict())'),
    "workspace": Choice("yes", setup='{o}workspace = torch.empty(4096, 64, device="cuda")', last="{o}workspace.zero_()"),
    "pinned": Choice("yes", without=("loader", "same data")),
    "final evaluation": Choice("yes", without=("hooked", "cells", "workers", "nothing"),
                               body="with torch.no_grad():\n    for _ in range(40):\n"
                               '        score = {o}model(torch.randn(32, 64).to("cuda")).mean().item()'),
}

# ── a second cause, and the end of the program
# ──────────────────────────────────────────────────────────────────────────────────────────────────────────

SECOND = (
    Choice("no", weight=5),
    Choice("yes", without=("concurrent",), setup="{o}masks = []", last='{o}masks.append(torch.ones({B}, 96, device="cuda"))', holders=("masks",)),
)

END = (
    Choice("returns", weight=3),
    Choice("exit", imports=("sys",), last="sys.exit(0)"),
    Choice("exception", last='raise RuntimeError("the loss diverged")'),
    Choice("SIGKILL", imports=("os", "signal"), last="os.kill(os.getpid(), signal.SIGKILL)"),
    Choice("out of memory", last='torch.empty(1 << 42, dtype=torch.uint8, device="cuda")'),
)

NO = Choice("no", weight=4)
DIMENSIONS = {
    "loop": LOOP,
    "step": STEP,
    "where": WHERE,
    "what": WHAT,
    "when": WHEN,
    "release": RELEASE,
    **{name: (NO, choice) for name, choice in NOISE.items()},
    "second": SECOND,
    "end": END,
}
# ── what every program has
# ──────────────────────────────────────────────────────────────────────────────────────────────────────────

IMPORTS = "import torch\nfrom torch import nn\n"
MODEL = 'nn.Sequential(nn.Linear(64, {H}), nn.ReLU(), nn.Linear({H}, 64)).to("cuda")'
BATCH = 'torch.randn({rows}, 64).to("cuda")'
PINNED = 'torch.randn({rows}, 64).pin_memory().to("cuda", non_blocking=True)'
# Whether what a step leaves in its variables is a good part of the peak, and rightly told as carried over.
CARRIES = False
CONTAINERS = ("kept", "history", "outputs", "records", "samples")
LOSSES = ("out.square().mean()", "F.mse_loss(out, torch.zeros_like(out))", "F.smooth_l1_loss(out, x)")
