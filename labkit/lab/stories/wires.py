"""Stories about bytes: where the wire fills up, and ways to send less. All in virtual time, where a wire is as thin as one
wishes.

M bytes are the model, b seconds a byte, c seconds a gradient, N workers; a synchronous step takes

    one server     c + (N + 1) M b              its wire: N models out and N gradients in, side by side
    ring           c + 2 (N - 1)/N M b          whatever N is
    H steps alone  c + 2 (N - 1)/N M b / H      on average
"""

from __future__ import annotations

from ..story import Act, Story

__all__ = ["FEWER_BYTES", "FULL_WIRE", "LOCAL_STEPS", "SPARSE"]

ON_PAPER = {"engine": "simulated", "law": "deterministic"}

# N = 16, M = 26,280 bytes, b = 1/800,000: 658 ms a step and 80% of the server's wire, against 162 ms and 38%.
FULL_WIRE = Story(
    name="full-wire",
    title="The server's wire fills up",
    shows="One server sends every model and gets every gradient; more servers share that, and a ring needs none.",
    settings={**ON_PAPER, "workers": 16, "pace": 0.1, "bandwidth": 8e5, "seconds": 7, "hidden": (64, 32)},
    acts=(
        Act({"strategy": "sync-ps", "servers": 1}, says="One server: its wire is hardly ever free, and 16 workers wait for it."),
        Act(
            {"strategy": "sync-ps", "servers": 4}, pin=False,
            says="Four servers: each has a quarter of the model, and of the bytes.",
        ),
        Act({"strategy": "ring-all-reduce"}, says="A ring: no server, and nobody sends more than two models a step."),
    ),
    panels=("timeline", "links", "throughput"),
)  # fmt: skip

# 2 (N - 1)/N M b = 92 ms on top of c = 100 ms, once a step or once in 8.
LOCAL_STEPS = Story(
    name="local-steps",
    title="Talk less often",
    shows="Workers that average their models every eighth step send an eighth of the bytes and hardly wait.",
    settings={**ON_PAPER, "workers": 8, "pace": 0.1, "bandwidth": 5e5, "seconds": 9, "hidden": (64, 32)},
    acts=(
        Act({"strategy": "ring-all-reduce"}, says="A ring at every step: as much time on the wire as at work."),
        Act({"strategy": "local-sgd", "H": 8}, says="Eight steps alone, then the mean of all models."),
    ),
    panels=("timeline", "throughput", "accuracy"),
)  # fmt: skip

# float16: 2 bytes an entry for 4. PowerSGD of rank r: nm/(r(n + m)) times fewer for every n x m matrix of the model.
FEWER_BYTES = Story(
    name="fewer-bytes",
    title="The same gradient in fewer bytes",
    shows="Numbers of half the length, or a sketch of rank 2: fewer bytes on a thin wire, and more steps in the same time.",
    settings={
        **ON_PAPER, "workers": 8, "pace": 0.1, "bandwidth": 2e5, "seconds": 7, "hidden": (64, 32),
        "strategy": "ring-all-reduce",
    },
    acts=(
        Act({"codec": None}, says="A thin wire, and every gradient in full: 4 bytes a number."),
        Act({"codec": "float16"}, pin=False, says="2 bytes a number: half the time on the wire."),
        Act(
            {"codec": "power-sgd:2"},
            says="Two columns and two rows for every matrix of the gradient; what they leave out is sent later.",
        ),
    ),
    panels=("timeline", "throughput", "accuracy"),
)  # fmt: skip

# Dense: the table, rows x columns x 4 bytes, goes up and down with every gradient. Sparse: 2 U (8 + 4 columns) bytes do, where
# U is how many of the batch x fields = 256 ids in a batch are different (T5), and the 178 values of the other layers.
SPARSE = Story(
    name="sparse",
    title="Send rows, not tables",
    shows="A batch of clicks needs 200 of 10,000 rows at most: sending only those is the same step in a fortieth of the bytes.",
    settings={
        **ON_PAPER, "workers": 4, "servers": 1, "pace": 0.1, "bandwidth": 5e6, "seconds": 8, "data": "clicks",
        "options": {"rows": 10_000}, "hidden": (16,), "optimizer": "adagrad",
    },
    acts=(
        Act({"strategy": "sync-ps"}, says="The whole embedding table travels with every gradient, nearly all of it zeros."),
        Act({"strategy": "sparse-ps"}, says="Only the rows of the batch travel; the layers behind them are added up in a ring."),
    ),
    panels=("timeline", "links", "throughput"),
)  # fmt: skip
