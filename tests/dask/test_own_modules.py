"""Dask workers that others have started, in processes that have none of the user's modules."""

import importlib
import re
import sys
import textwrap

import pytest

import labkit as lk
from tests.dask.helpers import closes, computes, nothing_left, scheduler_and_workers

pytestmark = [pytest.mark.slow, pytest.mark.processes]
NODES = 4  # a worker, a server, the chief, and one for a role that was lost
FILES = {
    "remote_helpers.py": """
        import numpy as np
        async def exchanged(ctx, gradient):
            import labkit as lk
            return await lk.push_pull(ctx, gradient)
        def softmax(scores):
            e = np.exp(scores - scores.max(axis=1, keepdims=True))
            return e / e.sum(axis=1, keepdims=True)
    """,
    "remote_model.py": """
        from dataclasses import dataclass
        import numpy as np
        import labkit as lk
        import remote_helpers

        @dataclass(frozen=True)
        class Softmax(lk.NumpyModel):
            scale: float = 0.1
            def shapes(self, data):
                return {"out.weight": (data.features, data.outputs)}
            def init(self, p, rng):
                p["out.weight"][...] = self.scale * rng.normal(size=p["out.weight"].shape)
            def scores(self, p, x):
                return x @ p["out.weight"]
            def gradient(self, p, x, y, g):
                d = remote_helpers.softmax(self.scores(p, x))
                rows = np.arange(len(y))
                loss = -np.log(d[rows, y]).mean()
                d[rows, y] -= 1
                g["out.weight"][...] = x.T @ d / len(y)
                return float(loss)
    """,
    "remote_strategy.py": """
        from dataclasses import dataclass
        import labkit as lk

        @dataclass(frozen=True)
        class Exchanging(lk.AsyncPS):
            async def worker(self, ctx, model):
                from remote_helpers import exchanged
                weights = await lk.pull(ctx)
                for batch in ctx.batches():
                    weights = await exchanged(ctx, await ctx.compute(model.gradient, weights, batch))
    """,
    "remote_codec.py": """
        from dataclasses import dataclass
        import labkit as lk

        @dataclass(frozen=True)
        class Mine(lk.codecs.Float16):
            pass
    """,
    "remote_schedule.py": """
        from dataclasses import dataclass

        @dataclass(frozen=True)
        class Constant:
            def __call__(self, update):
                return 1.0
    """,
    "site-packages/remote_package.py": "RATE = 0.5\n",
    "remote_needs.py": """
        from dataclasses import dataclass
        import labkit as lk
        import remote_package

        @dataclass(frozen=True)
        class Needs(lk.AsyncPS):
            async def worker(self, ctx, model):
                ctx.note(remote_package.RATE)
    """,
}


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with scheduler_and_workers(tmp_path_factory.mktemp("others"), NODES) as (address, _):
        yield address


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """Imports one of the modules, which only this process has."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    yield importlib.import_module
    for name in [name for name in sys.modules if name.startswith("remote_")]:
        del sys.modules[name]


def cluster_of(address):
    return lk.DaskCluster(address, workers=1, servers=1, may_kill=True)


def test_all_that_a_run_refers_to_is_sent_also_to_roles_that_restart_or_resume(address, modules, tmp_path):
    """A strategy that imports a module when it is called, a model, a codec, and a schedule, each in its own module."""
    problem = lk.Problem("digits", model=modules("remote_model").Softmax())
    strategy = modules("remote_strategy").Exchanging(
        learning_rate=1.0, codec=modules("remote_codec").Mine(), schedule=modules("remote_schedule").Constant()
    )
    with cluster_of(address) as cluster:
        run = lk.train(problem, strategy, cluster, lk.Budget(updates=10**9), checkpoint=tmp_path / "run")
        computes(run, "worker-0")
        run.kill("worker-0")
        computes(run, "worker-0", instance=1)
        run.stop()
        closes(run)
        resumed = lk.resume(
            tmp_path / "run", problem=problem, strategy=strategy, cluster=cluster,
            budget=lk.Budget(updates=run.summary()["updates"] + 50),
        ).wait()  # fmt: skip
        closes(resumed)
        assert resumed.summary()["accuracy"] > 0.8


def test_a_package_that_a_dask_worker_lacks_is_named_with_its_address(address, modules):
    with cluster_of(address) as cluster:
        with pytest.raises(lk.ClusterError) as error:
            lk.train("moons", modules("remote_needs").Needs(), cluster, lk.Budget(updates=5))
        nothing_left(cluster.client)
    assert re.fullmatch(
        r"\w+-?\d? could not start: The Dask worker at tcp://127.0.0.1:\d+ has no module 'remote_package', which Needs needs; "
        "install it there.",
        str(error.value),
    )
