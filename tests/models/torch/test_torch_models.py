"""Modules of PyTorch are trained, divided, identified and refused as they should be.

The truth is a plain loop in PyTorch, and labkit's own network with the same initial values.
"""

import functools
import json
import re
import subprocess
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import labkit as lk
from labkit.engines.storage.store import Store
from labkit.manifest import load_manifest
from labkit.serialization import fingerprint
from tests.models.torch import nets

# The plain loops. Two threads of PyTorch on two busy cores are many times slower than one.
torch.set_num_threads(1)
NETWORK = lk.Problem("digits", hidden=(16, 12), batch_size=8, dtype="float64")
SMOOTH = nn.CrossEntropyLoss(label_smoothing=0.1)


def own(make, **more):
    return lk.Problem("digits", model=lk.from_torch(make, **more), batch_size=8, dtype="float64")


def trained(problem, strategy, workers=3, updates=30, **more):
    return lk.train(problem, strategy, lk.SimulatedCluster(workers=workers), lk.Budget(updates=updates), **more).wait()


def plain_loop(problem, make, workers, steps, loss, optimizer):
    """Train without labkit: the mean of the gradients of some workers, step by step. Returns {name: parameter}."""
    net, objective = make().double(), problem.objective()
    start = objective.start(problem.seed)
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            parameter.copy_(torch.tensor(objective.layout.view(start, name)))
    stepper, batches = optimizer(net.parameters()), problem.batches(workers)
    for _ in range(steps):
        stepper.zero_grad()
        for batch in map(next, batches):
            scores = net(torch.tensor(batch.x).reshape(-1, 1, 8, 8))
            (loss(scores, torch.tensor(batch.y)) / workers).backward()
        stepper.step()
    return {name: parameter.detach().numpy() for name, parameter in net.named_parameters()}


@pytest.mark.sample(7, slow=0)
@pytest.mark.parametrize(
    "make", [nets.lenet, nets.mlp, nets.Whole, nets.Tied, nets.Transformer], ids=lambda m: m.__name__
)
@pytest.mark.parametrize("loss", [None, SMOOTH], ids=["cross-entropy", "criterion"])
@pytest.mark.parametrize(
    ("strategy", "workers"),
    [(lk.AsyncPS(learning_rate=0.05), 1), (lk.RingAllReduce(learning_rate=0.05), 2)],
    ids=lambda v: getattr(v, "name", v),
)
def test_a_hundred_steps_equal_those_of_a_plain_loop(make, loss, strategy, workers):
    problem = own(make, loss=loss)
    run = trained(problem, strategy, workers, updates=100)
    expected = plain_loop(
        problem, make, workers, 100, loss or nn.functional.cross_entropy, functools.partial(torch.optim.SGD, lr=0.05)
    )
    layout, found = problem.objective().layout, run.result().parameters
    assert list(expected) == list(layout.names)
    for name, values in expected.items():
        np.testing.assert_allclose(layout.view(found, name), values, rtol=0, atol=1e-12, err_msg=name)


DIVIDED = [
    (lk.SyncPS(), 4), (lk.AsyncPS(optimizer=lk.Adam()), 4), (lk.LocalSGD(), 4), (lk.BucketedAllReduce(), 4), (lk.FSDP(), 4),
    (lk.Pipeline(micro_batches=2), 3), (lk.Pipeline(order="zb-h1", micro_batches=4), 3), (lk.PipeDream(), 3),
    (lk.Hybrid(shape="2x3", micro_batches=2), 6), (lk.Hybrid(shape="2x2", between="server"), 4),
]  # fmt: skip


@pytest.mark.parametrize(("strategy", "workers"), DIVIDED, ids=str)
def test_a_sequential_is_trained_and_divided_as_labkits_network(strategy, workers):
    expected = trained(NETWORK, strategy, workers)
    problem = own(nets.same_as_network, input=(64,))
    found = trained(problem, strategy, workers)
    layouts = [each.objective().layout for each in (NETWORK, problem)]
    assert found.trace.header.layers == ("dense1", "dense2", "output")
    assert found.summary()["ledger"]["closes"]
    for name in layouts[0].names:
        theirs, ours = (layout.view(run.result().parameters, name) for layout, run in zip(layouts, (expected, found)))
        np.testing.assert_allclose(ours.T, theirs, rtol=0, atol=1e-11, err_msg=name)


