"""A model that is split over several workers equals the model of one process, also with replicas that are split
or sharded. In virtual time; `test_every_strategy.py` compares processes with it.
"""

import numpy as np
import pytest

import labkit as lk
from labkit.data import Batches
from labkit.random_streams import BATCHES, role_stream
from labkit.roles.shard import Shard
from labkit.strategies.fsdp import FSDP
from labkit.strategies.hybrid import Hybrid
from labkit.strategies.pipedream import PipeDream
from labkit.strategies.pipeline import Pipeline
from labkit.strategies.tensor_parallel import TensorParallel
from tests.contract.statements import closed

pytestmark = pytest.mark.sample(2)

DEEP = lk.Problem("digits", hidden=(16, 12, 10), batch_size=8, dtype="float64", seed=3)  # four layers
MOONS = lk.Problem("moons", hidden=(8, 6, 5), batch_size=8, options={"samples": 100})  # 80 to train on
ALONE = lk.SimulatedCluster(workers=1)
SHORT = [
    (Pipeline(micro_batches=2), 3),
    (PipeDream(), 3),
    (TensorParallel(), 3),
    (FSDP(), 3),
    (Hybrid(micro_batches=2), 4),
    (Hybrid(split="tensor", between="server"), 4),
]
NAMES = ["pipeline", "pipedream", "tensor", "fsdp", "hybrid, pipeline, all-reduce", "hybrid, tensor, server"]
SPLIT = pytest.mark.parametrize(("strategy", "workers"), SHORT, ids=NAMES)


def one_process(steps=50, replicas=1, problem=DEEP, **more):
    """What one process computes on the same batches: `replicas` sub-batches averaged, or a single one."""
    strategy = lk.SyncPS(**{"learning_rate": 0.2, **more})
    cluster = lk.SimulatedCluster(workers=replicas)
    return lk.train(problem, strategy, cluster, lk.Budget(updates=steps)).wait().result().parameters


def trained(engine, strategy, workers, steps=50, problem=DEEP):
    run = engine.wait(problem, strategy, lk.Budget(updates=steps), workers)
    assert run.summary()["updates"] == steps
    assert closed(run)["applied"] >= steps
    return run.result().parameters


@pytest.mark.parametrize(
    ("workers", "more"),
    [
        (1, {"micro_batches": 1}),
        (2, {"order": "interleaved", "micro_batches": 4}),
        (3, {"order": "gpipe", "micro_batches": 3}),  # micro-batches of 3, 3 and 2
        (4, {"micro_batches": 8}),
        (4, {"order": "zb-h1"}),
    ],
    ids=str,
)
def test_a_pipeline_equals_one_process(simulated, workers, more):
    parameters = trained(simulated, Pipeline(learning_rate=0.2, **more), workers)
    np.testing.assert_allclose(parameters, one_process(), rtol=0, atol=1e-10)
    assert np.abs(parameters - DEEP.objective().start(3)).max() > 0.1


def test_all_orders_end_with_the_same_bits(simulated):
    """Gradients of micro-batches are added in one order, for any order of the work."""
    made = {trained(simulated, Pipeline(order=order), 3, 20).tobytes() for order in ("gpipe", "1f1b", "zb-h1")}
    assert len(made) == 1


def test_each_stage_has_its_part_of_the_whole_networks_gradient(monkeypatch):
    """Each stage's gradient of every mini-batch, before the step is made with it, against the whole network's."""
    seen, real = {}, Shard.apply

    def apply(shard, gradient, rate):
        seen[gradient.step, shard.index] = gradient.values.copy(), shard.values.copy()
        return real(shard, gradient, rate)

    monkeypatch.setattr(Shard, "apply", apply)
    lk.train(DEEP, Pipeline(micro_batches=3), lk.SimulatedCluster(workers=4), lk.Budget(updates=10)).wait()
    net, data = DEEP.objective(), DEEP.dataset
    batches, out = Batches(data.x_train, data.y_train, 8, role_stream(3, "worker", 0, BATCHES)), np.empty(net.size)
    for step in range(10):
        gradient, weights = (np.concatenate([seen[step, k][i] for k in range(4)]) for i in range(2))
        batch = next(batches)
        net.gradient(weights, batch.x, batch.y, out)
        np.testing.assert_allclose(gradient, out, rtol=0, atol=1e-14)


