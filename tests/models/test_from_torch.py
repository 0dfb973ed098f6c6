"""What `from_torch` says without PyTorch. Its tests with modules are in `tests/models/torch`, with the extra `torch`."""

import functools
import sys
import types

import pytest

import labkit as lk


def net():
    raise AssertionError("no module is made")


def module():
    """An object that is a module of PyTorch by its class."""
    base = types.new_class("Module", exec_body=lambda body: body.update(__module__="torch.nn.modules.module"))
    return types.new_class("Net", (base,), exec_body=lambda body: body.update(__call__=lambda self: self))()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"make": module()},
            r"make=Net; give a function .*lambda: Net\(\): each role and thread makes a module of its own",
        ),
        ({"make": None}, "make=None; give a function that returns a new torch.nn.Module"),
        ({"loss": "hinge"}, r"loss='hinge'; give 'cross-entropy' or 'squared-error', or a criterion"),
        ({"loss": ["cross-entropy"]}, r"loss=\['cross-entropy'\]"),
        ({"input": "words"}, r"input='words'; give the shape of a sample, as \(1, 28, 28\), or 'ids'"),
        ({"input": (1, 2.5)}, r"input=\(1, 2.5\)"),
        ({"input": (0, 64)}, r"input=\(0, 64\)"),
        ({"device": 0}, "device=0; give a name"),
    ],
)
def test_wrong_arguments_are_refused(given, message):
    with pytest.raises(lk.BadInput, match=message):
        lk.from_torch(**{"make": net, **given})


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(lk.BadInput, match=r"from_torch needs torch; install with: pip install torch"):
        lk.Problem("digits", model=lk.from_torch(net)).objective()


def test_a_module_is_described_by_what_makes_it():
    assert repr(lk.from_torch(net)) == "from_torch(make=net)"
    options = {"input": [3, 8], "device": "cuda", "loss": "squared-error"}
    text = "from_torch(make=net(8, wide=True), loss=squared-error, input=(3, 8), device=cuda)"
    assert repr(lk.from_torch(functools.partial(net, 8, wide=True), **options)) == text
    assert lk.from_torch(net, input=(3, 8)) == lk.from_torch(net, input=[3, 8])