def test_stages_compute_the_bits_of_the_whole():
    runs = [
        trained(problem, strategy, workers=2)
        for problem in (own(nets.lenet), own(nets.Whole))
        for strategy in (lk.RingAllReduce(), lk.BucketedAllReduce())
    ]
    assert len({run.result().parameters.tobytes() for run in runs}) == 1
    stages = own(nets.lenet).objective().stages
    assert [stage.outputs for stage in stages] == [6 * 16, 64, 32, 10]
    pixels = [64 * 9 * 6, 16 * 9 * 6 * 16, 64 * 32, 320]
    assert [stage.multiply_adds for stage in stages] == pixels  # of a convolution more than its parameters
    with pytest.raises(
        lk.BadInput, match=r"Pipeline cuts a model into stages, .* this one has none: from_torch\(make=Whole"
    ):
        trained(own(nets.Whole), lk.Pipeline(), 2)
    with pytest.raises(lk.BadInput, match="splits the weights of dense layers"):
        trained(own(nets.lenet), lk.TensorParallel(), 2)


@pytest.mark.parametrize("make", [nets.lenet, nets.Dropout, nets.Frozen], ids=lambda m: m.__name__)
def test_a_run_in_virtual_time_is_reproducible(make):
    torch.manual_seed(1)
    runs = [trained(own(make), lk.AsyncPS()).result().parameters.tobytes() for _ in range(2)]
    assert runs[0] == runs[1]
    assert trained(replace(own(make), seed=1), lk.AsyncPS()).result().parameters.tobytes() != runs[0]


def test_ids_are_whole_numbers():
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 50, (300, 5))
    model = lk.from_torch(nets.words, input="ids")
    data = lk.from_arrays(ids, ids[:, 0] % 3, standardize=False)
    problem = lk.Problem(data, model=model)
    lk.check_model(problem)
    assert trained(problem, lk.SyncPS(learning_rate=1.0), updates=300).summary()["accuracy"] > 0.6
    with pytest.raises(lk.BadInput, match=r"the samples are not whole numbers.*standardize=False"):
        lk.check_model(lk.Problem(lk.from_arrays(ids, ids[:, 0] % 3), model=model))


def test_a_regression_has_half_of_the_squared_error():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3))
    data = lk.from_arrays(x, x @ rng.normal(size=(3, 2)), dtype="float64")
    problems = [
        lk.Problem(data, model=lk.from_torch(functools.partial(nn.Linear, 3, 2), loss=loss))
        for loss in (None, "squared-error", lambda scores, y: ((scores - y) ** 2).sum() / (2 * len(y)))
    ]
    runs = [trained(problem, lk.SyncPS(), updates=100) for problem in problems]
    for problem, run in zip(problems, runs):
        lk.check_model(problem)
        np.testing.assert_allclose(run.result().parameters, runs[0].result().parameters, atol=1e-12)
        assert run.summary()["loss"] == pytest.approx(runs[0].summary()["loss"])
        assert run.summary()["loss"] < 0.05


@pytest.mark.parametrize(
    ("model", "note"),
    [
        (lk.from_torch(nets.lenet), ""),
        (lk.from_torch(nets.Tied), ""),
        (lk.from_torch(nets.Transformer), ""),
        (lk.from_torch(nets.Frozen), ""),
        (lk.from_torch(nets.Transposed), ""),
        (lk.from_torch(functools.partial(nets.BatchNorm, functools.partial(nn.GroupNorm, 2))), ""),
        (lk.from_torch(nets.lenet, loss=SMOOTH), ""),
        (lk.from_torch(nets.Dropout), "because the gradient is random"),
        (lk.from_torch(nets.Float32), "does not compute with float64 (Float32: forward raised RuntimeError"),
    ],
    ids=repr,
)
def test_sound_modules_pass_all_checks(model, note):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text = str(lk.check_model(lk.Problem("digits", model=model)))
    assert "passes all checks" in text
    assert ("Not checked" in text) == bool(note)
    assert note in text


