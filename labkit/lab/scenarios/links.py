"""Scenarios about traffic: saturation of a link, and methods to send fewer bytes. All are in virtual time, with a chosen
bandwidth.

The model has M bytes, a link needs b seconds per byte, and a gradient takes c seconds. With N workers, a synchronous step
takes

    one server       c + (N + 1) M b              on its link: N models out and N gradients in, at the same time
    ring             c + 2 (N - 1)/N M b          for any N
    H local steps    c + 2 (N - 1)/N M b / H      on average
    buckets          the end of bucket k is max(end of bucket k - 1, end of its layers' backward pass) + its all-reduce,
                     2 (N - 1) (a + M_k b / N) for a latency of a seconds; a step ends with its last bucket
"""

from __future__ import annotations

from .scenario import Question, Scenario, ScenarioStep

SIMULATED = {"engine": "simulated", "distribution": "deterministic"}

# N = 16, M = 26,280 bytes, b = 1/800,000: with one server, a step takes 658 ms, and the server's link is busy for 80% of
# the time. In the ring, a step takes 162 ms, and each link is busy for 38% of the time.
FULL_LINK = Scenario(
    name="saturated-link",
    title="The server's link saturates",
    summary="One server sends every model and receives every gradient; shards share that, and a ring needs no server.",
    settings={**SIMULATED, "workers": 16, "pace": 0.1, "bandwidth": 8e5, "seconds": 7, "hidden": (64, 32)},
    steps=(
        ScenarioStep(
            {"strategy": "sync-ps", "servers": 1},
            text="One server: its link is almost always busy, and 16 workers wait for it.",
        ),
        ScenarioStep(
            {"strategy": "sync-ps", "servers": 4}, pin=False,
            text="Four servers: each has a quarter of the model, and of the traffic.",
        ),
        ScenarioStep(
            {"strategy": "ring-all-reduce"},
            text="Ring all-reduce: no server, and no worker sends more than two models per step.",
        ),
    ),
    panels=("timeline", "links", "throughput"),
)  # fmt: skip

# A step takes c = 100 ms. Communication takes 2 (N - 1)/N M b = 92 ms more, in every step or in every eighth step.
LOCAL_STEPS = Scenario(
    name="local-steps",
    title="Communicate less often",
    summary="Workers that average their models every eighth step send an eighth of the bytes and hardly wait.",
    settings={**SIMULATED, "workers": 8, "pace": 0.1, "bandwidth": 5e5, "seconds": 9, "hidden": (64, 32)},
    steps=(
        ScenarioStep(
            {"strategy": "ring-all-reduce"},
            text="Ring all-reduce in every step: as much time for communication as for computing.",
        ),
        ScenarioStep({"strategy": "local-sgd", "H": 8}, text="Local SGD: eight local steps, then the mean of all models."),
    ),
    panels=("timeline", "throughput", "accuracy"),
)  # fmt: skip

# N = 4, c = 400 ms, of which the backward pass is 267 ms, M = 152,360 bytes, a = 5 ms, b = 1 us: an all-reduce of the model
# takes 259 ms. A step takes 659 ms with one bucket, 666 ms with ten, which pay 10 x 6 latencies, and 544 ms with three.
BUCKETS = Scenario(
    name="buckets",
    title="Why does DDP send in buckets?",
    summary="Communication is hidden behind the backward pass if it begins early, but every message costs a latency.",
    settings={
        **SIMULATED, "workers": 4, "pace": 0.4, "bandwidth": 1e6, "latency": 0.005, "seconds": 6, "hidden": (64,) * 9,
        "eval_every": 5,
    },
    steps=(
        ScenarioStep(
            {"strategy": "ring-all-reduce", "seconds": 60},
            text="Four workers compute a gradient of ten layers, the last layer first. Then they sum it over the network.",
        ),
        ScenarioStep(
            {"strategy": "ring-all-reduce"},
            text="Here is the result. One message for the whole gradient: communication begins after the backward pass.",
        ),
        ScenarioStep(
            {"strategy": "bucketed-all-reduce", "bucket_size": 1}, pin=False,
            text="Each layer by itself, as soon as it is known: ten sums overlap, but each of them costs six latencies.",
        ),
        ScenarioStep(
            {"strategy": "bucketed-all-reduce", "bucket_size": 40_000}, pin=False,
            text="Buckets of three or four layers, as in DDP. Change bucket size and bandwidth: which size is best then?",
        ),
    ),
    question=Question(
        "The gradient of the last layer is known first. Which way to sum it over the workers gives the shortest step?",
        ("all layers at once", "each layer by itself", "a few layers together"), 2,
        "You answered {answer}. Expected: {right}. All at once begins late, and nothing is hidden; each layer by itself begins "
        "early, and pays the latency ten times. With buckets a step takes 0.54 s instead of 0.66 s.",
    ),
    asks_at=5.0,
    panels=("timeline", "gradient_flow", "throughput"),
)  # fmt: skip

# float16: 2 bytes per entry instead of 4. PowerSGD of rank r: for every n x m matrix of the model, the number of bytes is
# divided by nm/(r(n + m)).
FEWER_BYTES = Scenario(
    name="fewer-bytes",
    title="Gradient compression",
    summary="Half precision, or an approximation of rank 2: fewer bytes on a slow link, and more steps in the same time.",
    settings={
        **SIMULATED, "workers": 8, "pace": 0.1, "bandwidth": 2e5, "seconds": 7, "hidden": (64, 32),
        "strategy": "ring-all-reduce",
    },
    steps=(
        ScenarioStep({"codec": None}, text="A slow link, and every gradient in full: 4 bytes per number."),
        ScenarioStep({"codec": "float16"}, pin=False, text="Half precision, 2 bytes per number: half the time on the link."),
        ScenarioStep(
            {"codec": "power-sgd:2"},
            text="PowerSGD of rank 2: two columns and two rows per matrix; error feedback sends the rest later.",
        ),
    ),
    panels=("timeline", "throughput", "accuracy"),
)  # fmt: skip

# Dense: the table, rows x columns x 4 bytes, is sent in both directions for every gradient. Sparse: 2 U (8 + 4 columns)
# bytes are sent for the table, where U is the number of different ids among the batch x fields = 256 ids of a batch, and
# the 178 values of the other layers.
SPARSE = Scenario(
    name="sparse",
    title="Sparse updates of an embedding table",
    summary="A batch of clicks needs at most 200 of 10,000 rows: sending only these takes a fortieth of the bytes.",
    settings={
        **SIMULATED, "workers": 4, "servers": 1, "pace": 0.1, "bandwidth": 5e6, "seconds": 8, "data": "clicks",
        "options": {"rows": 10_000}, "hidden": (16,), "optimizer": "adagrad",
    },
    steps=(
        ScenarioStep({"strategy": "sync-ps"}, text="Every gradient is the whole embedding table, nearly all of it zeros."),
        ScenarioStep(
            {"strategy": "sparse-ps"},
            text="Only the rows of the batch are sent; the gradients of the other layers are summed by ring all-reduce.",
        ),
    ),
    panels=("timeline", "links", "throughput"),
)  # fmt: skip
