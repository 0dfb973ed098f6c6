# ruff: noqa: E501  (a line of a submission stays a line)
"""Models that earn a mark without a right gradient, or harm the grader. An `Attack` defines `X`, a model, which is checked and trained."""

from . import Attack

MODEL = """
TOP
@dataclass(frozen=True)
class X(lk.NumpyModel):
    hidden: int = 4

    def shapes(self, data):
        SHAPES
        return {"a.weight": (data.features, self.hidden), "b.weight": (self.hidden, data.outputs)}

    def init(self, p, rng):
        INIT
        for values in p.values():
            values[...] = rng.normal(size=values.shape) / 2

    def scores(self, p, x):
        SCORES
        return np.tanh(x @ p["a.weight"]) @ p["b.weight"]

    def gradient(self, p, x, y, g):
        GRADIENT
        h = np.tanh(x @ p["a.weight"])
        s = h @ p["b.weight"]
        e = np.exp(s - s.max(axis=1, keepdims=True))
        d = e / e.sum(axis=1, keepdims=True)
        loss = -np.log(d[np.arange(len(y)), y]).mean()
        d[np.arange(len(y)), y] -= 1
        d /= len(y)
        g["b.weight"][...] = h.T @ d
        g["a.weight"][...] = x.T @ (d @ p["b.weight"].T * (1 - h**2))
        AFTER
        return loss
    MORE
"""


def put(**lines: str) -> str:
    """The model with lines at these places: top, shapes, init, scores, gradient, after (the gradient), more (methods)."""
    made = MODEL
    for place in ("top", "shapes", "init", "scores", "gradient", "after", "more"):
        indent = {"top": "", "more": "    "}.get(place, "        ")
        made = made.replace(place.upper(), lines.get(place, "pass" if indent else "").replace("\n", "\n" + indent))
    return made


RIGHT = put()
ENDED = "Ended:"
NO_GRADIENT = "for values in g.values(): values[...] = 0\nreturn LOSS"
CHEAT = """
import sys
frame = sys._getframe()
while type(frame.f_locals.get("self")).__name__ != "StudentProcess":
    frame = frame.f_back
process = frame.f_locals["self"]
"""
ANSWER = CHEAT + "type(process)._compute = lambda self, name, options, method, args: {}\n"
# a gradient along the direction that a generator with the seed of the test draws, by a difference quotient
KNOWN_DIRECTION = """def loss(step):
    q = {k: v + step * d[k] for k, v in p.items()}
    s = np.tanh(x @ q['a.weight']) @ q['b.weight']
    return (np.log(np.exp(s).sum(axis=1)) - s[np.arange(len(y)), y]).mean()
flat = np.random.default_rng(3).choice((-1.0, 1.0), sum(v.size for v in p.values()))
cut = p['a.weight'].size
d = {'a.weight': flat[:cut].reshape(p['a.weight'].shape), 'b.weight': flat[cut:].reshape(p['b.weight'].shape)}
slope = (loss(1e-6) - loss(-1e-6)) / 2e-6
for k, v in g.items(): v[...] = d[k] * slope / flat.size
return loss(0)"""
STORED = "SEEN = []\ndef remember(*what):\n    SEEN.append(what)\n"