@pytest.mark.parametrize(("hidden", "workers"), [((16, 12), 2), ((16, 12, 10), 5)], ids=str)
def test_tensor_parallel_training_equals_the_dense_network(simulated, hidden, workers):
    problem = lk.Problem("digits", hidden=hidden, batch_size=8, dtype="float64", seed=3)
    parameters = trained(simulated, TensorParallel(learning_rate=0.2), workers, problem=problem)
    np.testing.assert_allclose(parameters, one_process(problem=problem), rtol=0, atol=1e-12)


@pytest.mark.parametrize("workers", [1, 3, 4])
def test_fsdp_equals_one_process_with_a_bigger_batch(simulated, workers):
    parameters = trained(simulated, FSDP(learning_rate=0.2), workers)
    np.testing.assert_allclose(parameters, one_process(replicas=workers), rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("shape", "workers", "more"),
    [
        ("2x2", 4, {}),
        ("2x2", 4, {"between": "server", "order": "gpipe"}),
        ("2x2", 4, {"split": "tensor", "algorithm": "halving-doubling"}),
        ("3x1", 3, {"split": "tensor", "between": "server"}),
        ("1x3", 3, {"order": "zb-h1"}),
    ],
    ids=str,
)
def test_hybrid_training_equals_one_process_with_a_bigger_batch(simulated, shape, workers, more):
    parameters = trained(simulated, Hybrid(learning_rate=0.2, shape=shape, **more), workers)
    np.testing.assert_allclose(parameters, one_process(replicas=int(shape[0])), rtol=0, atol=1e-10)


@pytest.mark.parametrize("options", [{"optimizer": "adam", "weight_decay": 0.01}, {"clip_norm": 0.5}], ids=str)
@pytest.mark.parametrize(
    ("strategy", "workers", "replicas"),
    [(Pipeline, 3, 1), (TensorParallel, 3, 1), (FSDP, 3, 3), (Hybrid, 4, 2)],
    ids=["pipeline", "tensor", "fsdp", "hybrid"],
)
def test_options_of_all_strategies_hold_for_parts(strategy, workers, replicas, options):
    """Optimizers and decay are elementwise; a norm is that of all parts of one replica."""
    options = {**options, "learning_rate": 0.05}
    if strategy is FSDP and "clip_norm" in options:
        with pytest.raises(lk.BadInput, match=r"clip_norm=0\.5 needs the length"):
            strategy(**options)
        return
    run = lk.train(DEEP, strategy(**options), lk.SimulatedCluster(workers=workers), lk.Budget(updates=30)).wait()
    wanted = one_process(30, replicas, **options)
    np.testing.assert_allclose(run.result().parameters, wanted, rtol=0, atol=1e-10)
    assert np.abs(wanted - one_process(30, replicas, learning_rate=0.05)).max() > 1e-3


def test_fsdp_bytes(simulated):
    """3(N-1)/N M a step and worker in a real run, too: 2 all-gathers and a reduce-scatter of every layer."""
    problem = lk.Problem(lk.from_arrays(np.ones((40, 8)), np.ones((40, 8))), hidden=(16, 8), dtype="float64")
    run = simulated.wait(problem, FSDP(), lk.Budget(updates=5), 4)
    sender, count, category, sent = run.trace.column("messages", "sender", "bytes", "category", "sent")
    a_step = 3 * 3 * 3  # layers, collectives, messages of each
    for worker in run.trace.role_ids("worker"):
        mine = (sender == worker) & (category != 2)
        assert set(category[mine].tolist()) == {0}
        in_order = count[mine][np.argsort(sent[mine], kind="stable")]
        assert in_order[: 4 * a_step].sum() == 4 * 3 * 3 * problem.objective().size * 8 / 4


