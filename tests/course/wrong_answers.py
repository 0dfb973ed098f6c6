# ruff: noqa: E501  (a row stays a line)
"""Typical wrong answers to the assignments: the points that each loses, and what the hint says about it.

A row of `WRONG` is (the misunderstanding, solution cell, replacements in the reference notebook's answer, lost points (or those
possible in the variants), a regular expression for the hint) and, if the answer is this mistake in some variants only, the values of these variants. Each answer has one
misunderstanding. `wrong_in(name, values)` are the rows for a variant.
"""

PULL = "ctx.send(request.sender, shard.weights())\n                continue"
EACH_A_STEP = (
    (' == V["each"] * workers', " == 1"),
    ('for worker in ctx.peers("worker"):', "for worker in [request.sender]:"),
)
SUM = (('"sum" if V["reduce"] == "sum" else "mean"', '"sum"'),)
BEFORE_THE_STEP = (
    ("pushes.append(request)", "pushes.append(request)\n            ctx.send(request.sender, shard.weights())"),
    ('                for worker in ctx.peers("worker"):\n                    ctx.send(worker, shard.weights())\n', ""),
)
UNFUSED = (
    ("    learning_rate", "    messages = (lk.Push, lk.Pull, lk.Weights, lk.Ack)\n    learning_rate"),
    ("ctx.send(request.sender, shard.weights())",
     "ctx.send(request.sender, lk.Ack(request.step) if isinstance(request, lk.Push) else shard.weights())"),
    ("weights = await lk.push_pull(ctx, gradient)", "await lk.push(ctx, gradient)\n            weights = await lk.pull(ctx)"),
)  # fmt: skip
WAITS_FOR_ALL = (
    ('workers = len(ctx.peers("worker"))', 'workers, waiting = len(ctx.peers("worker")), []'),
    ("ctx.send(request.sender, shard.weights())",
     "waiting.append(request.sender)\n            if len(waiting) == workers:\n                for each in waiting:\n"
     "                    ctx.send(each, shard.weights())\n                waiting = []"),
)  # fmt: skip
REPLY_FIRST = (
    (
        "            if isinstance(request, lk.Push):\n",
        "            ctx.send(request.sender, shard.weights())\n            if isinstance(request, lk.Push):\n",
    ),
    ("            ctx.send(request.sender, shard.weights())\n        ###", "        ###"),
)
NO_GATE = (
    ("next((r for r in waiting if may_proceed(r.sender, clocks, self.s)), None)", "waiting[0] if waiting else None"),
)
UNCHUNKED = (
    ("range(2 * (n - 1))", "range(n - 1)"),
    ("part = (rank - side * turn) % n", "part, passed = 0, np.array(gradient.values) if turn == 0 else came.values"),
    ("lk.Chunk(total[slice(*cut[part])], turn, part)", "lk.Chunk(passed, turn, part)"),
    ("if turn < n - 1:", "if True:"),
    ("total[slice(*cut[came.part])] += came.values", "total += came.values"),
)
IN_A_ROW = 'sum([[("forward", i), ("backward", i)] for i in range(micro_batches)], [])'
RETURN = "return [(size * i // n, size * (i + 1) // n) for i in range(n)]"
BUBBLE = """return (stages - 1) * {
        "share": 1 / (micro_batches + stages - 1),
        "ratio": 1 / micro_batches,
        "seconds": tf + tb,
    }[V["bubble"]]"""
HELD = """now = most = 0
    for word, _ in work:
        now += 1 if word == "forward" else -1
        most = max(most, now)
    return most"""
FACTOR = """factor = {
                    "constant": 1.0,
                    "inverse": 1 / (1 + staleness),
                    "halved": 0.5 ** (u // 10),
                    "root": (1 + u) ** -0.5,
                }[V["rate"]]"""
STALENESS = """read, found = {}, []
    for version, worker in enumerate(order):
        found.append(version - read.get(worker, 0))
        read[worker] = version + 1
    return found"""
MEAN = "return workers - 1 if fused else (workers - 1) / 2"
SEEN = 'return max(0, i - s - (V["gate"] == "apply"))'
MAY = 'return clocks[worker] - sorted(clocks.values())[V["behind"] == "second"] <= s'
TIMES = "return max(sum(each) for each in times)"
WAITING = "return 1 - sum(sum(each) for each in times) / (len(times) * max(sum(each) for each in times))"
FORWARD = 'return x @ (w if V["layout"] == "inputs first" else w.T) + b'
BACKWARD = """if V["layout"] == "inputs first":
        return dy @ w.T, x.T @ dy, dy.sum(0)
    return dy @ w, dy.T @ x, dy.sum(0)"""
LOSS = '(losses.mean(), d / len(labels)) if V["reduce"] == "mean" else (losses.sum(), d)'
SLOPE = (
    'return dy * {"tanh": 1 - a**2, "relu": a > 0, "sigmoid": a * (1 - a), "softplus": 1 - np.exp(-a)}[V["activation"]]'
)
SLOPES_OF_Z = '{"tanh": 1 - np.tanh(z) ** 2, "sigmoid": _s * (1 - _s), "softplus": _s, "relu": z > 0}[V["activation"]]'
LOGS = "np.log(total[:, 0]) - shifted[rows, labels]"
SHIFTED = "shifted = logits - logits.max(1, keepdims=True)"
FIRST = "activation_backward(a, da)"
AHEAD = """{"1f1b": stages - 1 - stage, "gpipe": micro_batches, "eager": 2 * (stages - 1 - stage)}[V["schedule"]]"""

