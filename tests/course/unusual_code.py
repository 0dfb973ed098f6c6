# ruff: noqa: E501  (a line of a submission stays a line)
"""Honest code that is written in an unusual way. `ODD`: name -> (cells before it, the cell that defines `X`, a synchronous or
asynchronous server or a ring; further arguments of `course.trial`).
"""

import labkit as lk

HEAD = "@dataclass(frozen=True)\nclass X(lk.Strategy):\n    learning_rate: float = lk.option(0.1)\n    messages = (lk.Push, lk.Pull, lk.Weights)\n"
WORKER = """
    async def worker(self, ctx, model):
        weights = await lk.pull(ctx)
        for batch in ctx.batches():
            gradient = await ctx.compute(model.gradient, weights, batch)
            weights = await lk.push_pull(ctx, gradient)
"""
SERVER = """
    async def server(self, ctx, shard):
        pushes = []
        async for request in ctx.inbox(lk.Push, lk.Pull):
            if isinstance(request, lk.Pull):
                ctx.send(request.sender, shard.weights())
                continue
            pushes.append(request)
            if len(pushes) == len(ctx.peers("worker")):
                await ctx.compute(shard.apply, pushes, self.learning_rate)
                for push in pushes:
                    ctx.send(push.sender, shard.weights())
                pushes.clear()
"""
ANY = """
    async def server(self, ctx, shard):
        async for request in ctx.inbox(lk.Push, lk.Pull):
            {before}
            if isinstance(request, lk.Push):
                await ctx.compute(shard.apply, request, {rate})
            ctx.send(request.sender, shard.weights())
"""
OTHER = """
    async def worker(self, ctx, model):
        weights = await lk.pull(ctx)
        for batch in ctx.batches():
            {lines}
"""


def other(lines):
    return OTHER.format(lines=lines.strip().replace("\n", "\n            "))


def at_once(before="pass", rate="self.learning_rate"):
    return ANY.format(before=before.strip().replace("\n", "\n            "), rate=rate)


RING = """@dataclass(frozen=True)
class X(lk.Strategy):
    uses_servers = False
    messages = (lk.Chunk,)
    async def worker(self, ctx, model, replica):
        members = ctx.peers("worker")
        n, me = len(members), members.index(ctx.name)
        for batch in ctx.batches():
            gradient = await ctx.compute(model.gradient, replica.weights(), batch)
            passed = gradient.values.copy()
            for turn in range(n - 1):
                ctx.send(members[(me + 1) % n], lk.Chunk(passed, turn, 0))
                passed = (await ctx.recv(lk.Chunk)).values
                {add}
            {end}
            await ctx.compute(replica.apply, gradient, 0.1)
"""