@SPLIT
def test_timing_only(simulated, strategy, workers):
    """Arrays without storage: the same roles, the same bytes a step."""
    problem = lk.Problem("moons", hidden=(8, 6, 5), batch_size=8, options={"samples": 100}, timing_only=True)
    run = simulated.wait(problem, strategy, lk.Budget(updates=7), workers)
    assert run.summary()["updates"] == 7
    closed(run)
    real = simulated.wait(MOONS, strategy, lk.Budget(updates=7), workers)
    for name in ("sender", "bytes", "sent", "received"):
        rows = [r.trace.column("messages", name, "category") for r in (run, real)]
        values = [np.sort(value[category == 0]) for value, category in rows]
        assert np.array_equal(*values)


@pytest.mark.parametrize(
    ("strategy", "workers", "servers", "text"),
    [
        (
            Pipeline(),
            5,
            None,
            "this one has 4, too few for 5 stages, one a worker. Allowed: stages from 1 to 4",
        ),
        (PipeDream(), 5, None, "Allowed: stages from 1 to 4"),
        (
            Pipeline(order="interleaved"),
            4,
            None,
            "too few for 4 stages, one a worker, of 2 chunks each. Allowed: stages x chunks up to 4",
        ),
        (Pipeline(order="interleaved", micro_batches=3), 2, None, "Allowed: a multiple of 2"),
        (Pipeline(micro_batches=9), 2, None, "a batch of 8 into pieces of less than one sample; allowed: 1 to 8"),
        (Pipeline(stages=3), 2, None, "Pipeline(stages=3) with workers=2: a worker is a stage; allowed: 2 or None"),
        (Pipeline(), 2, 1, "has no servers and was given servers=1"),
        (FSDP(), 2, 1, "has no servers and was given servers=1"),
        (TensorParallel(), 2, 1, "has no servers and was given servers=1"),
        (TensorParallel(), 9, None, "dense1 has 8 outputs, which cannot be split over 9 workers; allowed: 1 to 8"),
        (Hybrid(shape="2x3"), 4, None, "allowed: 1x4, 2x2, 4x1"),
        (Hybrid(shape="two"), 4, None, "allowed: 1x4, 2x2, 4x1"),
        (Pipeline(order="interleaved", chunks=5), 2, None, "Allowed: stages x chunks up to 4"),
        (Hybrid(shape="1x5"), 5, None, "too few for 5 stages, one a worker. Allowed: stages from 1 to 4"),
        (Hybrid(), 4, 2, "has no servers and was given servers=2"),
        (Hybrid(between="server"), 4, 1, "a server for each part, 2, not 1"),
    ],
    ids=str,
)
def test_impossible_shapes_are_refused_before_anything_starts(strategy, workers, servers, text):
    with pytest.raises(lk.BadInput) as error:
        lk.train(MOONS, strategy, lk.SimulatedCluster(workers=workers, servers=servers), lk.Budget(updates=1))
    assert text in str(error.value)


@pytest.mark.parametrize(
    ("strategy", "what"),
    [(Pipeline(), "cuts a model into stages"), (PipeDream(), "cuts"), (FSDP(), "cuts"), (Hybrid(), "cuts"),
     (TensorParallel(), "splits the weights of dense layers"), (Hybrid(split="tensor"), "splits")],
)  # fmt: skip
def test_a_model_without_layers_is_refused(strategy, what):
    with pytest.raises(lk.BadInput, match=f"{strategy.name} {what}.*: quadratic function of 1 dimension"):
        lk.train(lk.Problem("quadratic"), strategy, lk.SimulatedCluster(workers=4), lk.Budget(updates=1))


def test_similar_options_are_distinguished_in_errors():
    assert Pipeline(schedule="cosine:100").order == "1f1b"
    # an order of the stages; `schedule` is the learning rate's
    with pytest.raises(lk.BadInput, match="no schedule 'gpipe'"):
        Pipeline(schedule="gpipe")
    with pytest.raises(lk.BadInput, match="schedule"):
        Pipeline(schedule=[1])
    with pytest.raises(lk.BadInput, match="clip_norm=1 needs the length"):
        PipeDream(clip_norm=1.0)
