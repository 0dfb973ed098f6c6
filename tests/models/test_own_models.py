"""A model of a user is trained, identified, saved and shown as it is.

The truth is labkit's network, of which `own_models.MLP` is a rewrite with other code: equal to the last bit in float64.
"""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest

import labkit as lk
from labkit.engines.storage.store import Store
from labkit.manifest import load_manifest
from labkit.serialization import fingerprint
from labkit.spec import RunSpec
from tests.models.own_models import CNN, MLP, Dropout, Linear, StagedMLP

pytestmark = pytest.mark.simulated

NETWORK = lk.Problem("digits", hidden=(16, 12), batch_size=8, dtype="float64")
DATA_PARALLEL = [
    lk.AsyncPS(), lk.SyncPS(), lk.SSP(), lk.KSync(K=2), lk.KBatchSync(K=2), lk.KAsync(K=2), lk.KBatchAsync(K=2),
    lk.BackupWorkers(b=1), lk.Downpour(), lk.EASGD(), lk.RingAllReduce(), lk.BucketedAllReduce(), lk.HalvingDoubling(),
    lk.LocalSGD(), lk.DPSGD(), lk.ADPSGD(), lk.RingAllReduce(codec=lk.codecs.PowerSGD()), lk.AsyncPS(optimizer=lk.Adam()),
]  # fmt: skip
SPLIT = [
    (lk.FSDP(), 4), (lk.Pipeline(micro_batches=2), 3), (lk.Pipeline(order="zb-h1", micro_batches=4), 3),
    (lk.PipeDream(), 3), (lk.Hybrid(shape="2x3", micro_batches=2), 6), (lk.Hybrid(shape="2x2", between="server"), 4),
]  # fmt: skip


def own(model):
    return lk.Problem("digits", model=model, batch_size=8, dtype="float64")


def trained(problem, strategy, workers=4, updates=30, **more):
    return lk.train(problem, strategy, lk.SimulatedCluster(workers=workers), lk.Budget(updates=updates), **more).wait()


@pytest.mark.sample(9)
@pytest.mark.parametrize("strategy", DATA_PARALLEL, ids=lambda s: f"{s.name}-{s.optimizer}")
def test_a_rewritten_network_equals_the_original_bitwise(strategy):
    original = trained(NETWORK, strategy)
    for model in (MLP(), StagedMLP()):
        run = trained(own(model), strategy)
        assert run.result().parameters.tobytes() == original.result().parameters.tobytes(), model
        assert run.summary()["accuracy"] == original.summary()["accuracy"]
        assert run.summary()["loss"] == original.summary()["loss"]
        assert run.summary()["ledger"]["closes"]
        assert run.trace.header.layers == original.trace.header.layers == ("dense1", "dense2", "output")
        # a gradient in one piece records its first layer first
        norms = [sorted(each.trace.column("norms", "gradient").tolist()) for each in (run, original)]
        assert norms[0] == norms[1]


@pytest.mark.parametrize(("strategy", "workers"), SPLIT, ids=str)
def test_a_model_with_stages_is_divided_as_the_network(strategy, workers):
    parameters = [trained(problem, strategy, workers).result().parameters for problem in (NETWORK, own(StagedMLP()))]
    assert parameters[0].tobytes() == parameters[1].tobytes()
    times = [
        trained(replace(problem, timing_only=True), strategy, workers).trace.now
        for problem in (NETWORK, own(StagedMLP()))
    ]
    # the network counts no multiplications of biases
    assert times[0] == pytest.approx(times[1], rel=0.05)
    with pytest.raises(
        lk.BadInput, match=rf"{strategy.name} cuts a model into stages, .* this one has none: MLP\(hidden="
    ):
        trained(own(MLP()), strategy, workers)


def test_a_model_whose_dense_layers_are_unknown_is_not_split():
    for strategy in (lk.TensorParallel(), lk.Hybrid(split="tensor")):
        with pytest.raises(
            lk.BadInput, match=r"splits the weights of dense layers.* this model is not made of them: MLP"
        ):
            trained(own(MLP()), strategy)


def test_random_gradients_are_reproducible_and_differ_between_workers_and_steps():
    draws = []

    class Recorded(Dropout):
        def gradient(self, p, x, y, g, rng):
            draws.append(float(rng.random()))
            return super().gradient(p, x, y, g, rng)

    lk.check_model(own(Recorded()))
    found = []
    for _ in range(2):
        draws.clear()
        run = trained(own(Recorded()), lk.RingAllReduce(), workers=3)
        found.append((run.result().parameters.tobytes(), draws[-90:]))
    assert found[0] == found[1]
    assert len(set(found[0][1])) == 90
    other = trained(replace(own(Recorded()), seed=1), lk.RingAllReduce(), workers=3)
    assert other.result().parameters.tobytes() != found[0][0]
    kept = trained(own(Dropout()), lk.BucketedAllReduce(), workers=3)  # one piece, the same stream
    assert kept.summary()["accuracy"] > 0.5


def test_an_error_in_the_model_names_the_place_and_ends_the_run():
    class Later(Linear):
        def gradient(self, p, x, y, g):
            if len(x) == 11:
                raise ZeroDivisionError("eleven")
            return super().gradient(p, x, y, g)

    problem = replace(own(Later()), batch_size=11)
    with pytest.raises(
        lk.RoleError, match=r"worker-\d failed at step 0: .*Later.gradient raised ZeroDivisionError: eleven on 11 rows"
    ):
        trained(problem, lk.AsyncPS())


# identity -------------------------------------------------------------------------------------------------------------


