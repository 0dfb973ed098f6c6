"""Stories about bytes: where the wire fills up, and four ways to send less. All in virtual time, where a wire is as thin as
one wishes.

    M = bytes of the model, b = seconds a byte, c = seconds a gradient, N workers; seconds a step, synchronous
    one server   c + (N + 1) M b            its wire carries N models out and N gradients in, out and in side by side
    ring         c + 2 (N - 1)/N M b        whatever N is
    local, H     c + 2 (N - 1)/N M b / H    on average
"""

from __future__ import annotations

from ..story import Act, Story

__all__ = ["FEWER_BYTES", "FULL_WIRE", "LOCAL_STEPS", "SPARSE"]

ON_PAPER = {"engine": "simulated", "law": "deterministic"}

# N = 16, M = 26,408 bytes, b = 1/1,600,000: 331 ms a step and 80% of the server's wire, against 81 ms and 38%.
FULL_WIRE = Story(
    name="full-wire",
    title="The server's wire fills up",
    shows="One server sends every model and gets every gradient; more servers share that, and a ring needs none.",
    settings={**ON_PAPER, "workers": 16, "pace": 0.05, "bandwidth": 1.6e6, "seconds": 6, "hidden": (64, 32)},
    acts=(
        Act({"strategy": "sync-ps", "servers": 1}, says="One server: its wire is full, and sixteen workers wait for it."),
        Act(
            {"strategy": "sync-ps", "servers": 4}, pin=False,
            says="Four servers: each has a quarter of the model, of the bytes and of the wait.",
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
)

# float16: 2 bytes an entry for 4. PowerSGD of rank r: nm/(r(n + m)) times fewer for every n x m matrix of the model.
FEWER_BYTES = Story(
    name="fewer-bytes",
    title="The same gradient in fewer bytes",
    shows="Half the digits, or a sketch of rank 2: fewer bytes on a thin wire, more steps, nearly the same learning.",
    settings={**ON_PAPER, "workers": 8, "pace": 0.1, "bandwidth": 2e5, "seconds": 7, "hidden": (64, 32), "strategy": "ring-all-reduce"},
    acts=(
        Act({"codec": None}, says="A thin wire, and every gradient in full: 4 bytes a number."),
        Act({"codec": "float16"}, pin=False, says="2 bytes a number: half the time on the wire."),
        Act(
            {"codec": "power-sgd:2"},
            says="Two columns and two rows for every matrix of the gradient; what is left out is kept for later.",
        ),
    ),
    panels=("timeline", "throughput", "accuracy"),
)

# A dense worker moves the table, rows x columns x 4 bytes, up and down with every gradient; a sparse one U (8 + 4 columns)
# bytes each way, where U is the number of different ids in its batch, at most batch x fields = 256.
SPARSE = Story(
    name="sparse",
    title="Send rows, not tables",
    shows="A batch of clicks touches a hundred rows of ten thousand: sending only those is the same step in a tenth of the bytes.",
    settings={
        "engine": "simulated", "workers": 4, "servers": 1, "law": "deterministic", "pace": 0.1, "bandwidth": 5e6, "seconds": 8,
        "data": "clicks", "options": {"rows": 10_000}, "optimizer": "adagrad",
    },
    acts=(
        Act({"strategy": "sync-ps"}, says="The whole embedding table travels with every gradient, nearly all of it zeros."),
        Act({"strategy": "sparse-ps"}, says="Only the rows of the batch travel; the layers behind them are added up in a ring."),
    ),
    panels=("timeline", "links", "throughput", "accuracy", "hot_rows"),
)  # fmt: skip