OF_ALL = 'V["reduce"] == "mean" else gradients\n    return sum(parts) / sum(samples)'
ASKED = 'return {"step": exchanged, "waiting": waiting, "hidden": sum(exchange) - waiting}[V["asked"]]'
HIDDEN = 'hidden = {"tanh": np.tanh(z), "relu": np.maximum(z, 0), "softplus": np.logaddexp(0, z)}[V["activation"]]'
AT_HIDDEN = 'slope = {"tanh": 1 - hidden**2, "relu": hidden > 0, "softplus": 1 - np.exp(-hidden)}[V["activation"]]'
OTHER = '[{"tanh": "softplus", "relu": "tanh", "softplus": "relu"}[V["activation"]]]'
ROW = 'hidden.reshape(len(x), len(p["output.weight"]))'
BY_CHANNEL = (
    (f"return hidden, {ROW} @", "return hidden, hidden.swapaxes(1, 2).reshape(len(x), -1) @"),
    (f"{ROW}.T @ d", "hidden.swapaxes(1, 2).reshape(len(x), -1).T @ d"),
    (".reshape(hidden.shape) *", ".reshape(hidden.swapaxes(1, 2).shape).swapaxes(1, 2) *"),
)


def instead(old, new):
    """One replacement."""
    return ((old, new),)


def forward(new):
    """`y`, in terms of `w` of shape (inputs, outputs)."""
    return instead(FORWARD, f'w = w if V["layout"] == "inputs first" else w.T\n    return {new}')


def backward(dx="dy @ w.T", dw="x.T @ dy", db="dy.sum(0)", order="dx, dw, db"):
    """The gradients, in terms of `w` of shape (inputs, outputs)."""
    turned = 'as_given = np.asarray if V["layout"] == "inputs first" else np.transpose\n    w = as_given(w)'
    return instead(BACKWARD, f"{turned}\n    dx, dw, db = {dx}, as_given({dw}), {db}\n    return {order}")


def slope(new):
    """`dz`, where `slope_at(z)` is the derivative of the activation as a function of its input."""
    at = f"def slope_at(z):\n        _s = 1 / (1 + np.exp(-z))\n        return {SLOPES_OF_Z}"
    return instead(SLOPE, f"{at}\n    return {new}")


def shares(new):
    """`waiting`, in terms of the seconds `s` of each worker."""
    return instead(WAITING, f"s = [sum(each) for each in times]\n    return {new}")


def unfused(new):
    return instead(MEAN, f"return workers - 1 if fused else {new}")


def bubble(slots="stages - 1", share="micro_batches + stages - 1", ratio="micro_batches"):
    """The bubble of these idle slots, and of these slots in all and for computing."""
    return instead(
        BUBBLE,
        f'return ({slots}) * {{"share": 1 / ({share}), "ratio": 1 / ({ratio}), "seconds": tf + tb}}[V["bubble"]]',
    )


def combined(new):
    """The gradient of all samples, in terms of `each` (means), `added` (sums over a worker's samples) and `given` (as they are)."""
    lines = """each = [g if V["reduce"] == "mean" else g / n for n, g in zip(samples, gradients)]
    added = [n * g for n, g in zip(samples, each)]
    given, workers = gradients, len(samples)
    return """
    return instead("return sum(parts) / sum(samples)", lines + new)


def seconds_of(step):
    """What was asked for, if a step ends after `step` seconds."""
    return instead("waiting = exchanged - computed", f"exchanged = {step}\n    waiting = exchanged - computed")


MEANS, F1B, SHARE, REPLY = {"reduce": "mean"}, {"schedule": "1f1b"}, {"bubble": "share"}, {"gate": "reply"}