def test_what_a_module_receives_is_read_and_the_process_keeps_its_settings():
    torch.manual_seed(5)
    torch.set_num_threads(2)
    state = torch.get_rng_state()
    for make in (nets.lenet, nets.Whole, nets.Dropout):
        objective = own(make).objective()
        batch = next(own(make).batches()[0])
        params, out = objective.start(0), np.empty(objective.size)
        for values in (params, batch.x, batch.y):
            values.flags.writeable = False
        before = params.tobytes()
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("error")
            draws = (np.random.default_rng(0),) if objective.stochastic else ()
            objective.gradient(params, batch.x, batch.y, out, *draws)
            objective.scores(params, batch.x)
            assert not torch.is_grad_enabled()
        assert params.tobytes() == before
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    assert threads == 2
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bits_do_not_depend_on_where_the_parameters_lie_in_memory(dtype):
    """Products of PyTorch do, above all those of a single sample."""
    for make in (nets.lenet, nets.mlp, nets.Tied):
        problem = lk.Problem("digits", model=lk.from_torch(make), batch_size=1, dtype=dtype)
        objective, batch = problem.objective(), next(problem.batches()[0])
        start = objective.start(0)
        memory, computed = np.empty(start.nbytes + 128, np.uint8), set()
        first = -memory.ctypes.data % 64
        for offset in range(0, 64, start.itemsize):
            params = memory[first + offset :][: start.nbytes].view(dtype)
            params[:] = start
            out = np.full_like(params, np.nan)
            objective.gradient(params, batch.x, batch.y, out)
            computed.add(out.tobytes() + objective.scores(params, batch.x).tobytes())
        assert len(computed) == 1


def test_a_run_computes_with_one_thread_of_every_library_and_restores_them():
    """MKL has a number of threads of its own, which `torch.get_num_threads` does not show."""
    seen = set()

    class Watched(nets.Tied):
        def forward(self, x):
            seen.add(threads())
            return super().forward(x)

    def threads():
        return torch.get_num_threads(), *re.findall(r"max_threads\(\) : (\d+)", torch.__config__.parallel_info())

    torch.set_num_threads(2)
    try:
        before = threads()
        for _ in range(2):  # before the first one, four threads compute at once to check the model
            trained(own(Watched), lk.SyncPS(), updates=10)
        assert threads() == before
        assert seen == {(1, *["1"] * (len(before) - 1))}
    finally:
        torch.set_num_threads(1)


# refusals -------------------------------------------------------------------------------------------------------------

NET = nets.lenet()


@pytest.mark.parametrize(
    ("give", "message"),
    [
        (lambda: lk.from_torch(NET), r"make=Sequential; give a function .* each role and thread makes a module"),
        (lambda: own(lambda: NET).objective().start(0), "returned the same module again.*not lambda: net"),
        (lambda: own(dict).objective(), r"dict returned \{\}; a torch.nn.Module is needed"),
        (lambda: own(nets.BatchNorm).objective(), "changes 'norm.running_mean', which is a buffer.*GroupNorm"),
        (lambda: own(nets.RunningMean).objective(), "changes 'mean', which is a buffer"),
        (lambda: own(nets.MaxNorm).objective(), "changes the parameter 'output.weight'"),
        (lambda: own(nets.lenet, device="cuda").objective(), "device='cuda' is not available on this machine"),
        (lambda: own(nets.lenet, device="meta").objective(), "device='meta' is not available"),
        (lambda: own(nets.lenet, device="gpu").objective(), "device='gpu' is not available"),
        (lambda: own(nets.lenet, input=(3, 8, 8)).objective(), r"input=\(3, 8, 8\) has 192 numbers; a sample .* has 64"),
        (lambda: own(lambda: nn.Linear(64, 10)).objective(), r"RuntimeError: .* on shape \(2, 1, 8, 8\).*nn.Flatten\(\)"),
        (lambda: own(functools.partial(nets.Whole, nn.Flatten)).objective(), r"shape \(2, 64\) for 2 samples.* \(2, 10\)"),
        (lambda: own(nets.lenet, loss="squared-error").objective(), "predicts values; the data have labels"),
        (
            lambda: lk.check_model(own(nets.lenet, loss=nn.CrossEntropyLoss(reduction="none"))),
            r"loss returned a tensor of shape \(8,\); the mean loss",
        ),
        (
            lambda: lk.check_model(own(nets.lenet, loss=nn.CrossEntropyLoss(reduction="sum"))),
            "lenet: gradient does not return the mean .*reduction='mean'",
        ),
        (
            lambda: lk.check_model(own(nets.lenet, loss=lambda scores, y: scores + torch.ones(3))),
            r"lenet: loss raised RuntimeError: .* on shape \(8, 10\) \(test_torch_models.py, line",
        ),
        (lambda: own(nets.words, input=(64,)).objective(), r"words: forward raised RuntimeError: .* input='ids'"),
    ],
)  # fmt: skip
def test_what_cannot_be_trained_is_refused_with_a_way_out(give, message):
    with pytest.raises(lk.BadInput, match=message):
        give()


