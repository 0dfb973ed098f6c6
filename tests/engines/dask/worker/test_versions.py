"""Which versions of a Dask worker are accepted. The oracle is a table by hand."""

import importlib.metadata
import sys

import numpy as np
import pytest

import labkit as lk
from labkit.engines.dask.worker.task import check_versions, versions

MINE = {
    "labkit": importlib.metadata.version("labkit-distributed"),
    "CPython": f"{sys.version_info.major}.{sys.version_info.minor}",
    "NumPy": f"{np.lib.NumpyVersion(np.__version__).major}.x",
}
REFUSED = [
    (MINE | {"labkit": "0.0.9"}, "has labkit 0.0.9 and this process has labkit"),
    (MINE | {"CPython": "3.10"}, f"has CPython 3.10 and this process has CPython {MINE['CPython']}"),
    (MINE | {"CPython": "3.99"}, f"has CPython 3.99 and this process has CPython {MINE['CPython']}"),
    (MINE | {"NumPy": "0.x"}, f"has NumPy 0.x and this process has NumPy {MINE['NumPy']}"),
    ({"labkit": MINE["labkit"], "PyPy": "3.11"}, "has no CPython but labkit, PyPy and this process has CPython"),
    ("0.0.9", "has another labkit and this process has labkit"),
    (ModuleNotFoundError("No module named 'labkit'"), "has no labkit; install labkit-distributed"),
    (
        AttributeError("Can't get attribute 'versions' on <module 'labkit"),
        "has another labkit and this process has labkit",
    ),
    (AttributeError("module 'numpy' has no attribute 'bool8'"), "cannot use labkit: AttributeError"),
    (SystemError("unknown opcode"), "cannot use labkit: SystemError: unknown opcode"),
]


def test_the_same_versions_are_accepted():
    assert versions() == MINE
    check_versions("tcp://a:1", dict(MINE))


@pytest.mark.parametrize(("answer", "text"), REFUSED, ids=[str(answer)[:40] for answer, _ in REFUSED])
def test_other_versions_are_refused_by_address_and_name(answer, text):
    with pytest.raises(lk.ClusterError, match=f"The Dask worker at tcp://a:1 {text}"):
        check_versions("tcp://a:1", answer)