# name: (cells before it, the cell, more of course.trial)
ODD = {
    "as it is taught": ([], HEAD + SERVER + WORKER, {}),
    "steps at once": ([], HEAD + at_once() + WORKER, {}),
    "several shards": ([], HEAD + SERVER + WORKER, {"servers": 3}),
    "a slow worker and chance": ([], HEAD + at_once() + WORKER, {"slow": {"worker-1": 4}, "compute": lk.distributions.Exponential(0.1)}),
    "a network": ([], HEAD + SERVER + WORKER, {"latency": 1e-3, "bandwidth": 1e6, "servers": 2}),
    "the base with the messages": ([], "@dataclass(frozen=True)\nclass X(lk.ServerStrategy):\n    learning_rate: float = 0.1\n" + SERVER + WORKER, {}),
    "without brackets of imports": (
        [],
        "from labkit import Push, Pull, Weights, Strategy, option, pull, push_pull\n" + (HEAD + SERVER + WORKER).replace("lk.", ""),
        {},
    ),
    "the future": (
        [],
        "from __future__ import annotations\n" + (HEAD + SERVER + WORKER).replace(
            "(self, ctx, shard):", "(self, ctx: lk.NoSuchContext, shard: Shard | None) -> NoSuch[int]:"), {}),
    "helpers": (
        ["def rate_of(n): return 0.1 * mean_of([1.0] * n)", "def mean_of(xs):\n    return np.mean(xs)"],
        HEAD + at_once(rate="rate_of(2)") + WORKER,
        {},
    ),
    "helpers that come after": ([], HEAD + at_once(rate="later()") + WORKER + "\ndef later() -> float:\n    return 0.05\n", {}),
    "a failed experiment": (["1 / 0\ndef rate(): return 0.05\nopen('data.csv')\nprint(rate())"], HEAD + at_once(rate="rate()") + WORKER, {}),
    "pictures": (
        ["import matplotlib.pyplot as plt\nfig, ax = plt.subplots()\nax.plot([1, 2])\nplt.show()\nfig.savefig('x.png')"],
        HEAD + SERVER + WORKER, {},
    ),
    "trials of one's own": (["from labkit import course\ntry:\n    lk.train(None, None)\nexcept Exception as e:\n    print(e)"], HEAD + SERVER + WORKER, {}),
    "NumPy's numbers": ([], HEAD + at_once(rate="np.float64(0.1) * np.int64(1)") + WORKER, {}),
    "another order of the sum": ([], HEAD + SERVER.replace("pushes, self", "pushes[::-1], self") + WORKER, {}),
    "a tuple of pushes": ([], HEAD + SERVER.replace("pushes, self", "tuple(pushes), self") + WORKER, {}),
    "the reduction by name": ([], HEAD + SERVER.replace("self.learning_rate)", "learning_rate=self.learning_rate, reduce='mean')").replace(
        "ctx.compute(shard.apply, pushes, learning_rate=self.learning_rate, reduce='mean')",
        "ctx.compute(shard.apply, pushes, self.learning_rate, 'mean')") + WORKER, {}),
    "apply without compute": ([], HEAD + at_once().replace("await ctx.compute(shard.apply, request, self.learning_rate)", "shard.apply(request, self.learning_rate)") + WORKER, {}),
    "a lambda": ([], HEAD + at_once() + other(
        "gradient = await ctx.compute(lambda: model.gradient(weights, batch))\nweights = await lk.push_pull(ctx, gradient)"), {}),
    "a local function": ([], HEAD + at_once() + other(
        "def work(w, b):\n    g = model.gradient(w, b)\n    assert g.values.shape == w.values.shape\n    return g\n"
        "gradient = await ctx.compute(work, weights, batch)\nweights = await lk.push_pull(ctx, gradient)"), {}),
    "the first batch at every step": ([], HEAD + at_once() + other(
        "assert next(ctx.batches()).epoch == 0\nbatch = next(ctx.batches())\n"
        "gradient = await ctx.compute(model.gradient, weights, batch)\nweights = await lk.push_pull(ctx, gradient)"), {"updates": 30}),
    "two orders at a time": ([], HEAD + at_once() + other(
        "two = zip(ctx.batches(), ctx.batches())\nnext(two)\nassert all(np.array_equal(a.x, b.x) for _, (a, b) in zip(range(3), two))\n"
        "gradient = await ctx.compute(model.gradient, weights, next(two)[1])\nweights = await lk.push_pull(ctx, gradient)"), {}),
    "random numbers": ([], HEAD + at_once() + other(
        "await ctx.sleep(ctx.rng.exponential(0.05))\nif ctx.rng.integers(3) == 0:\n    gradient = None\n"
        "gradient = await ctx.compute(model.gradient, weights, batch)\nweights = await lk.push_pull(ctx, gradient)"), {}),
    "other work": ([], HEAD + at_once() + other(
        "total = await ctx.compute(sum, [1, 2, 3], cost=0.5)\nassert total == 6\n"
        "gradient = await ctx.compute(model.gradient, weights, batch)\nweights = await lk.push_pull(ctx, gradient)"), {}),
    "an error that is caught": ([], HEAD + at_once() + other(
        "try:\n    await ctx.compute(lambda: 1 / 0)\nexcept ZeroDivisionError:\n    pass\n"
        "try:\n    ctx.send('nobody', lk.Pull())\nexcept lk.RoleError:\n    pass\n"
        "gradient = await ctx.compute(model.gradient, weights, batch)\nweights = await lk.push_pull(ctx, gradient)"), {}),
    "push and pull by hand": ([], HEAD + SERVER + other(
        "gradient = await ctx.compute(model.gradient, weights, batch)\nctx.send('server-0', gradient.push(0))\n"
        "weights = await ctx.recv(lk.Weights, sender='server-0')"), {}),
    "a push of one's own": ([], HEAD + SERVER + other(
        "gradient = await ctx.compute(model.gradient, weights, batch)\n"
        "said = lk.Push(gradient.values * 1.0, gradient.step, weights.generation, weights.version, gradient.count, gradient.samples)\n"
        "ctx.send('server-0', said)\nweights = await ctx.recv(lk.Weights)"), {}),
    "weights of one's own": ([], HEAD + at_once().replace(
        "shard.weights())", "lk.Weights(shard.values, shard.index, shard.generation, shard.version))") + WORKER, {}),
    "post": ([], HEAD + SERVER + other(
        "gradient = await ctx.compute(model.gradient, weights, batch)\nlk.post(ctx, gradient)\nweights = await ctx.recv(lk.Weights)"), {}),
    "an answer to a message": ([], HEAD + at_once().replace("ctx.send(request.sender,", "ctx.send(request,") + WORKER, {}),
    "timeouts": ([], HEAD + at_once() + other(
        "assert await ctx.recv(lk.Weights, timeout=0) is None\nassert await ctx.recv(lk.Weights, timeout=0.01) is None\n"
        "gradient = await ctx.compute(model.gradient, weights, batch)\nweights = await lk.push_pull(ctx, gradient)"), {}),
    "sleeping, the time, notes": ([], HEAD + at_once() + other(
        "then = ctx.now\nawait ctx.sleep(0.02)\nassert abs(ctx.now - then - 0.02) < 1e-9\nctx.note('slept', seconds=ctx.now)\nctx.save({'at': ctx.now})\n"
        "gradient = await ctx.compute(model.gradient, weights, batch)\nweights = await lk.push_pull(ctx, gradient)"), {}),
    "an answer that is given up": ([], HEAD + SERVER + other(
        "gradient = await ctx.compute(model.gradient, weights, batch, unless=lk.Pull)\nweights = await lk.push_pull(ctx, gradient)"), {}),
    "helpers that wait": (
        ["async def told(ctx, gradient):\n    ctx.send('server-0', gradient.push(0))\n    return await ctx.recv(lk.Weights)"],
        HEAD + SERVER + other("gradient = await ctx.compute(model.gradient, weights, batch)\nweights = await told(ctx, gradient)"), {}),
    "asynchronous generators": ([], "async def gradients(ctx, model, box):\n    for batch in ctx.batches():\n"
        "        yield await ctx.compute(model.gradient, box[0], batch)\n" + HEAD + SERVER + """
    async def worker(self, ctx, model):
        box = [await lk.pull(ctx)]
        async for gradient in gradients(ctx, model, box):
            box[0] = await lk.push_pull(ctx, gradient)
""", {}),
    "methods and attributes of the class": ([], HEAD + "    PATIENCE = 1\n    def rate(self):\n        return self.learning_rate / self.PATIENCE\n"
        + at_once(rate="self.rate()") + WORKER, {}),
    "prints, warnings, asserts": ([], "import warnings\n" + HEAD + at_once(
        "print('got', request, request.sender)\nwarnings.warn('careful')\nassert request.sender.startswith('worker')") + WORKER, {}),
    "a docstring, a match": ([], HEAD.replace("lk.Strategy):\n", "lk.Strategy):\n    \"\"\"Mine.\"\"\"\n") + at_once(
        "match request:\n    case lk.Pull():\n        pass\n    case lk.Push(step=step):\n        assert step >= 0") + WORKER, {}),
    "fresh and dropped": ([], HEAD + """
    async def server(self, ctx, shard):
        async for request in ctx.inbox(lk.Push, lk.Pull):
            if isinstance(request, lk.Push) and shard.version - request.version > 1:
                shard.drop(request, "late")
            elif isinstance(request, lk.Push):
                assert shard.fresh(request) == (request.version == shard.version)
                await ctx.compute(shard.apply, request, self.learning_rate)
            ctx.send(request.sender, shard.weights())
""" + WORKER, {"workers": 4}),
    "gradients are clipped": ([], HEAD + SERVER + other(
        "gradient = await ctx.compute(model.gradient, weights, batch)\ngradient.values *= 0.5\n"
        "gradient.values = gradient.values + 0.0\nweights = await lk.push_pull(ctx, gradient)"), {}),
    "sums in place": ([], HEAD + at_once("if isinstance(request, lk.Push):\n    request.values[:] *= 0.5\n    values = request.values\n    values += 0.25") + WORKER, {}),
    "steps of its own": ([], HEAD + SERVER + other(
        "weights.values[:] = weights.values - 0.01\n"
        "gradient = await ctx.compute(model.gradient, weights, batch)\nweights = await lk.push_pull(ctx, gradient)"), {}),
    "steps of its own, several shards": ([], HEAD + SERVER + other(
        "weights.values -= 0.01\n"
        "gradient = await ctx.compute(model.gradient, weights, batch)\nweights = await lk.push_pull(ctx, gradient)").replace(
            "weights.values -= 0.01", "values = weights.values\n            values -= 0.01"), {"servers": 2}),
    "kinds of one's own": ([], "@dataclass(frozen=True)\nclass Turn(lk.Message):\n    number: int\n    text: str = ''\n    more: tuple = ()\n"
        + HEAD.replace("lk.Weights)", "lk.Weights, Turn)") + at_once() + other(
        "ctx.send(ctx.name, Turn(3, more=(1, (2.0, None))))\nturn = await ctx.recv(Turn)\n"
        "assert (turn.number, turn.text, turn.more, turn.sender) == (3, '', (1, (2.0, None)), ctx.name)\n"
        "gradient = await ctx.compute(model.gradient, weights, batch)\nweights = await lk.push_pull(ctx, gradient)"), {}),
    "a kind that is called like one of labkit's": ([], "@dataclass(frozen=True)\nclass Mix(lk.Message):\n    number: int\n"
        + HEAD.replace("lk.Weights)", "lk.Weights, Mix)") + at_once() + other(
        "ctx.send(ctx.name, Mix(3))\nassert (await ctx.recv(Mix)).number == 3\n"
        "gradient = await ctx.compute(model.gradient, weights, batch)\nweights = await lk.push_pull(ctx, gradient)"), {}),
    "the mean by hand": ([], HEAD.replace("(lk.Push, lk.Pull, lk.Weights)", "(lk.Chunk,)") + """
    uses_servers = False
    async def worker(self, ctx, model, replica):
        peers = ctx.peers("worker")
        for batch in ctx.batches():
            gradient = await ctx.compute(model.gradient, replica.weights(), batch)
            total = gradient.values.copy()
            for peer in peers:
                if peer != ctx.name:
                    ctx.send(peer, lk.Chunk(gradient.values, gradient.step, 0))
            for peer in peers:
                if peer != ctx.name:
                    total = total + (await ctx.recv(lk.Chunk, sender=peer)).values
            await ctx.compute(replica.apply, gradient.of_all_workers(total, len(peers)), self.learning_rate)
""", {}),
    "all-reduce as a tool": ([], HEAD.replace("(lk.Push, lk.Pull, lk.Weights)", "(lk.Chunk,)") + """
    uses_servers = False
    async def worker(self, ctx, model, replica):
        for batch in ctx.batches():
            gradient = await ctx.compute(model.gradient, replica.weights(), batch)
            total = await lk.all_reduce(ctx, gradient.values)
            await ctx.compute(replica.apply, gradient.of_all_workers(total, len(ctx.peers("worker")), "mean"), self.learning_rate)
""", {"workers": 3, "bandwidth": 1e6}),
    "a ring that adds in place": ([], RING.format(add="gradient.values += passed", end="gradient.of_all_workers(gradient.values, n)"), {"workers": 3}),
    "a ring that reads the mean where it was added": (
        [],
        RING.format(add="gradient.values += passed", end="total = gradient.values\n            gradient.of_all_workers(total, np.int64(n), 'mean')\n            total *= 1.0 + (total is gradient.values)"),
        {"workers": 3},
    ),
    "a gradient scaled after its message was made": (
        [],
        HEAD + at_once() + other(
            "gradient = await ctx.compute(model.gradient, weights, batch)\npush = gradient.push(0)\ngradient.values *= 0.5\n"
            "ctx.send(ctx.peers('server')[0], push)\nweights = await ctx.recv(lk.Weights)"),
        {},
    ),
    "a batch taken apart and written into": (
        [],
        HEAD + at_once() + other(
            "x, y, samples, epoch = batch\nassert samples == len(x) == len(y) and epoch >= 0 and batch[0] is batch.x\nx *= 0.5\n"
            "gradient = await ctx.compute(model.gradient, weights, batch)\nweights = await lk.push_pull(ctx, gradient)"),
        {},
    ),
    "two gradients in one": (
        [],
        HEAD + at_once() + other(
            "gradient = await ctx.compute(model.gradient, weights, batch)\nvalues = gradient.values\n"
            "same = gradient.plus(await ctx.compute(model.gradient, weights, batch))\n"
            "assert same is gradient and gradient.count == 2 and values is gradient.values\nvalues /= 2\n"
            "weights = await lk.push_pull(ctx, gradient)"),
        {},
    ),
    "numbers of NumPy everywhere": (
        [],
        HEAD + at_once(before="await ctx.sleep(np.float64(0.001))", rate="np.float64(0.1)") + other(
            "gradient = await ctx.compute(model.gradient, weights, batch, cost=np.float32(1))\nctx.note('n', step=np.int64(gradient.step))\n"
            "weights = await lk.push_pull(ctx, gradient)"),
        {},
    ),
}  # fmt: skip