# identity and files -----------------------------------------------------------------------------------------------------


def test_make_options_and_code_identify_a_module(tmp_path):
    def wide():
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

    def other():
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 10, bias=True))

    other.__qualname__ = wide.__qualname__
    models = [
        lk.from_torch(nets.lenet), lk.from_torch(nets.mlp), lk.from_torch(nets.lenet, loss=SMOOTH), lk.from_torch(wide),
        lk.from_torch(other), lk.from_torch(functools.partial(nets.Whole, nets.mlp)), lk.from_torch(nets.Whole),
    ]  # fmt: skip
    prints = [json.dumps(fingerprint(lk.Problem("digits", model=model))) for model in models]
    assert len(set(prints)) == len(models)
    assert json.dumps(fingerprint(lk.Problem("digits", model=lk.from_torch(nets.lenet)))) == prints[0]

    where = str(tmp_path / "run")
    trained(own(nets.lenet), lk.SyncPS(), checkpoint=where)
    saved = load_manifest(Store(where)).run["problem"]["fingerprint"]["model"]
    assert (saved["name"], saved["options"]) == ("from_torch", {"make": "lenet"})
    assert saved["shapes"]["3.weight"] == [16, 6, 3, 3]
    with pytest.raises(lk.BadInput, match=r"has another one, model\.options.make 'lenet' instead of 'mlp'"):
        lk.resume(where, problem=own(nets.mlp))
    assert lk.resume(where, problem=own(nets.lenet)).wait().summary()["updates"] == 30


def test_a_saved_module_is_loaded_with_its_code(tmp_path):
    model = trained(own(nets.lenet), lk.SyncPS()).result()
    path, samples = model.save(tmp_path / "lenet.npz"), np.random.default_rng(0).normal(size=(5, 64))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = lk.load(path, model=lk.from_torch(nets.lenet))
    assert loaded.predict_proba(samples).tobytes() == model.predict_proba(samples).tobytes()
    assert "from_torch(make=lenet), layers 0, 3, 7, 9" in str(loaded)
    with pytest.raises(lk.BadInput, match=r"holds the parameters of from_torch\(make=lenet\), a model of your own"):
        lk.load(path)
    with pytest.raises(lk.BadInput, match="the difference is its options"):
        lk.load(path, model=lk.from_torch(nets.mlp))

    def lenet():
        net = nets.lenet()
        net.append(nn.Identity())
        return net

    with pytest.warns(UserWarning, match="the code of lenet is not what it was"):
        lk.load(path, model=lk.from_torch(lenet))


def test_pytorch_is_imported_only_for_a_module():
    code = (
        "import sys, labkit as lk; lk.from_torch; problem = lk.Problem('digits'); problem.objective(); "
        "model = lk.from_torch(dict); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr


# processes ------------------------------------------------------------------------------------------------------------


def test_a_ring_of_processes_computes_what_virtual_time_does(dask_processes):
    for make in (nets.lenet, nets.Dropout):
        problem = own(make)
        with lk.train(
            problem, lk.RingAllReduce(), dask_processes.resized(workers=2, servers=0), lk.Budget(updates=30)
        ) as run:
            run.wait()
        expected = trained(problem, lk.RingAllReduce(), workers=2)
        np.testing.assert_allclose(run.result().parameters, expected.result().parameters, rtol=0, atol=1e-10)


def test_samples_have_the_shape_of_the_data_set_by_default():
    rng = np.random.default_rng(0)
    data = lk.from_arrays(rng.normal(size=(40, 3, 8, 6)), rng.integers(0, 2, 40), name="colours")
    shapes = set()

    def make():
        net = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(2 * 6 * 4, 2))
        net.register_forward_pre_hook(lambda module, given: shapes.add(given[0].shape[1:]))
        return net

    trained(lk.Problem(data, model=lk.from_torch(make)), lk.SyncPS(), updates=2)
    assert shapes == {(3, 8, 6)}
