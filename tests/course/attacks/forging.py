# ruff: noqa: E501  (a line of a submission stays a line)
"""False statements to the grader: forged messages, forged frames on the pipe, forged answers."""

from . import Attack, put

LINE = "line = ctx._grader\n"
# `raw` sends bytes, or a tree of lists and {type: content}: see `labkit/encoding.py`.
RAW = """
import os, struct
def pack(value):
    if isinstance(value, dict):
        ((key, content),) = value.items()
        return b"\\x81" + pack(key) + pack(content)
    if isinstance(value, str):
        return b"\\xdb" + struct.pack(">I", len(value)) + value.encode()
    if isinstance(value, float):
        return b"\\xcb" + struct.pack(">d", value)
    return b"\\xc0" if value is None else b"\\xd3" + struct.pack(">q", value)
def outline(tree):
    if isinstance(tree, dict):
        ((kind, parts),) = tree.items()
        if not isinstance(parts, list):
            return pack(tree)
        count = len(parts)
        if kind == "array":
            parts, count = [parts[0], *parts[1]], len(parts[1])
        if kind == "dict":
            parts = [part for pair in parts for part in pair]
            count = len(parts)
        return pack({kind: count}) + b"".join(map(outline, parts))
    return outline({"list": tree}) if isinstance(tree, list) else pack(tree)
def raw(ctx, tree, body=b""):
    text = tree if isinstance(tree, bytes) else outline(tree)
    data = struct.pack("<QQ", len(text), len(body)) + text + body
    while data:
        data = data[os.write(ctx._grader._writing, data):]
def effect(*what):
    return [["effect", *what], []]
"""
ENDED = "Ended:"
PUSH = "ctx.send('server-0', lk.Push(gradient.values, {step}, {generation}, {version}, {count}, {samples}))"


def pushed(step="gradient.step", generation="0", version="weights.version", count="1", samples="8"):
    said = PUSH.format(step=step, generation=generation, version=version, count=count, samples=samples)
    return put(after=said + "\nweights = await ctx.recv(lk.Weights)\ncontinue")


def framed(line, why=ENDED, name=""):
    return Attack(name or line[:60], put(top=RAW, worker=line, base="right"), why)


def refused(line, why="error|throw"):
    """A well-formed frame; the role raises an error with the grader's reply."""
    return Attack(
        line[:120], put(top=RAW, worker=line + "\nraise RuntimeError(repr(ctx._grader.receive()))", base="right"), why
    )


def answered(about, why, name):
    """Forges the answer to "what is X?": the grader's request is in a stack frame above the cell's."""
    top = f"""
import sys
frame = sys._getframe()
while not (type(frame.f_locals.get("self")).__name__ == "StudentProcess"):
    frame = frame.f_back
child = frame.f_locals["self"]
about = dict(options={{}}, messages=["Push", "Pull", "Weights"], own={{}}, uses_servers=True, roles=["server", "worker"])
about.update({about})
type(child)._describe = lambda self, name: about
"""
    return Attack(name, put(top=top), why)


