"""What labkit uses of Dask without a public interface exists in this version of Dask, and is used in one module only.

`python -m tests.dev.versions` runs this with the oldest and the newest version of Dask that labkit accepts.
"""

import ast
import asyncio
import inspect
import re
from pathlib import Path

import distributed
import pytest

import labkit
from labkit.engines.dask.cluster.nannies import Nanny, OwnCluster
from labkit.engines.dask.dask_private import NAMES, ManualCluster, identity

ENGINES = Path(labkit.__file__).parent / "engines"
PRIVATE = re.compile("_[a-z]")
OF_PYTHON = {"_getframe", "_exit", "_replace"}


@pytest.mark.parametrize(("kind", "names"), NAMES, ids=lambda of: getattr(of, "__name__", ""))
def test_the_private_names_exist(kind, names):
    assert [name for name in names if not hasattr(kind, name)] == []


@pytest.mark.parametrize("ours", [Nanny, OwnCluster], ids=lambda kind: kind.__name__)
def test_methods_override_methods_with_the_same_parameters(ours):
    """Dask calls the methods that are overridden, with the arguments that they accept."""
    known, overridden = {name: kind for kind, names in NAMES for name in names if kind in ours.__mro__}, 0
    for kind in ours.__mro__:
        for name in set(vars(kind)) & set(known) if kind.__module__.startswith("labkit") else ():
            theirs = inspect.signature(getattr(known[name], name)).parameters
            assert list(inspect.signature(vars(kind)[name]).parameters) == list(theirs), name
            overridden += 1
    assert overridden


def test_a_cluster_starts_replaces_and_closes():
    scheduler = {"cls": distributed.Scheduler, "options": {"dashboard": False, "protocol": "inproc://"}}
    worker = {"cls": distributed.Worker, "options": {"nthreads": 1, "dashboard": False, "protocol": "inproc://"}}

    async def main():
        cluster = await ManualCluster(workers={"a": worker}, scheduler=scheduler, asynchronous=True, silence_logs=False)
        async with distributed.Client(cluster, asynchronous=True) as client:
            (first,) = cluster.nannies
            await first.close()
            await cluster.scheduler.remove_worker(first.address, stimulus_id="test")
            await cluster.replace(["a"])
            second = cluster.workers["a"]
            assert second in cluster.nannies
            assert second is not first
            found = await identity(client)
            assert list(found["workers"]) == [second.address] != [first.address]
            assert found["workers"][second.address]["last_seen"] > 0
            assert await client.run(len, "xyz", workers=[second.address], on_error="return") == {second.address: 3}
            assert await client.submit(lambda: distributed.get_worker().get_current_task(), key="it") == "it"
        await cluster.start_closing()
        assert cluster.status == distributed.Status.closed

    asyncio.run(main())


def private(tree):
    """Yield (line, name, whether it is defined here) of all private names that are attributes, functions or fields."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.lineno, node.attr, isinstance(node.ctx, ast.Store)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name, True
        elif isinstance(node, ast.AnnAssign):
            yield node.lineno, getattr(node.target, "id", getattr(node.target, "attr", "")), True


def test_only_one_module_uses_private_names_of_dask():
    files = [path for path in ENGINES.rglob("*.py") if path.name != "dask_private.py"]
    assert len(files) > 40
    names = [(path, *each) for path in files for each in private(ast.parse(path.read_text())) if PRIVATE.match(each[1])]
    own = {name for _, _, name, defined in names if defined} | OF_PYTHON
    found = [f"{path.relative_to(ENGINES)}:{line}: {name}" for path, line, name, _ in names if name not in own]
    assert not found, "\n".join(found)