ATTACKS = (
    # forged values
    Attack("no loss and no gradient", put(gradient=NO_GRADIENT.replace("LOSS", "0.0")), "returns the loss 0|is wrong"),
    Attack("the loss is a constant", put(after="return 0.5"), "another loss|mean"),
    Attack("the loss falls with every call", put(top="COUNT = [9.0]", after="COUNT[0] *= 0.9\nreturn COUNT[0]"), "two calls"),
    Attack("the gradient of another loss", put(after="for values in g.values(): values *= 2"), "is wrong"),
    Attack("a small wrong part", put(after="g['a.weight'][-1, -1] += 0.01"), "is wrong"),
    Attack("the gradient is that of the first call", put(top="KEPT = {}", after="for k, v in g.items(): v[...] = KEPT.setdefault(k, v.copy())"), "mean|is wrong"),
    Attack("right only on the first 60 calls", put(top="COUNT = [0]", after="COUNT[0] += 1\nif COUNT[0] > 60: g['a.weight'][...] *= -1"), "is wrong"),
    Attack("right only on eight samples", put(after="if len(x) != 8: g['b.weight'][...] *= 3"), "mean|is wrong"),
    Attack("an `evaluate` of its own", put(more="def evaluate(self, p, x, y): return 0.0, 1.0", after="g['a.weight'][...] = 1"), "is wrong"),
    Attack("the whole answer is forged", put(top=ANSWER.format("None")), "malformed|sent something else"),
    Attack("the arrays are forged", put(top=ANSWER.format("(0.0, {'a.weight': np.zeros(3)})")), "shapes returned|sent something else"),
    Attack("methods of another name", put(top=CHEAT + "type(process)._describe = lambda self, name: {'options': {}, 'methods': ['_check_size', '__class__'], 'stochastic': False}"), "has to define"),
    Attack("options as methods", put(top=CHEAT + "type(process)._describe = lambda self, name: {'options': {'scores': 1}, 'methods': ['scores'], 'stochastic': False}"), "cannot be called"),
    Attack("no description", put(top=CHEAT + "type(process)._describe = lambda self, name: {'options': {}, 'methods': 7}"), "malformed"),
    # storing what it has seen
    Attack("the scores remember the labels of gradients", put(top=STORED, scores="if SEEN: return 99 * np.eye(2)[SEEN[-1][1][: len(x)]]\nreturn np.zeros((len(x), 2))", gradient="remember(x, y)\n" + NO_GRADIENT.replace("LOSS", "np.log(2)")), "accuracy"),
    Attack("the gradient continues with the last one", put(top="LAST = {}", after="for k, v in g.items():\n    v += 0.9 * LAST.get(k, 0)\n    LAST[k] = v.copy()"), "two calls|is wrong"),
    Attack("it writes labels to the parameters", put(after="for v in p.values(): v.flags.writeable = True\np['a.weight'][...] = y[0]\ng['a.weight'][...] = 0"), "is wrong|cannot set WRITEABLE"),
    # writing to arguments
    Attack("it writes to the parameters", put(gradient="p['a.weight'][...] = 0"), "read-only.*must not be changed"),
    Attack("it writes to the samples", put(scores="x[...] = 0"), "read-only.*must not be changed"),
    Attack("it writes to the labels", put(gradient="y[...] = 0"), "read-only.*must not be changed"),
    Attack("it changes the shape of an array", put(after="g['b.weight'].shape = (-1,)\ng['a.weight'] = None\ng['b.weight'][...] = 7"), "mean|is wrong"),
    Attack("it replaces an array", put(after="g['b.weight'] = np.zeros_like(g['b.weight'])\ng.clear()\nreturn 0.0"), "loss"),
    # other shapes and types
    Attack("scores of another shape", put(scores="return np.zeros(3)"), "numbers of shape .* are needed"),
    Attack("scores of text", put(scores="return [['a', 'b']] * len(x)"), "numbers of shape .* are needed"),
    Attack("complex scores", put(scores="return np.ones((len(x), 2)) * 1j"), "are needed"),
    Attack("ragged scores", put(scores="return [[1.0], [1.0, 2.0]]"), "are needed"),
    Attack("scores that cannot be sent", put(scores="return lambda: 0"), "X.scores returned a function"),
    Attack("a loss of another kind", put(after="return 'nothing'"), "the mean loss is needed"),
    Attack("a complex loss", put(after="return np.complex128(1j)"), "the mean loss is needed"),
    Attack("a loss for each sample", put(after="return np.zeros(len(y))"), "the mean loss is needed"),
    Attack("the loss is not a number", put(after="return float('nan')"), "loss of the initial values is nan"),
    Attack("the gradient is not a number", put(after="g['a.weight'][0, 0] = np.nan"), "left a.weight.* out, or has computed NaN"),
    Attack("scores that are not numbers", put(scores="return np.full((len(x), 2), np.nan)"), "scores|loss"),
    Attack("an array that is left out", put(after="g['b.weight'][...] = np.nan"), "left b.weight.* out"),
    Attack("in single precision", put(after="return float(np.float32(loss))"), "loss of the scores|cannot be checked|is wrong|another loss"),
    Attack("other initial values each time", put(top="import secrets", init="rng = np.random.default_rng(secrets.randbits(64))"), "other values for the same seed"),
    Attack("other initial values of a counter", put(top="COUNT = [0]", init="COUNT[0] += 1\nrng = np.random.default_rng(COUNT[0])"), "other values for the same seed"),
    Attack("random numbers", put(more="stochastic = True"), "draws no random numbers"),
    Attack("stages", put(more="def stages(self, data): return [1]"), "stages"),
    Attack("no scores", RIGHT.replace("def scores", "def score"), "has to define scores"),
    # sizes
    Attack("a billion parameters", put(shapes="return {'w': (10**9,)}"), "more than 1,000,000 parameters"),
    Attack("a billion arrays", put(shapes="return {str(i): (1,) for i in range(10**3)}"), "more than 100 arrays"),
    Attack("a shape of text", put(shapes="return {'w': ('a', 10**9)}"), "names and shapes are needed"),
    Attack("a shape with a negative extent", put(shapes="return {'w': (-1, -1)}"), "at least 0"),
    Attack("shapes without end", put(shapes="return {'w': (10**4000,) * 9}"), "more than 1,000,000 parameters"),
    Attack("a long name", put(shapes="return {'w' * 10**5: (1,)}"), "a name"),
    Attack("other shapes at every call", put(top="import itertools\nSIZES = itertools.count(1)", shapes="return {'a.weight': (2, next(SIZES)), 'b.weight': (4, 2)}"), ""),
    Attack("scores of gigabytes", put(scores="return np.broadcast_to(1.0, (10**6, 10**4))"), "MB of arrays at once"),
    Attack("scores of many numbers", put(scores="return list(range(10**7))"), "MB of text|MemoryError|used up"),
    # leaving
    Attack("it exits", put(gradient="import os\nos._exit(0)"), ENDED),
    Attack("it exits in scores", put(scores="raise SystemExit"), "SystemExit|Ended"),
    Attack("it crashes", put(gradient="import ctypes\nctypes.string_at(1)"), ENDED),
    Attack("it loops for ever", put(scores="while True: pass"), "processor time"),
    Attack("it loops in shapes", put(shapes="while True: pass"), "processor time"),
    Attack("right in the direction of the seed", put(gradient=KNOWN_DIRECTION), "is wrong"),
    Attack("it opens a file", put(gradient="open('/etc/passwd')"), "PermissionError|no files"),
    Attack("it asks for the reference", put(gradient=CHEAT + "process.grader.request('reference', 'f', [], {})"), "no such function|may make"),
    Attack("it asks for a role's things", put(gradient=CHEAT + "process.grader.request('rng')"), "no request that a function may make"),
)  # fmt: skip