WRONG = {
    "01": [
        ("no bias", "q1", instead(" else w.T) + b", " else w.T)"), 1, "bias is missing"),
        ("weights transposed", "q1", forward("x @ w.T + b"), 1, "transposed"),
        ("product of elements", "q1", forward("(x * w).sum(0) + b"), 1, "product of matrices"),
        ("samples in columns", "q1", forward("np.dot(w.T, x.T) + b.reshape(-1, 1)"), 1, "one row per sample"),
        ("bias of every sample", "q1", backward(db="dy"), 2, "sum over the samples"),
        ("mean over the samples", "q1", backward(dw="x.T @ dy / len(x)", db="dy.mean(0)"), 2, "do not divide by the number of samples"),
        ("bias: a mean", "q1", backward(db="dy.mean(0)"), 2, "it is a sum and no mean"),
        ("bias: sum over the outputs", "q1", backward(db="dy.sum(1)"), 2, "sum over the outputs"),
        ("bias: sum over all", "q1", backward(db="dy.sum()"), 2, "sum over everything"),
        ("dw transposed", "q1", backward(dw="dy.T @ x"), 2, "shape of w"),
        ("another order", "q1", backward(order="dw, dx, db"), 4, "the order is dx, dw, db"),
        ("weights not transposed on the way back", "q1", backward(dx="dy @ w"), 4, "transpose"),
        ("another activation", "q2", instead('np.logaddexp(0, z),\n    }[V["activation"]]', 'np.logaddexp(0, z),\n    }["tanh" if V["activation"] == "relu" else "relu"]'), 3, "that is the (relu|tanh)"),
        ("slope without its square", "q2", instead(SLOPE, "return dy * (1 - a)"), 2, "not complete"),
        ("no chain rule", "q2", instead(SLOPE, SLOPE.replace("dy * ", "1 * ")), 2, "multiply the derivative by dy"),
        ("slope at the output", "q2", slope("dy * slope_at(a)"), 2, "a is the output already", {"activation": ("tanh", "sigmoid", "softplus")}),
        ("dy through the activation", "q2", instead(SLOPE, "return dy * activation(a)"), 2, "a is the output already|not times its derivative"),
        ("dy times the output", "q2", instead(SLOPE, "return dy * a"), 2, "not times its derivative"),
        ("slope at dy", "q2", slope("dy * slope_at(dy)"), 2, "derivative of the activation, as a formula in a"),
        ("sum for mean", "q3", instead(LOSS, LOSS.replace("==", "!=")), 2, "that is the (sum|mean) over the samples"),
        ("base 10", "q3", instead(LOGS, f"({LOGS}) / np.log(10)"), 4, "not that with base 10"),
        ("base 2", "q3", instead(LOGS, f"({LOGS}) / np.log(2)"), 4, "not that with base 2"),
        ("no minus", "q3", instead(LOGS, f"-({LOGS})"), 4, "sign is wrong"),
        ("probability for its logarithm", "q3", instead(LOGS, f"np.exp(-({LOGS}))"), 5, "not -log p"),
        ("over the samples", "q3", instead("sum(1, keepdims=True)", "sum(0, keepdims=True)") + instead("np.log(total[:, 0])", "np.log(total[0, labels])"), 4, "not over the samples"),
        ("largest logit of a class", "q3", instead(SHIFTED, SHIFTED.replace("1, keepdims=True", "0")), 4, r"each sample \(a row\), not of each class"),
        ("shifted in one place", "q3", instead("- shifted[rows, labels]", "- logits[rows, labels]"), 5, "subtract the largest logit everywhere"),
        ("divided by the classes, too", "q3", instead(LOSS, LOSS.replace(", d", " / logits.shape[1], d")), 4, "number of classes"),
        ("batch size forgotten in the gradient", "q3", instead("d / len(labels)", "d"), 2, "number of samples is missing", MEANS),
        ("batch size once too often", "q3", instead(f"return {LOSS}", f"d = d / len(labels)\n    return {LOSS}"), 2, "once too often"),
        ("gradient upside down", "q3", instead(f"return {LOSS}", f"d = -d\n    return {LOSS}"), 2, "sign is wrong"),
        ("no 1 at the label", "q3", instead("d[rows, labels] -= 1", "pass"), 3, "subtract 1 at the label"),
        ("1 from every class", "q3", instead("d[rows, labels] -= 1", "d -= 1"), 3, "not from every class"),
        ("1 from the labels of all", "q3", instead("d[rows, labels] -= 1", "d[:, labels] -= 1"), 3, "own row of each label"),
        ("exp of a thousand", "q3", instead(SHIFTED, "shifted = logits"), 1, "overflows"),
        ("small probabilities cut off", "q3", instead("d[rows, labels] -= 1", "d = np.clip(d, 1e-15, 1)\n    d[rows, labels] -= 1"), 2, "do not cut off"),
        ("no activation", "q4", instead("a = activation(z)", "a = z"), 4, "activation is missing"),
        ("activation not differentiated", "q4", instead(FIRST, "da"), 4, "through the activation"),
        ("differentiated at its input", "q4", instead(FIRST, "activation_backward(z, da)"), 4, "formula in its output a", {"activation": ("tanh", "sigmoid", "softplus")}),
        ("second layer's input before the activation", "q4", instead("dense_backward(a, w2, dlogits)", "dense_backward(z, w2, dlogits)"), 4, "output of the activation"),
        ("another order of gradients", "q4", instead("[dw1, db1, dw2, db2]\n    ###", "[dw2, db2, dw1, db1]\n    ###"), 4, "order is that of the parameters"),
        ("divided by the samples again", "q4", instead("loss, dlogits = cross_entropy(dense_forward(a, w2, b2), labels)", "loss, dlogits = cross_entropy(dense_forward(a, w2, b2), labels)\n    dlogits = dlogits / len(x)"), 4, "number of samples is in dlogits"),
        ("weights of the loss only", "q4", instead(f"_, dw1, db1 = dense_backward(x, w1, {FIRST})", "dw1, db1 = np.zeros_like(w1), np.zeros_like(b1)"), 4, "go back through the activation"),
    ],
    "02": [
        ("sum for mean", "q1", SUM, 3, "that is the step with the sum", MEANS),
        ("each gradient a step", "q1", EACH_A_STEP, 7, "separate step"),
        ("rate over N", "q1", instead("rate *= math", "rate /= workers\n                rate *= math"), 3, "divided by the number of workers|with the mean"),
        ("rate times N", "q1", instead("rate *= math", "rate *= workers\n                rate *= math"), 3, "sum of the gradients|multiplied by the number of workers"),
        ("sqrt(N)", "q1", instead('math.sqrt(workers) if V["reduce"] == "root" else 1', "math.sqrt(workers)"), 3, r"sqrt\(N\)", MEANS),
        ("weights before the step", "q1", BEFORE_THE_STEP, 7, "before all gradients have arrived"),
        ("pulls not answered", "q1", instead(PULL, "continue"), 10, "is every pull answered"),
        ("gradients kept", "q1", instead("                pushes = []\n", ""), 10, "begin with no gradients"),
        ("one worker gets the weights", "q1", instead('for worker in ctx.peers("worker"):', "for worker in [request.sender]:"), 10, "do all workers get the new weights"),
        ("four workers", "q1", instead('workers = [], len(ctx.peers("worker"))', "workers = [], 4"), 10, "updates with 1 worker|workers.*deadlock"),
        ("one gradient fewer", "q1", instead('== V["each"] * workers', '== V["each"] * workers - 1'), 9, "before all gradients have arrived|before the last gradient", {"each": (1,)}),
        ("weights not awaited", "q1", instead("weights = await lk.push_pull(ctx, gradient)", "lk.post(ctx, gradient)"), 7, "before all gradients have arrived|how many gradients"),
        ("mean for the slowest", "q2", instead(TIMES, "return sum(map(sum, times)) / len(times)"), 2, "mean of the workers"),
        ("sum of all", "q2", instead(TIMES, "return sum(map(sum, times))"), 2, "not as long as all together"),
        ("the fastest", "q2", instead(TIMES, "return min(map(sum, times))"), 2, "not its fastest"),
        ("longest gradient", "q2", instead(TIMES, "return max(map(max, times))"), 2, "one after the other"),
        ("mean gradient", "q2", instead(TIMES, "return sum(map(sum, times)) / sum(map(len, times))"), 2, "one after the other"),
        ("share of computing", "q2", shares("sum(s) / len(s) / max(s)"), 2, "share of computing"),
        ("of one worker", "q2", shares("sum(max(s) - t for t in s) / max(s)"), 2, "not of one"),
        ("of the time of computing", "q2", shares("sum(max(s) - t for t in s) / sum(s)"), 2, "not to the time that they compute"),
        ("in seconds", "q2", shares("sum(max(s) - t for t in s)"), 2, "in seconds"),
        ("a percentage", "q2", shares("100 * (1 - sum(s) / len(s) / max(s))"), 2, "percentage"),
    ],
    "03": [
        ("not one operation", "q1", UNFUSED, 3, "one operation"),
        ("waits for all", "q1", WAITS_FOR_ALL, 8, "answered at once"),
        ("rate over N", "q1", instead("learning_rate * factor", "learning_rate * factor / workers"), 3, "divided by the number of workers"),
        ("rate times N", "q1", instead("learning_rate * factor", "learning_rate * factor * workers"), 3, "multiplied by the number of workers"),
        ("rate by staleness", "q1", instead(FACTOR, "factor = 1 / (1 + staleness)"), 3, r"as 1 / \(1 \+ staleness\)", {"rate": ("constant", "halved", "root")}),
        ("rate over staleness", "q1", instead(FACTOR, "factor = 1 / max(staleness, 1)"), 3, "divided by the staleness"),
        ("rate decreases", "q1", instead(FACTOR, "factor = (1 + u) ** -0.5"), 3, r"decreases with sqrt\(1 \+ u\)", {"rate": ("constant", "inverse", "halved")}),
        ("rate the same", "q1", instead(FACTOR, "factor = 1"), 3, "rate does not change", {"rate": ("inverse", "halved", "root")}),
        ("late ones dropped", "q1", instead('V["late"] == "dropped" and', ""), 2, "are they dropped|no gradient is dropped", {"late": "applied"}),
        ("late ones applied", "q1", instead('V["late"] == "dropped"', "False"), 2, "must be dropped", {"late": "dropped"}),
        ("weights for all", "q1", instead("            ctx.send(request.sender, shard.weights())\n        ###", '            for each in ctx.peers("worker") if isinstance(request, lk.Push) else [request.sender]:\n                ctx.send(each, shard.weights())\n        ###'), 6, "only to the worker that sent it", {"late": "applied"}),
        ("reply before the update", "q1", REPLY_FIRST, 6, "contain the update by this push"),
        ("pushes not answered", "q1", instead("            ctx.send(request.sender, shard.weights())\n        ###", "            else:\n                ctx.send(request.sender, shard.weights())\n        ###"), 9, "push answered"),
        ("own application counted after the first", "q2", instead("read[worker] = version + 1", "read[worker] = version"), 3, "own application"),
        ("own application counted", "q2", instead("version - read.get(worker, 0)", "version + 1 - read.get(worker, 0)"), 3, "own application"),
        ("read once", "q2", instead("        read[worker] = version + 1\n", ""), 3, "reads again after its own push"),
        ("read after a round", "q2", instead(STALENESS, "n = len(set(order))\n    return [i % n for i in range(len(order))]"), 3, "not after a round"),
        ("always N - 1", "q2", instead(STALENESS, "return [len(set(order)) - 1] * len(order)"), 3, "the first gradient is fresh"),
        ("first is always fresh", "q2", instead("read.get(worker, 0)", "read.get(worker, version)"), 3, "before the first update"),
        ("other workers counted", "q2", instead(STALENESS, "found = []\n    for i, worker in enumerate(order):\n        j = max((k for k in range(i) if order[k] == worker), default=-1)\n        found.append(len(set(order[j + 1 : i])))\n    return found"), 2, "each update counts"),
        ("N", "q3", instead(MEAN, MEAN.replace("workers - 1 if", "workers if")), 1, "own application"),
        ("never fused", "q3", instead(MEAN, "return (workers - 1) / 2"), 1, "mean without fusion"),
        ("always fused", "q3", instead(MEAN, "return workers - 1"), 1, "with fusion"),
        ("N / 2", "q3", unfused("workers / 2"), 1, "own application|not N / 2"),
        ("whole numbers", "q3", unfused("(workers - 1) // 2"), 1, "need not be a whole number"),
        ("sum", "q3", unfused("workers * (workers - 1) / 2"), 1, "not the mean"),
    ],
    "04": [
        ("s not allowed", "q1", instead("<= s", "< s"), 2, "s itself is allowed"),
        ("one more", "q1", instead("<= s", "<= s + 1"), (3, 2), r"s \+ 1 is too much"),
        ("the other way round", "q1", instead("<= s", "> s"), 3, "which way round"),
        ("a distance", "q1", instead(MAY, "return abs(clocks[worker] - max(clocks.values())) <= s"), (3, 2), "which clock is compared"),
        ("the fastest", "q1", instead(MAY, "return clocks[worker] - max(clocks.values()) <= s"), (3, 2), "which clock"),
        ("another worker", "q1", instead('== "second"', '!= "second"'), 1, "which worker's clock is compared"),
        ("the mean", "q1", instead(MAY, "return clocks[worker] - sum(clocks.values()) / len(clocks) <= s"), (3, 2), "ahead of the \\*\\*(second )?slowest"),
        ("one less than s", "q2", instead("clocks, self.s)", "clocks, self.s - 1)"), 3, "too few"),
        ("one more than s", "q2", instead("clocks, self.s)", "clocks, self.s + 1)"), 3, "too many"),
        ("only the one who asks", "q2", instead("next((r for r in waiting if", "next((r for r in waiting if r is request and"), 8, "ask the gate for all that wait"),
        ("no gate", "q2", NO_GATE, 3, "is the gate asked"),
        ("a barrier", "q2", instead("may_proceed(r.sender, clocks, self.s)", "may_proceed(r.sender, clocks, 0)"), (5, 3), "wait for all"),
        ("another rate", "q2", instead('V["rate"] == "shared"', 'V["rate"] != "shared"'), 2, "the rate is (divided by N|the full one)"),
        ("rate over s", "q2", instead('/ (len(clocks) if V["rate"] == "shared" else 1)', "/ self.s"), 5, "divided by s"),
        ("clock not counted", "q2", instead("                clocks[request.sender] += 1\n", ""), 3, "is the gate asked|no worker ever waits", REPLY),
        ("held back, then applied", "q2", (('V["gate"] == "reply" and', "False and"), ('V["gate"] == "apply" and', "True and")), 3, "when a clock is counted", REPLY),
        ("four workers", "q2", instead('dict.fromkeys(ctx.peers("worker"), 0)', "{f'worker-{i}': 0 for i in range(4)}"), 7, "another number of workers"),
        ("one too many", "q3", instead(SEEN, SEEN.replace("i - s", "i - s + 1")), 2, "one off"),
        ("one too few", "q3", instead(SEEN, SEEN.replace("i - s", "i - s - 1")), 2, "one off"),
        ("ahead", "q3", instead(SEEN, "return i + s"), 2, "not ahead"),
        ("only s", "q3", instead(SEEN, "return s"), 2, "that is s"),
        ("all", "q3", instead(SEEN, "return i"), 2, "s = 0 would guarantee"),
        ("not cut off", "q3", instead(SEEN, SEEN.replace("max(0, ", "(")), 2, "cannot be negative"),
    ],
    "05": [
        ("rest in the last", "q1", instead(RETURN, "return [(size // n * i, size // n * (i + 1) if i < n - 1 else size) for i in range(n)]"), 1, "distribute the remainder"),
        ("rest in the last one, rounded up", "q1", instead(RETURN, "step = -(-size // n)\n    return [(min(i * step, size), min((i + 1) * step, size)) for i in range(n)]"), 1, "distribute the remainder"),
        ("rest forgotten", "q1", instead(RETURN, "return [(size // n * i, size // n * (i + 1)) for i in range(n)]"), 2, "remainder is missing"),
        ("stop is part of it", "q1", instead(RETURN, "return [(size * i // n, size * (i + 1) // n - 1) for i in range(n)]"), 2, "stop is not part"),
        ("lengths", "q1", instead(RETURN, "return [(size * i // n, size * (i + 1) // n - size * i // n) for i in range(n)]"), 2, "not .start, length."),
        ("pieces of n", "q1", instead(RETURN, "return [(i, min(i + n, size)) for i in range(0, size, n)]"), 2, "number of pieces|n pieces"),
        ("whole gradients", "q2", UNCHUNKED, 3, "cut them into pieces"),
        ("the other way round", "q2", instead('V["direction"] == "right"', 'V["direction"] != "right"'), 2, "the other way"),
        ("sum for mean", "q2", SUM, 3, "with the sum", MEANS),
        ("divided twice", "q2", instead("gradient.of_all_workers(total, n,", "gradient.of_all_workers(total / n, n,"), 3, "divided by the number of workers twice|with the mean"),
        ("only the first phase", "q2", instead("range(2 * (n - 1))", "range(n - 1)"), 6, "one phase of two|first add what arrives"),
        ("N rounds", "q2", (("range(2 * (n - 1))", "range(2 * n)"), ("if turn < n - 1", "if turn < n")), 6, "how many do you make|exactly once"),
        ("added in both phases", "q2", instead("if turn < n - 1:", "if True:"), 3, "first add what arrives, then replace"),
        ("replaced in both phases", "q2", instead("if turn < n - 1:", "if False:"), 3, "first add what arrives, then replace"),
        ("receives first", "q2", (("                ctx.send(to, lk.Chunk(total[slice(*cut[part])], turn, part))\n                came = await ctx.recv(lk.Chunk, sender=source)\n", "                came = await ctx.recv(lk.Chunk, sender=source)\n                ctx.send(to, lk.Chunk(total[slice(*cut[part])], turn, part))\n"),), 10, "send first, then receive"),
        ("four workers", "q2", instead("n, side = len(members), ", "n, side = 4, "), 10, "another number of workers"),
        ("one phase", "q3", instead("return 2 * (n - 1) * size / n", "return (n - 1) * size / n"), 1, "two phases"),
        ("whole arrays", "q3", instead("return 2 * (n - 1) * size / n", "return 2 * (n - 1) * size"), 1, "not the whole array"),
        ("n rounds", "q3", instead("return 2 * (n - 1) * size / n", "return 2 * size"), 1, "n - 1 rounds"),
        ("latency once", "q3", instead("2 * (n - 1) * (latency + size / n / bandwidth)", "latency + 2 * (n - 1) * size / n / bandwidth"), 2, "every message has a latency"),
        ("one phase in seconds", "q3", instead("2 * (n - 1) * (latency + size / n / bandwidth)", "(n - 1) * (latency + size / n / bandwidth)"), 2, "two phases"),
        ("whole arrays in seconds", "q3", instead("latency + size / n / bandwidth", "latency + size / bandwidth"), 2, "not the whole array"),
        ("n rounds in seconds", "q3", instead("2 * (n - 1) * (latency", "2 * n * (latency"), 2, "n - 1 rounds"),
        ("all after each other", "q3", instead("2 * (n - 1) * (latency", "n * 2 * (n - 1) * (latency"), 2, "at the same time"),
        ("no latency", "q3", instead("(latency + size / n / bandwidth)", "size / n / bandwidth"), 2, "latency"),
    ],
    "06": [
        ("gpipe", "q1", instead(AHEAD, "micro_batches"), 3, "as in GPipe", {"schedule": ("1f1b", "eager")}),
        ("1F1B", "q1", instead(AHEAD, "stages - 1 - stage"), 3, "1F1B", {"schedule": ("eager", "gpipe")}),
        ("eager", "q1", instead(AHEAD, "2 * (stages - 1 - stage)"), 3, "eager", {"schedule": ("1f1b", "gpipe")}),
        ("one forward too many", "q1", instead(AHEAD, f"{AHEAD} + 1"), 3, "too many", {"schedule": ("1f1b", "eager")}),
        ("one forward too few", "q1", instead(AHEAD, f"max({AHEAD} - 1, 0)"), 6, "too few", F1B),
        ("one after the other", "q1", instead("return work +", f"return {IN_A_ROW}\n    return work +"), 6, "only one stage works|first one|too few|1F1B"),
        ("last stage first", "q1", instead(AHEAD, "stage"), 8, "first one, not the last|deadlock", F1B),
        ("four stages", "q1", instead(AHEAD, "3 - stage"), 6, "hard-coded|number of stages|stages", F1B),
        ("backwards reversed", "q1", instead("range(micro_batches - ahead, micro_batches)]", "reversed(range(micro_batches - ahead, micro_batches))]"), 8, "in the order of the micro-batches"),
        ("what is left is forgotten", "q1", instead("return work + [", "return work + 0 * ["), 8, "once for every micro-batch"),
        ("more forwards than there are", "q1", instead("ahead = min(ahead, micro_batches)", "pass"), 5, "fewer than stages|once for every", F1B),
        ("nothing freed", "q2", instead('1 if word == "forward" else -1', '1 if word == "forward" else 0'), 2, "frees the activations"),
        ("what is left at the end", "q2", instead("return most", "return now"), 2, "at the end nothing is held"),
        ("the first run of forwards", "q2", instead(HELD, "most = 0\n    for word, _ in work:\n        if word != 'forward':\n            break\n        most += 1\n    return most"), 2, "larger later"),
        ("P for P - 1", "q3", bubble("stages"), 3, "too many idle slots"),
        ("M + P for M + P - 1", "q3", bubble(share="micro_batches + stages"), 3, "one slot too long", SHARE),
        ("P of M + P", "q3", bubble("stages", "micro_batches + stages"), 3, "too many idle slots", SHARE),
        ("P over M", "q3", instead(BUBBLE, "return stages / micro_batches"), 3, "too many idle slots"),
        ("at both ends", "q3", bubble("2 * (stages - 1)", "micro_batches + 2 * (stages - 1)"), 3, "twice too much"),
        ("relative to the work", "q3", instead(BUBBLE, "return (stages - 1) / micro_batches"), 3, "relative to the compute time", {"bubble": ("share", "seconds")}),
        ("relative to all", "q3", instead(BUBBLE, "return (stages - 1) / (micro_batches + stages - 1)"), 3, "relative to the total time", {"bubble": ("ratio", "seconds")}),
        ("in seconds", "q3", instead(BUBBLE, "return (stages - 1) * (tf + tb)"), 3, "in seconds", {"bubble": ("share", "ratio")}),
        ("share of computing", "q3", instead(BUBBLE, "return micro_batches / (micro_batches + stages - 1)"), 3, "share of computing"),
        ("a percentage", "q3", instead(BUBBLE, "return 100 * (stages - 1) / (micro_batches + stages - 1)"), 3, "percentage"),
        ("exchanged", "q3", instead(BUBBLE, "return (micro_batches - 1) / (micro_batches + stages - 1)"), 3, "exchanged"),
        ("four stages in the bubble", "q3", bubble("3 if stages > 1 else 0", "micro_batches + 3"), 3, "hard-coded"),
    ],
    "07": [
        ("no activation", "q1", instead(HIDDEN, "hidden = z") + instead(AT_HIDDEN, "slope = 1"), 3, "activation is missing"),
        ("another activation", "q1", tuple((old, old.replace('[V["activation"]]', OTHER)) for old in (HIDDEN, AT_HIDDEN)), 3, "that is the"),
        ("channels first", "q1", BY_CHANNEL, 3, "channels of a square are next to each other"),
        ("no biases", "q1", (('+ p["filter.bias"]', ""), ('@ p["output.weight"] + p["output.bias"]', '@ p["output.weight"]'), ("d.sum(axis=0)", "0"), ("dz.sum(axis=(0, 1))", "0")), 3, "both biases are missing"),
        ("no bias of the filters", "q1", instead('+ p["filter.bias"]', "") + instead("dz.sum(axis=(0, 1))", "0"), 3, "bias of the filters is missing"),
        ("no bias of the output, but its gradient", "q1", instead('@ p["output.weight"] + p["output.bias"]', '@ p["output.weight"]'), 10, "bias of the output layer is missing"),
        ("no bias in the scores only", "q1", instead("layers(p, x)[1]", 'layers(p, x)[1] - p["output.bias"]'), 10, "bias of the output layer is missing"),
        ("probabilities", "q1", instead("return self.layers(p, x)[1]", "e = np.exp(self.layers(p, x)[1])\n        return e / e.sum(axis=1, keepdims=True)"), 10, "these are probabilities"),
        ("eight channels", "q1", instead(f"return hidden, {ROW}", "return hidden, hidden.reshape(len(x), 32)") + instead(f"{ROW}.T", "hidden.reshape(len(x), 32).T"), 7, "cannot reshape"),
        ("a sum", "q1", instead("        d /= len(x)\n", "") + instead("[rows, y]).mean()", "[rows, y]).sum()"), 7, r"does not return the mean .*Divide the sums by len\(x\)"),
        ("a sum for the gradient", "q1", instead("        d /= len(x)\n", ""), 7, r"the loss is, but the gradient differs.*Divide the sums by len\(x\)"),
        ("a sum for the loss", "q1", instead("[rows, y]).mean()", "[rows, y]).sum()"), 7, r"does not return the mean .*Divide the sums by len\(x\)"),
        ("divided twice", "q1", instead("d.sum(axis=0)", "d.mean(axis=0)"), 7, r"does not return the mean .*the gradient differs"),
        ("no gradient of a bias", "q1", instead('        g["filter.bias"][...] = dz.sum(axis=(0, 1))\n', ""), 7, "has left filter.bias.* out.*Write to every array"),
        ("added", "q1", instead('g["output.weight"][...] =', 'g["output.weight"][...] +='), 7, "has left output.weight.* out.*Write to every array in place"),
        ("replaced", "q1", instead('g["filter.weight"][...] =', 'g["filter.weight"] ='), 7, "has left filter.weight.* out.*only replaces the entry"),
        ("samples changed", "q1", instead("hidden, scores = self", "x /= 2\n        hidden, scores = self"), 7, "must not be changed: write to g only"),
        ("parameters changed", "q1", instead("        return (np.log", '        for name in g:\n            p[name][...] -= 0.1 * g[name]\n        return (np.log'), 7, "must not be changed: write to g only"),
        ("mean over the squares", "q1", instead("dz.sum(axis=(0, 1))", "dz.mean(axis=1).sum(axis=0)"), 7, "wrong at filter.bias.*has to write the derivative"),
        ("one square", "q1", instead("squares(x), dz)", "squares(x)[:, :1], dz[:, :1])"), 7, "wrong at filter.weight.*has to write the derivative"),
        ("activation not differentiated", "q1", instead(".reshape(hidden.shape) * slope", ".reshape(hidden.shape)"), 7, "wrong at filter.*has to write the derivative"),
        ("differentiated at its output", "q1", instead(AT_HIDDEN, 'slope = {"tanh": 1 - np.tanh(hidden) ** 2, "relu": hidden > 0.5, "softplus": 1 / (1 + np.exp(-hidden))}[V["activation"]]'), 7, "wrong at filter.*has to write the derivative"),
        ("no 1 at the label", "q1", instead("        d[rows, y] -= 1\n", ""), 7, "wrong at.*has to write the derivative"),
        ("the wrong sign", "q1", instead("d /= len(x)", "d /= -len(x)"), 7, "wrong at.*has to write the derivative"),
        ("momentum", "q1", (("    def scores", "    last = {}\n\n    def scores"), ("        return (np.log", "        for name in g:\n            g[name][...] = self.last[name] = 0.9 * self.last.get(name, 0) + g[name]\n        return (np.log")), 7, "two calls of gradient.*must keep nothing between calls"),
        ("exp of a thousand", "q1", instead(" - scores.max(axis=1, keepdims=True)", ""), 4, "subtract the largest score of each sample"),
        ("the largest score of all", "q1", instead("scores.max(axis=1, keepdims=True)", "scores.max()"), 4, "subtract the largest score of each sample"),
        ("small probabilities cut off", "q1", instead("d[rows, y] -= 1", "d = np.clip(d, 1e-12, 1)\n        d[rows, y] -= 1"), 4, "do not cut off"),
        ("mean of means", "q2", combined("sum(each) / workers"), 3, "different numbers of samples|weights all workers equally"),
        ("mean of what is given", "q2", combined("sum(given) / workers"), 3, "have different numbers of samples"),
        ("weighted by the number of workers", "q2", combined("sum(given) / sum(samples)"), 3, "must be weighted by its number of samples", MEANS),
        ("weighted twice", "q2", combined("sum(n * g for n, g in zip(samples, given)) / sum(samples)"), 3, "its number of samples is in it already", {"reduce": "sum"}),
        ("a sum of the gradients", "q2", combined("sum(given)"), 3, "that is a sum"),
        ("a sum over all samples", "q2", combined("sum(added)"), 3, "divide by the number of all samples"),
        ("divided by the workers", "q2", combined("sum(n * g for n, g in zip(samples, given)) / workers"), 3, "not of workers"),
        ("divided by the workers, too", "q2", combined("sum(added) / sum(samples) / workers"), 3, "do not divide by the number of workers"),
        ("three workers", "q2", combined("(added[0] + added[1] + added[2]) / sum(samples)"), 3, "any number of workers|the gradient of other workers.: it raised an error"),
        ("after the backward pass", "q3", seconds_of("sum(backward) + sum(exchange)"), 3, "begin during the backward pass"),
        ("at the same time", "q3", seconds_of("max(sum(backward[: i + 1]) + exchange[i] for i in range(len(backward)))"), 3, "one exchange at a time"),
        ("before they are computed", "q3", seconds_of("backward[0] + sum(exchange)"), 3, "must be computed before"),
        ("all but the last are hidden", "q3", seconds_of("sum(backward) + exchange[-1]"), 3, "not only the exchange of the last"),
        ("the larger of both", "q3", seconds_of("max(sum(backward), sum(exchange))"), 3, "without gaps"),
        ("first layer first", "q3", instead("computed = exchanged = 0", "backward, exchange = backward[::-1], exchange[::-1]\n    computed = exchanged = 0"), 3, "begin with the last layer"),
        ("the end of the step", "q3", instead(ASKED, "return exchanged"), 3, "time of the whole step", {"asked": ("waiting", "hidden")}),
        ("the wait", "q3", instead(ASKED, "return waiting"), 3, "waits after the backward pass", {"asked": ("step", "hidden")}),
        ("what is hidden", "q3", instead(ASKED, "return sum(exchange) - waiting"), 3, "is hidden", {"asked": ("step", "waiting")}),
        ("the backward pass", "q3", instead(ASKED, "return computed"), 3, "time of the backward pass|without gaps"),
        ("all exchanges", "q3", instead(ASKED, "return sum(exchange)"), 3, "time of all exchanges|without gaps|begin during"),
    ],
}  # fmt: skip


