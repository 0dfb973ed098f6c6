# ruff: noqa: E501  (a row stays a line)
"""Typical wrong answers to the six assignments: the points that each loses, and what the hint says about it.

A row of `WRONG` is (the misunderstanding, solution cell, replacements in the reference notebook's answer, lost points, a regular
expression for the hint). Each answer has one misunderstanding; all are of the variant that the reference notebooks are written in.
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
BACKWARD = "return dy @ w.T, x.T @ dy, dy.sum(0)"
LOSS = '(losses.mean(), d / len(labels)) if V["reduce"] == "mean" else (losses.sum(), d)'
SLOPE = 'return dy * {"tanh": 1 - np.tanh(z) ** 2, "relu": z > 0, "sigmoid": _s * (1 - _s), "softplus": _s}[V["activation"]]'
LOGS = "np.log(total[:, 0]) - shifted[rows, labels]"
FIRST = "activation_backward(z, da)"
AHEAD = '"1f1b": stages - 1 - stage'


def instead(old, new):
    """One replacement."""
    return ((old, new),)


WRONG = {
    "01": [
        ("no bias", "q1", instead(FORWARD, "return x @ w"), 1, "bias is missing"),
        ("weights transposed", "q1", instead(FORWARD, "return x @ w.T + b"), 1, "transposed"),
        ("product of elements", "q1", instead(FORWARD, "return (x * w).sum(0) + b"), 1, "product of matrices|matrices"),
        ("bias of every sample", "q1", instead(BACKWARD, "return dy @ w.T, x.T @ dy, dy"), 2, "sum over the samples"),
        ("mean over the samples", "q1", instead(BACKWARD, "return dy @ w.T, x.T @ dy / len(x), dy.mean(0)"), 2, "do not divide by the number of samples"),
        ("bias: a mean", "q1", instead(BACKWARD, "return dy @ w.T, x.T @ dy, dy.mean(0)"), 2, "it is a sum and no mean"),
        ("bias: sum over the outputs", "q1", instead(BACKWARD, "return dy @ w.T, x.T @ dy, dy.sum(1)"), 2, "sum over the outputs"),
        ("bias: sum over all", "q1", instead(BACKWARD, "return dy @ w.T, x.T @ dy, dy.sum()"), 2, "sum over everything"),
        ("dw transposed", "q1", instead(BACKWARD, "return dy @ w.T, dy.T @ x, dy.sum(0)"), 2, "shape of w"),
        ("another order", "q1", instead(BACKWARD, "return x.T @ dy, dy @ w.T, dy.sum(0)"), 4, "the order is dx, dw, db"),
        ("weights not transposed on the way back", "q1", instead(BACKWARD, "return dy @ w, x.T @ dy, dy.sum(0)"), 4, "transpose"),
        ("another activation", "q2", (('"tanh": np.tanh(z)', '"tanh": np.maximum(z, 0)'), ("1 - np.tanh(z) ** 2", "z > 0")), 3, "that is the relu"),
        ("slope without its square", "q2", instead("1 - np.tanh(z) ** 2", "1 - np.tanh(z)"), 2, "not complete"),
        ("no chain rule", "q2", instead(SLOPE, "return 1 - np.tanh(z) ** 2"), 2, "multiply the derivative by dy"),
        ("slope at the output", "q2", instead(SLOPE, "return dy * (1 - np.tanh(np.tanh(z)) ** 2)"), 2, "not at the output"),
        ("dy through the activation", "q2", instead(SLOPE, "return dy * np.tanh(z)"), 2, "not times its derivative"),
        ("slope at dy", "q2", instead(SLOPE, "return dy * (1 - np.tanh(dy) ** 2)"), 2, "derivative of the activation at z"),
        ("sum for mean", "q3", instead(LOSS, "(losses.sum(), d)"), 2, "that is the sum over the samples"),
        ("base 10", "q3", instead(LOGS, "(np.log(total[:, 0]) - shifted[rows, labels]) / np.log(10)"), 4, "not that with base 10"),
        ("base 2", "q3", instead(LOGS, "(np.log(total[:, 0]) - shifted[rows, labels]) / np.log(2)"), 4, "not that with base 2"),
        ("no minus", "q3", instead(LOGS, "shifted[rows, labels] - np.log(total[:, 0])"), 4, "sign is wrong"),
        ("probability for its logarithm", "q3", instead(LOGS, "np.exp(shifted[rows, labels]) / total[:, 0]"), 5, "not -log p"),
        ("over the samples", "q3", instead("sum(1, keepdims=True)", "sum(0, keepdims=True)") + instead("np.log(total[:, 0])", "np.log(total[0, labels])"), 4, "not over the samples"),
        ("divided by the classes, too", "q3", instead("losses.mean()", "losses.mean() / logits.shape[1]"), 4, "number of classes"),
        ("batch size forgotten in the gradient", "q3", instead("d / len(labels)", "d"), 2, "number of samples is missing"),
        ("batch size twice", "q3", instead("d / len(labels)", "d / len(labels) ** 2"), 2, "once too often"),
        ("gradient upside down", "q3", instead("d / len(labels)", "-d / len(labels)"), 2, "sign is wrong"),
        ("no 1 at the label", "q3", instead("d[rows, labels] -= 1", "pass"), 3, "subtract 1 at the label"),
        ("1 from every class", "q3", instead("d[rows, labels] -= 1", "d -= 1"), 3, "not from every class"),
        ("exp of a thousand", "q3", instead("logits - logits.max(1, keepdims=True)", "logits"), 1, "overflows"),
        ("no activation", "q4", instead("a = activation(z)", "a = z"), 4, "activation is missing"),
        ("activation not differentiated", "q4", instead(FIRST, "da"), 4, "through the activation"),
        ("differentiated at its output", "q4", instead(FIRST, "activation_backward(a, da)"), 4, "at its input z"),
        ("second layer's input before the activation", "q4", instead("dense_backward(a, w2, dlogits)", "dense_backward(z, w2, dlogits)"), 4, "output of the activation"),
        ("another order of gradients", "q4", instead("[dw1, db1, dw2, db2]\n    ###", "[dw2, db2, dw1, db1]\n    ###"), 4, "order is that of the parameters"),
        ("divided by the samples again", "q4", instead("loss, dlogits = cross_entropy(dense_forward(a, w2, b2), labels)", "loss, dlogits = cross_entropy(dense_forward(a, w2, b2), labels)\n    dlogits = dlogits / len(x)"), 4, "number of samples is in dlogits"),
        ("weights of the loss only", "q4", instead("_, dw1, db1 = dense_backward(x, w1, activation_backward(z, da))", "dw1, db1 = np.zeros_like(w1), np.zeros_like(b1)"), 4, "go back through the activation"),
    ],
    "02": [
        ("sum for mean", "q1", SUM, 3, "that is the step with the sum"),
        ("each gradient a step", "q1", EACH_A_STEP, 7, "separate step"),
        ("rate over N", "q1", instead("rate *= math", "rate *= 1 / workers if True else math"), 3, "divided by the number of workers"),
        ("rate times N", "q1", instead("rate *= math", "rate *= workers if True else math"), 3, "sum of the gradients"),
        ("sqrt(N)", "q1", instead('math.sqrt(workers) if V["reduce"] == "root" else 1', "math.sqrt(workers)"), 3, r"sqrt\(N\)"),
        ("weights before the step", "q1", BEFORE_THE_STEP, 7, "before all gradients have arrived"),
        ("pulls not answered", "q1", instead(PULL, "continue"), 10, "is every pull answered"),
        ("gradients kept", "q1", instead("                pushes = []\n", ""), 10, "begin with no gradients"),
        ("one worker gets the weights", "q1", instead('for worker in ctx.peers("worker"):', "for worker in [request.sender]:"), 10, "do all workers get the new weights"),
        ("four workers", "q1", instead('workers = [], len(ctx.peers("worker"))', "workers = [], 4"), 10, "updates with 1 worker|workers.*deadlock"),
        ("one gradient fewer", "q1", instead('== V["each"] * workers', "== workers - 1"), 9, "before all gradients have arrived|before the last gradient"),
        ("weights not awaited", "q1", instead("weights = await lk.push_pull(ctx, gradient)", "lk.post(ctx, gradient)"), 7, "before all gradients have arrived|how many gradients"),
        ("mean for the slowest", "q2", instead(TIMES, "return sum(map(sum, times)) / len(times)"), 2, "mean of the workers"),
        ("sum of all", "q2", instead(TIMES, "return sum(map(sum, times))"), 2, "not as long as all together"),
        ("the fastest", "q2", instead(TIMES, "return min(map(sum, times))"), 2, "not its fastest"),
        ("longest gradient", "q2", instead(TIMES, "return max(map(max, times))"), 2, "one after the other"),
        ("mean gradient", "q2", instead(TIMES, "return sum(map(sum, times)) / sum(map(len, times))"), 2, "one after the other"),
        ("share of computing", "q2", instead(WAITING, WAITING.replace("1 - ", "")), 2, "share of computing"),
        ("of one worker", "q2", instead(WAITING, "s = [sum(each) for each in times]\n    return sum(max(s) - t for t in s) / max(s)"), 2, "not of one"),
        ("of the time of computing", "q2", instead(WAITING, "s = [sum(each) for each in times]\n    return sum(max(s) - t for t in s) / sum(s)"), 2, "not to the time that they compute"),
        ("in seconds", "q2", instead(WAITING, "s = [sum(each) for each in times]\n    return sum(max(s) - t for t in s)"), 2, "in seconds"),
        ("a percentage", "q2", instead(WAITING, WAITING.replace("return", "return 100 * (") + ")"), 2, "percentage"),
    ],
    "03": [
        ("not one operation", "q1", UNFUSED, 3, "one operation"),
        ("waits for all", "q1", WAITS_FOR_ALL, 8, "answered at once"),
        ("rate over N", "q1", instead("learning_rate * factor", "learning_rate * factor / workers"), 3, "divided by the number of workers"),
        ("rate times N", "q1", instead("learning_rate * factor", "learning_rate * factor * workers"), 3, "multiplied by the number of workers"),
        ("rate by staleness", "q1", instead('"constant": 1.0', '"constant": 1 / (1 + staleness)'), 3, r"1 / \(1 \+ staleness\)"),
        ("rate over staleness", "q1", instead('"constant": 1.0', '"constant": 1 / max(staleness, 1)'), 3, "divided by the staleness"),
        ("rate decreases", "q1", instead('"constant": 1.0', '"constant": (1 + u) ** -0.5'), 3, r"sqrt\(1 \+ u\)"),
        ("late ones dropped", "q1", instead('V["late"] == "dropped" and', ""), 2, "are they dropped|no gradient is dropped"),
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
        ("N / 2", "q3", instead(MEAN, "return workers - 1 if fused else workers / 2"), 1, "own application|not N / 2"),
        ("whole numbers", "q3", instead(MEAN, "return workers - 1 if fused else (workers - 1) // 2"), 1, "need not be a whole number"),
        ("sum", "q3", instead(MEAN, "return workers - 1 if fused else workers * (workers - 1) / 2"), 1, "not the mean"),
    ],
    "04": [
        ("s not allowed", "q1", instead("<= s", "< s"), 2, "s itself is allowed"),
        ("one more", "q1", instead("<= s", "<= s + 1"), 3, r"s \+ 1 is too much"),
        ("the other way round", "q1", instead("<= s", "> s"), 3, "which way round"),
        ("a distance", "q1", instead(MAY, "return abs(clocks[worker] - max(clocks.values())) <= s"), 3, "which clock is compared"),
        ("the fastest", "q1", instead(MAY, "return clocks[worker] - max(clocks.values()) <= s"), 3, "which clock"),
        ("the second slowest", "q1", instead('V["behind"] == "second"', "1"), 1, "which worker's clock is compared"),
        ("the mean", "q1", instead(MAY, "return clocks[worker] - sum(clocks.values()) / len(clocks) <= s"), 3, "ahead of the \\*\\*slowest"),
        ("one less than s", "q2", instead("clocks, self.s)", "clocks, self.s - 1)"), 3, "too few"),
        ("one more than s", "q2", instead("clocks, self.s)", "clocks, self.s + 1)"), 3, "too many"),
        ("only the one who asks", "q2", instead("next((r for r in waiting if", "next((r for r in waiting if r is request and"), 8, "ask the gate for all that wait"),
        ("no gate", "q2", NO_GATE, 3, "is the gate asked"),
        ("a barrier", "q2", instead("may_proceed(r.sender, clocks, self.s)", "may_proceed(r.sender, clocks, 0)"), 5, "wait for all"),
        ("a share for all", "q2", instead('/ (len(clocks) if V["rate"] == "shared" else 1)', "/ len(clocks)"), 2, "divided by N"),
        ("rate over s", "q2", instead('/ (len(clocks) if V["rate"] == "shared" else 1)', "/ self.s"), 5, "divided by s"),
        ("clock not counted", "q2", instead("                clocks[request.sender] += 1\n", ""), 3, "is the gate asked|no worker ever waits"),
        ("held back, then applied", "q2", (('V["gate"] == "reply" and', "False and"), ('V["gate"] == "apply" and', "True and")), 3, "when a clock is counted"),
        ("four workers", "q2", instead('dict.fromkeys(ctx.peers("worker"), 0)', "{f'worker-{i}': 0 for i in range(4)}"), 7, "another number of workers"),
        ("s too many", "q3", instead(SEEN, "return max(0, i - s + 1)"), 2, "one off"),
        ("s itself forgotten", "q3", instead(SEEN, "return max(0, i - s - 1)"), 2, "one off"),
        ("ahead", "q3", instead(SEEN, "return i + s"), 2, "not ahead"),
        ("only s", "q3", instead(SEEN, "return s"), 2, "that is s"),
        ("all", "q3", instead(SEEN, "return i"), 2, "s = 0 would guarantee"),
        ("not cut off", "q3", instead(SEEN, "return i - s"), 2, "cannot be negative"),
    ],
    "05": [
        ("rest in the last", "q1", instead(RETURN, "return [(size // n * i, size // n * (i + 1) if i < n - 1 else size) for i in range(n)]"), 1, "distribute the remainder"),
        ("rest in the last one, rounded up", "q1", instead(RETURN, "step = -(-size // n)\n    return [(min(i * step, size), min((i + 1) * step, size)) for i in range(n)]"), 1, "distribute the remainder"),
        ("rest forgotten", "q1", instead(RETURN, "return [(size // n * i, size // n * (i + 1)) for i in range(n)]"), 2, "remainder is missing"),
        ("stop is part of it", "q1", instead(RETURN, "return [(size * i // n, size * (i + 1) // n - 1) for i in range(n)]"), 2, "stop is not part"),
        ("lengths", "q1", instead(RETURN, "return [(size * i // n, size * (i + 1) // n - size * i // n) for i in range(n)]"), 2, "not .start, length."),
        ("pieces of n", "q1", instead(RETURN, "return [(i, min(i + n, size)) for i in range(0, size, n)]"), 2, "number of pieces|n pieces"),
        ("whole gradients", "q2", UNCHUNKED, 3, "cut them into pieces"),
        ("the other way round", "q2", instead('1 if V["direction"] == "right" else -1', "-1"), 2, "the other way"),
        ("sum for mean", "q2", SUM, 3, "with the sum"),
        ("divided twice", "q2", instead("gradient.of_all_workers(total, n,", "gradient.of_all_workers(total / n, n,"), 3, "divided by the number of workers twice"),
        ("only the first phase", "q2", instead("range(2 * (n - 1))", "range(n - 1)"), 6, "one phase of two|first add what arrives"),
        ("N rounds", "q2", (("range(2 * (n - 1))", "range(2 * n)"), ("if turn < n - 1", "if turn < n")), 6, "how many do you make|exactly once"),
        ("added in both phases", "q2", instead("if turn < n - 1:", "if True:"), 3, "first add what arrives, then replace"),
        ("replaced in both phases", "q2", instead("if turn < n - 1:", "if False:"), 3, "first add what arrives, then replace"),
        ("receives first", "q2", (("                ctx.send(to, lk.Chunk(total[slice(*cut[part])], turn, part))\n                came = await ctx.recv(lk.Chunk, sender=source)\n", "                came = await ctx.recv(lk.Chunk, sender=source)\n                ctx.send(to, lk.Chunk(total[slice(*cut[part])], turn, part))\n"),), 10, "send first, then receive"),
        ("four workers", "q2", instead("n, side = len(members), 1", "n, side = 4, 1"), 10, "another number of workers"),
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
        ("gpipe", "q1", instead(AHEAD, '"1f1b": micro_batches'), 3, "as in GPipe"),
        ("eager", "q1", instead(AHEAD, '"1f1b": 2 * (stages - 1 - stage)'), 3, "eager"),
        ("one forward too many", "q1", instead(AHEAD, '"1f1b": stages - stage'), 3, "too many"),
        ("one forward too few", "q1", instead(AHEAD, '"1f1b": max(stages - 2 - stage, 0)'), 6, "too few"),
        ("one after the other", "q1", instead("return work +", f"return {IN_A_ROW}\n    return work +"), 6, "only one stage works|first one|too few|1F1B"),
        ("last stage first", "q1", instead(AHEAD, '"1f1b": stage'), 8, "first one, not the last|deadlock"),
        ("stages counted from 1", "q1", instead(AHEAD, '"1f1b": stages - stage'), 3, "too many"),
        ("four stages", "q1", instead(AHEAD, '"1f1b": 3 - stage'), 6, "hard-coded|number of stages|stages"),
        ("backwards reversed", "q1", instead("range(micro_batches - ahead, micro_batches)]", "reversed(range(micro_batches - ahead, micro_batches))]"), 8, "in the order of the micro-batches"),
        ("what is left is forgotten", "q1", instead("return work + [", "return work + 0 * ["), 8, "once for every micro-batch"),
        ("more forwards than there are", "q1", instead("ahead = min(ahead, micro_batches)", "pass"), 5, "fewer than stages|once for every"),
        ("nothing freed", "q2", instead('1 if word == "forward" else -1', '1 if word == "forward" else 0'), 2, "frees the activations"),
        ("what is left at the end", "q2", instead("return most", "return now"), 2, "at the end nothing is held"),
        ("the first run of forwards", "q2", instead(HELD, "most = 0\n    for word, _ in work:\n        if word != 'forward':\n            break\n        most += 1\n    return most"), 2, "larger later"),
        ("P for P - 1", "q3", instead(BUBBLE, "return stages / (micro_batches + stages - 1)"), 3, "too many idle slots"),
        ("M + P for M + P - 1", "q3", instead(BUBBLE, "return (stages - 1) / (micro_batches + stages)"), 3, "one slot too long"),
        ("P of M + P", "q3", instead(BUBBLE, "return stages / (micro_batches + stages)"), 3, "too many idle slots"),
        ("P over M", "q3", instead(BUBBLE, "return stages / micro_batches"), 3, "too many idle slots"),
        ("a share of the work", "q3", instead(BUBBLE, "return (stages - 1) / micro_batches"), 3, "relative to the compute time"),
        ("in seconds", "q3", instead(BUBBLE, "return (stages - 1) * (tf + tb)"), 3, "in seconds"),
        ("share of computing", "q3", instead(BUBBLE, "return micro_batches / (micro_batches + stages - 1)"), 3, "share of computing"),
        ("a percentage", "q3", instead(BUBBLE, "return 100 * (stages - 1) / (micro_batches + stages - 1)"), 3, "percentage"),
        ("exchanged", "q3", instead(BUBBLE, "return (micro_batches - 1) / (micro_batches + stages - 1)"), 3, "exchanged"),
        ("four stages in the bubble", "q3", instead(BUBBLE, "return 3 / (micro_batches + 3) if stages > 1 else 0"), 3, "hard-coded"),
    ],
}  # fmt: skip


def answer(name, replacements, solutions, cell):
    """The reference notebook's answers with one wrong cell."""
    source = solutions[cell]
    for old, new in replacements:
        assert source.count(old) == 1, (name, cell, old, source.count(old))
        source = source.replace(old, new)
    return {**solutions, cell: source}