def test_options_code_and_shapes_identify_a_model():
    class Other(Linear):
        def scores(self, p, x):
            return super().scores(p, x) * 1.0

    class Rewritten(Linear):
        def scores(self, p, x):
            return super().scores(p, x) * 2.0

    Rewritten.__qualname__, Rewritten.__name__ = Other.__qualname__, "Other"
    prints = [json.dumps(fingerprint(own(model))) for model in (CNN(), CNN(16), Linear(), Other(), Rewritten())]
    assert len({*prints, json.dumps(fingerprint(NETWORK))}) == 6
    assert json.dumps(fingerprint(own(CNN()))) == prints[0]


def test_only_a_run_of_the_same_model_is_resumed(tmp_path):
    where = str(tmp_path / "run")
    trained(own(CNN()), lk.SyncPS(), checkpoint=where)
    model = load_manifest(Store(where)).run["problem"]["fingerprint"]["model"]
    assert (model["name"], model["options"]) == ("CNN", {"channels": 8, "image": "(8, 8)"})
    assert model["shapes"]["conv.weight"] == [9, 8]
    with pytest.raises(lk.BadInput, match=r"not labkit's own .CNN.: give it"):
        lk.resume(where)
    with pytest.raises(lk.BadInput, match=r"has another one, model.options.channels 8 instead of 16"):
        lk.resume(where, problem=own(CNN(16)))
    with pytest.raises(lk.BadInput, match="has another one"):
        lk.resume(where, problem=NETWORK)
    assert lk.resume(where, problem=own(CNN())).wait().summary()["updates"] == 30


def test_the_header_of_a_trace_names_the_model(tmp_path):
    runs = [trained(problem, lk.SyncPS()) for problem in (own(CNN()), own(CNN(16)), NETWORK)]
    read = lk.load_npz(lk.save_npz(runs[0].trace, tmp_path / "trace.npz"))
    for trace in (runs[0].trace, read):
        assert trace.header.problem.architecture == ("model", "CNN(channels=8, image=(8, 8))")
        assert trace.header.layers == ("conv", "output")
        assert trace.header.problem.model["shapes"]["output.bias"] == (10,)
    assert "hidden" not in runs[0].trace.header.problem.to_dict()
    assert "model" not in runs[2].trace.header.problem.to_dict()


def test_a_specification_keeps_a_model_and_has_no_text_of_it():
    spec = RunSpec(own(CNN())).changed(strategy="pipeline", workers=3)  # which suggests layers for a network
    assert spec.problem.model == CNN()
    assert spec.to_dict()["problem"]["custom"] == "CNN"
    with pytest.raises(lk.BadInput, match="has no short text"):
        spec.write("model")
    assert RunSpec(NETWORK).read("model", RunSpec(NETWORK).write("model")) is None


# saving ---------------------------------------------------------------------------------------------------------------


def test_a_saved_model_is_loaded_with_its_code(tmp_path):
    model = trained(own(CNN()), lk.SyncPS()).result()
    path, samples = model.save(tmp_path / "cnn.npz"), np.random.default_rng(0).normal(size=(5, 64))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = lk.load(path, model=CNN())
    assert loaded.predict_proba(samples).tobytes() == model.predict_proba(samples).tobytes()
    again = lk.load(loaded.save(tmp_path / "again.npz"), model=CNN())
    assert again.predict(samples).tobytes() == model.predict(samples).tobytes()
    assert str(again) == str(model)

    network = trained(NETWORK, lk.SyncPS()).result().save(tmp_path / "network.npz")
    for call, message in [
        (
            lambda: lk.load(path),
            r"holds the parameters of CNN\(channels=8, .*no code: give the model, as lk.load\(.*, model=CNN",
        ),
        (
            lambda: lk.load(path, model=CNN(16)),
            "is another model; the difference is its options: .*16.* instead of .*8",
        ),
        (lambda: lk.load(path, model=Linear()), "the difference is its name: 'Linear' instead of 'CNN'"),
        (lambda: lk.load(network, model=CNN()), "holds a network of labkit: leave model="),
    ]:
        with pytest.raises(lk.BadInput, match=message):
            call()


def test_changed_code_of_a_saved_model_is_a_warning(tmp_path):
    path = trained(own(Linear()), lk.SyncPS()).result().save(tmp_path / "linear.npz")
    kind = type("Linear", (Linear,), {"scores": lambda self, p, x: -Linear.scores(self, p, x)})
    with pytest.warns(UserWarning, match="the code of Linear is not what it was when the file was written"):
        lk.load(path, model=kind())


# displays -------------------------------------------------------------------------------------------------------------


def test_descriptions_name_the_model_and_no_layers_that_it_does_not_have():
    problem = own(CNN())
    run = trained(problem, lk.SyncPS())
    title, *rows = str(run.result()).splitlines()
    result = {row.split()[0]: " ".join(row.split()[1:]) for row in rows}
    assert title == "Predictor of digits"
    assert result["network"] == "CNN(channels=8, image=(8, 8)), layers conv, output"
    assert result["size"] == "2,970 parameters, 23.8 kB as float64"
    assert result["input"] == "samples, shape (n, 64), as in the data set; predict standardises them"
    assert "network" in str(problem)
    assert "CNN(channels=8, image=(8, 8)), layers conv, output: 2,970 parameters" in str(problem)
    for text in (str(problem), repr(problem), str(run.result())):
        assert "128" not in text
    timing = replace(problem, timing_only=True)
    assert timing.objective().architecture == problem.objective().architecture