def answer(name, replacements, solutions, cell):
    """The reference notebook's answers with one wrong cell."""
    source = solutions[cell]
    for old, new in replacements:
        assert source.count(old) == 1, (name, cell, old, source.count(old))
        source = source.replace(old, new)
    return {**solutions, cell: source}


def wrong_in(name, values):
    """The rows of an assignment that are wrong in the variant with these values."""
    return [
        row[:5]
        for row in WRONG[name]
        if all(values[key] in ((of,) if isinstance(of, str) else of) for each in row[5:] for key, of in each.items())
    ]


# gradients by numeric differentiation: by name, the quotient and its step
QUOTIENTS = {
    "one-sided": ("(f(x + d) - f(x)) / h", 1e-7),
    "backward, a power of two": ("(f(x) - f(x - d)) / h", 2.0**-20),
    "central": ("(f(x + d) - f(x - d)) / (2 * h)", 1e-5),
    "central, a power of two": ("(f(x + d) - f(x - d)) / (2 * h)", 2.0**-17),
    "central, a large step": ("(f(x + d) - f(x - d)) / (2 * h)", 1.0),
    "four points": ("(8 * (f(x + d) - f(x - d)) - f(x + 2 * d) + f(x - 2 * d)) / (12 * h)", 3e-3),
    "extrapolated": (
        "(128 * (f(x + d / 4) - f(x - d / 4)) - 40 * (f(x + d / 2) - f(x - d / 2)) + f(x + d) - f(x - d)) / (90 * h)", 1e-2),
    "complex": ("f(x + 1j * d).imag / h", 1e-20),
    "complex, a large step": ("f(x + 1j * d).imag / h", 1e-6),
    "on a circle": ("np.mean([f(x + d * at) / at for at in np.exp(2j * np.pi * np.arange(0.5, 32) / 32)]).real / h", 0.5),
}  # fmt: skip
QUOTIENT = """
def quotient(f, x):
    h, found = {1}, np.zeros(np.shape(x))
    for place in np.ndindex(found.shape):
        d = np.zeros(found.shape)
        d[place] = h
        found[place] = {0}
    return found
def loss_of(logits, labels):
    s = logits - logits.real.max(1, keepdims=True)
    losses = np.log(np.exp(s).sum(1)) - s[np.arange(len(labels)), labels]
    return losses.mean() if V["reduce"] == "mean" else losses.sum()
"""
BY_QUOTIENTS = {
    "q1": """
def dense_backward(x, w, dy):
    def loss(x, w, b):
        return (dense_forward(x, w, b) * dy).sum()
    b = np.zeros(dy.shape[1])
    return quotient(lambda v: loss(v, w, b), x), quotient(lambda v: loss(x, v, b), w), quotient(lambda v: loss(x, w, v), b)
""",
    "q2": """
def activation_backward(a, dy):
    z = {"tanh": np.arctanh, "relu": np.array, "sigmoid": lambda a: np.log(a / (1 - a)), "softplus": lambda a: np.log(np.expm1(a))}[V["activation"]](a)
    return quotient(lambda v: (activation(v) * dy).sum(), z)
""",
    "q3": """
def cross_entropy(logits, labels):
    return loss_of(logits, labels), quotient(lambda v: loss_of(v, labels), logits)
""",
    "q4": """
def network_gradient(parameters, x, labels):
    def loss(i, v):
        w1, b1, w2, b2 = [*parameters[:i], v, *parameters[i + 1:]]
        return loss_of(dense_forward(activation(dense_forward(x, w1, b1)), w2, b2), labels)
    return loss(0, parameters[0]), [quotient(lambda v, i=i: loss(i, v), p) for i, p in enumerate(parameters)]
""",
}  # fmt: skip


def by_quotients(name, solutions):
    """The answers of assignment 01 with numeric derivatives, of functions that also take complex numbers."""
    right = {
        cell: source.replace("np.logaddexp(0, z)", "np.log1p(np.exp(z))").replace(
            "np.maximum(z, 0)", "z * (np.real(z) > 0)"
        )
        for cell, source in solutions.items()
    }
    return {cell: source + QUOTIENT.format(*QUOTIENTS[name]) + BY_QUOTIENTS[cell] for cell, source in right.items()}