ATTACKS = (
    Attack("push: a step to come", pushed(step="gradient.step + 5"), "not all were computed here"),
    Attack("push: a step without end", pushed(step="2**62"), ENDED),
    Attack("push: beyond 64 bits", pushed(step="10**400"), ENDED),
    Attack("push: a step before the first", pushed(step="-1"), ENDED),
    Attack("push: an array for a step", pushed(step="np.arange(3)"), "whole number"),
    Attack("push: nan for a step", pushed(step="float('nan')"), "whole number"),
    Attack("push: fresher than it is", pushed(version="weights.version + 7"), "another version"),
    Attack("push: an older version", pushed(version="weights.version - 1"), "another version"),
    Attack("push: another generation", pushed(generation="3"), "another version"),
    Attack("push: many in one", pushed(count="10**9"), "Push.count"),
    Attack("push: none", pushed(count="0"), "Push.count"),
    Attack("push: twice", put(after="ctx.send('server-0', gradient.push(0))")),
    Attack("push: out of nothing", put(worker="ctx.send('server-0', lk.Push(np.zeros(32), 0, 0, 0))"), "Push.count"),
    Attack(
        "push: another shape", put(after="gradient = gradient.of_all_workers(np.zeros((3, 3)), 1)"), "does not fit|fit"
    ),
    Attack(
        "push: complex",
        put(after="gradient = gradient.of_all_workers(np.zeros(32) + 1j, 1)"),
        "numbers are complex|fit",
    ),
    Attack("push: not a number", put(after="gradient = gradient.of_all_workers(np.full(32, np.nan), 1)"), ""),
    Attack("of all workers: a word", put(after="gradient.of_all_workers(np.zeros(32), 'x')"), "workers is x"),
    Attack(
        "of all workers: more than there are", put(after="gradient.of_all_workers(np.zeros(32), 10**30)"), "workers is"
    ),
    Attack(
        "weights from a worker",
        put(worker="ctx.send('server-0', lk.Weights(np.zeros(32), 0, 0, 99))"),
        "whose newest are",
    ),
    Attack(
        "computed on forged weights", put(worker="weights = lk.Weights(np.zeros(32), 0, 0, 99)"), "whose newest are"
    ),
    Attack(
        "weights for another worker",
        put(server="ctx.send('worker-1', lk.Weights(shard.values, 0, 0, 77))"),
        "whose newest are",
    ),
    Attack(
        "weights with an older version",
        put().replace("shard.weights())", "lk.Weights(shard.values, 0, 0, max(shard.version - 1, 0)))"),
        "whose newest are",
    ),
    Attack(
        "the newest weights written into older ones",
        put(body="    KEPT: tuple = ()\n")
        .replace("async for request", "old = shard.weights()\n        async for request")
        .replace(
            "ctx.send(request.sender, shard.weights())",
            "old.values[:] = shard.values\n            ctx.send(request.sender, old)",
        ),
        "read-only",
    ),
    Attack(
        "weights of another size",
        put(
            server="shard.weights().values.resize(3)\nw = shard.weights()\nw.__dict__['values'] = np.zeros(3)\n"
            "ctx.send(request.sender, w)"
        ),
        "does not fit|resize",
    ),
    Attack("a message to the chief", put(worker="ctx.send('chief', lk.Pull())"), ""),
    Attack("a message to an unknown role", put(worker="ctx.send('judge', lk.Pull())"), "no such role"),
    Attack("a kind that is not listed", put(worker="ctx.send('server-0', lk.Ack(0))"), "does not list|not available"),
    Attack(
        "the chief's kinds",
        put(worker="ctx.send('server-0', lk.Snapshot(np.zeros(32), 0, 999, 0, True))"),
        "not available",
    ),
    Attack(
        "a kind named as the chief's",
        "@dataclass(frozen=True)\nclass Snapshot(lk.Message):\n    values: object\n    shard: int\n    version: int\n    samples: int\n"
        "    final: bool = True\n"
        + put(worker="ctx.send('chief', Snapshot(np.zeros(32), 0, 40, 0))").replace(
            "lk.Weights)", "lk.Weights, Snapshot)", 1
        ),
        "",
    ),
    Attack(
        "a sender of its own choice",
        "@dataclass(frozen=True)\nclass Told(lk.Message):\n    sender: str\n"
        + put().replace("lk.Weights)", "lk.Weights, Told)", 1),
        "not allowed|not defined|cannot be used|TypeError|is malformed",
    ),
    Attack(
        "a sender written over",
        put(after="p = gradient.push(0)\np.__dict__['sender'] = 'worker-1'\nctx.send('server-0', p)"),
        "",
    ),
    Attack("gradients in no time", put(worker="gradient = model.gradient(weights, batch)"), "A gradient takes time"),
    Attack(
        "cheap gradients", put(worker="g = await ctx.compute(model.gradient, weights, batch, cost=1e-6)"), "cost=1e-06"
    ),
    Attack("time backwards", put(worker="await ctx.compute(len, (), cost=-1.0)"), "cost=-1"),
    Attack("time without end", put(worker="await ctx.sleep(1e300)"), "ctx.sleep"),
    Attack("no time", put(worker="await ctx.sleep(float('nan'))"), "ctx.sleep"),
    Attack(
        "many gradients at once",
        put(worker="await ctx.compute(lambda: [model.gradient(weights, batch) for _ in '12'])"),
        "takes time",
    ),
    Attack(
        "a batch of its own",
        "@dataclass(frozen=True)\nclass B(lk.Message):\n    x: object\n    y: object\n    samples: int\n"
        + put(worker="batch = B(np.zeros((9, 2)), np.zeros(9, int), 9)").replace("lk.Weights)", "lk.Weights, B)", 1),
        "the batch is one of",
    ),
    # forged frames
    framed("raw(ctx, [['done', 1], []])", "", "done, before it is"),
    framed("raw(ctx, [['done'], []])"),
    framed("raw(ctx, [['effect'], []])"),
    framed("raw(ctx, [['raise'], []])"),
    framed("raw(ctx, [[], []])"),
    framed("raw(ctx, [['resume', 1], []])", "of the wrong kind"),
    framed("raw(ctx, 'x')"),
    framed("raw(ctx, b'no outline')"),
    framed("raw(ctx, b'')"),
    framed("raw(ctx, b'\\x00\\xff\\xfe')"),
    refused("raw(ctx, [['request'], []])"),
    refused("raw(ctx, [['request', 'chief'], []])"),
    refused("raw(ctx, [['request', '__class__'], []])"),
    refused("raw(ctx, [['request', ['get']], []])"),
    framed("raw(ctx, [['request', 'get', {'ref': ['object', 999999]}, 'values'], []])"),
    framed("raw(ctx, [['request', 'get', {'ref': ['object', [1]]}, 'values'], []])"),
    refused("raw(ctx, [['request', 'get', {'ref': ['object', 1]}, 'objective'], []])"),
    refused("raw(ctx, [['request', 'get', {'ref': ['context']}, '_engine'], []])"),
    framed("raw(ctx, [['request', 'call', {'ref': ['context']}, 'stop', {'vector': []}, {'dict': []}], []])"),
    framed("raw(ctx, [['request', 'call', {'ref': ['method', 1, 'cancelled']}, 'x', [], {'dict': []}], []])"),
    refused("raw(ctx, [['request', 'send', 'server-0', {'ref': ['object', 1]}], []])"),
    refused("raw(ctx, [['request', 'note', 'x', {'dict': [['text', 1]]}], []])"),
    refused("raw(ctx, [['request', 'note', 'x', {'dict': [['y', {'int': '9' * 4000}]]}], []])"),
    refused("raw(ctx, [['request', 'save', 5], []])"),
    refused("raw(ctx, [['request', 'save', {'dict': [['a', {'ref': ['object', 1]}]]}], []])", "answer"),
    refused("raw(ctx, [['request', 'batch', 1, 2], []])"),
    framed("raw(ctx, [['request', 'now'], [[1]]])"),
    framed("raw(ctx, [['request', 'now'], 'abc'])"),
    refused("raw(ctx, effect('recv', [], None, None))"),
    refused("raw(ctx, effect('recv', [1, 2], None, None))"),
    refused("raw(ctx, effect('recv', [{'ref': ['kind', 'Weights']}], 'soon', None))"),
    refused("raw(ctx, effect('recv', [{'ref': ['kind', 'Weights']}], float('inf'), None))"),
    refused("raw(ctx, effect('recv', [{'ref': ['kind', 'Weights']}], 0, [1]))"),
    framed("raw(ctx, effect('recv', [{'ref': ['kind', 'Snapshot']}], 0, None))"),
    refused("raw(ctx, effect('sleep', {'int': '9' * 4000}))"),
    refused("raw(ctx, effect('sleep', None))"),
    refused("raw(ctx, effect('sleep'))"),
    refused("raw(ctx, effect('compute', 'os.system', ['ls'], 1.0, None))"),
    refused("raw(ctx, effect('compute', {'ref': ['kind', 'Push']}, [], 1.0, None))"),
    framed("raw(ctx, effect('compute', {'ref': ['method', 1, '__init__']}, [], 1.0, None))"),
    refused("raw(ctx, effect('compute', {'ref': ['method', 1, 'gradient']}, [1, 2], 1.0, None))"),
    refused("raw(ctx, effect('compute', {'ref': ['method', 1, 'gradient']}, 7, 1.0, None))"),
    refused("raw(ctx, effect('compute', None, [], 1.0, 'Push'))"),
    refused("raw(ctx, effect('call', 'open', ['/etc/passwd'], {'dict': []}))"),
    refused("raw(ctx, effect('call', 'all_reduce', [{'ref': ['context']}], {'dict': []}))"),
    refused("raw(ctx, effect('call', 'pull', [1], {'dict': []}))"),
    refused("raw(ctx, effect('call', ['pull'], [1], {'dict': []}))"),
    refused("raw(ctx, effect('foreign'))"),
    refused("raw(ctx, effect('foreign', 'x' * 10**6))"),
    framed("raw(ctx, pack({'list': 1}) * 60_000)", ENDED, "deep nesting"),
    framed("raw(ctx, pack({'list': 1}) * 60 + pack(1))", ENDED, "nesting"),
    framed("raw(ctx, b'\\xdd\\x00\\x0f\\xff\\xff' * 200_000)", ENDED, "lists that msgpack would allocate"),
    framed("raw(ctx, b'\\x81\\xa1a' * 300_000)", ENDED, "nested tables of msgpack"),
    framed("raw(ctx, [{'tuple': 2**62}, []])", ENDED, "a tuple without end"),
    framed("os.write(ctx._grader._writing, struct.pack('<QQ', 2**63, 2**63))", ENDED, "a frame without end"),
    framed("os.write(ctx._grader._writing, struct.pack('<QQ', 60 << 20, 0))", ENDED, "60 MB of outline"),
    framed("raw(ctx, [['effect', {'array': ['|O', [1]]}], []], b'12345678')", ENDED, "objects"),
    framed("raw(ctx, [['effect', {'array': ['V8', [1]]}], []], b'12345678')", ENDED, "records"),
    framed("raw(ctx, [['effect', {'array': ['f8,f8', [1]]}], []], b'1' * 16)", ENDED, "more records"),
    framed("raw(ctx, [['effect', {'array': ['<f8', [2**62, 2**62]]}], []], b'12345678')", ENDED, "a giant shape"),
    framed("raw(ctx, [['effect', {'array': ['<f8', [-1]]}], []], b'12345678')", ENDED, "a negative shape"),
    framed("raw(ctx, [['effect', {'array': ['<f8', [0, 2**62]]}], []])", ENDED, "an empty giant"),
    refused("raw(ctx, [['request', {'array': ['<f8', [1]]}], []], b'12345678')"),
    refused("raw(ctx, [['request', 'peers', float('nan')], []])", "answer"),
    framed("raw(ctx, [['request', 'now', {'ref': ['message', 'Chunk', 5]}], []])"),
    framed("raw(ctx, [['request', 'now', {'ref': ['message', 'Push', {'dict': [['__class__', 1]]}]}], []])"),
    framed("raw(ctx, [['request', 'now', {'ref': ['os', 'system']}], []])"),
    framed("os.close(ctx._grader._writing)", ENDED, "hanging up"),
    framed("os.close(ctx._grader._reading)", "", "deaf"),
    framed("os.dup2(ctx._grader._reading, ctx._grader._writing)", "not permitted", "ends swapped"),
    framed("ctx._grader.read = lambda n: b''", "", "an empty line"),
    framed(
        "yield_ = type('E', (), {'__await__': lambda s: iter([('compute', 'os.system')])})()\nawait yield_",
        "",
        "an effect by hand",
    ),
    # forged answers to "what is X?"
    answered(
        "roles=['chief', 'layout', 'snapshots', '__init__', '__post_init__', 'describe']", "", "roles of the grader's"
    ),
    answered("roles=['chief']", "", "it plays the chief"),
    answered("options={'layout': 'x'}", "cannot be called 'layout'", "an option named layout"),
    answered("options={'messages': 'x'}", "cannot be called", "an option named messages"),
    answered("options={'__class__': 1}", "cannot be called", "an option named __class__"),
    answered("options={'chief': 1}", "cannot be called", "an option named chief"),
    answered("options={'worker': 1}", "cannot be called", "an option named worker"),
    answered("options={'class': 1}", "cannot be called", "an option that is a keyword"),
    answered("options={'a=1): import os #': 1}", "cannot be called", "an option that is a program"),
    answered("options={'self': 1}", "cannot be called", "an option named self"),
    answered("options={1: 1}", "cannot be called", "an option that is a number"),
    answered("options={'big': 'x' * 3_000_000}", "", "a huge option"),
    answered("options={'eval_every': -1}", "eval_every", "an option out of bounds"),
    answered("options={'optimizer': 'rm -rf'}", "optimizer", "another optimizer"),
    answered("options=[]", "is malformed", "options that are a list"),
    answered("messages=['SnapshotRequest', 'Snapshot']", "", "the chief's messages"),
    answered("messages=[[1]]", "is malformed", "messages that are lists"),
    answered("messages=None", "is malformed", "no messages"),
    answered("own={'SnapshotRequest': ['at', 'final']}", "", "a kind called SnapshotRequest"),
    answered("own={'Push': ['values']}", "", "another Push"),
    answered("own={'A': ['sender', 'incarnation']}", "not allowed", "a kind with a sender"),
    answered("own={'A': ['__eq__', '__class__']}", "not allowed", "a kind with methods"),
    answered("own={'A': ['x=__import__(\"os\")']}", "not allowed", "a kind that is a program"),
    answered("own={'class': []}", "not allowed", "a kind that is a keyword"),
    answered("own={'A\\x00': []}", "not allowed", "a kind with a null byte"),
    answered("own=7", "is malformed", "kinds that are a number"),
    answered("uses_servers='no'", "", "a word for a truth"),
)
