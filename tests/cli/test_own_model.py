"""`--model module:Class` with options, and what is wrong with it in one sentence."""

from __future__ import annotations

import json
import sys

import pytest

import labkit as lk
from tests.models import own_models

OWN = "tests.models.own_models"


@pytest.fixture
def module(tmp_path, monkeypatch):
    """`module(name, text)` writes a module in the current folder, where nothing else is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(name, text):
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)

    return write


@pytest.mark.parametrize(
    ("model", "options", "same"),
    [
        ("Linear", (), own_models.Linear()),
        ("Linear", ("scale=0.5",), own_models.Linear(scale=0.5)),
        ("made", (), own_models.Linear(scale=0.25)),
    ],
)
def test_a_model_of_the_current_folder_is_trained_as_in_python(labkit, module, model, options, same):
    module("cli_models", f"from {OWN} import Linear\nmade = Linear(scale=0.25)\n")
    words = ["--model", f"cli_models:{model}", *(word for option in options for word in ("--model-option", option))]
    ran = labkit("simulate", "--workers", 2, "--updates", 20, "--json", *words)
    assert ran.exit_code == 0, ran.stderr
    problem, cluster = lk.Problem("digits", model=same), lk.SimulatedCluster(workers=2)
    summary = lk.train(problem, lk.AsyncPS(), cluster, lk.Budget(updates=20)).wait().summary()
    assert json.loads(ran.stdout)["loss"] == summary["loss"]


def test_a_sweep_trains_the_model_with_every_setting(labkit):
    ran = labkit("sweep", "sync-ps", "ring-all-reduce", "--vary", "workers=1,2", "--seeds", 1, "--updates", 5, "--json",
                 "--model", f"{OWN}:Linear")  # fmt: skip
    assert ran.exit_code == 0, ran.stderr
    runs = json.loads(ran.stdout)["runs"]
    assert [(run["strategy"], run["workers"], run["error"]) for run in runs] == [
        (name, workers, None) for name in ("SyncPS", "RingAllReduce") for workers in (1, 2)
    ]
    # gradients and, in the other direction, parameters: 64 x 10 weights and 10 biases
    assert {run["bytes_sent"] % (4 * 650) for run in runs if run["strategy"] == "SyncPS"} == {0}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--model cnn", "--model cnn: give a module and a class, as --model cnn:CNN"),
        ("--model nowhere:CNN", "there is no file nowhere.py in this folder, and no such module is installed"),
        ("--model nowhere.models:CNN", "there is no file nowhere.py in this folder"),
        ("--model raises:CNN", "importing raises raised ZeroDivisionError: division by zero (raises.py, line 2)"),
        ("--model imports:CNN", "importing imports raised ModuleNotFoundError: No module named 'nowhere' (imports.py, line 1)"),
        ("--model unreadable:CNN", "importing unreadable raised SyntaxError: "),
        (f"--model {OWN}:Liner", f"{OWN} has no model 'Liner'. Did you mean 'Linear'?"),
        (f"--model {OWN}:softmax_loss", "softmax_loss is <function softmax_loss>; a subclass of lk.NumpyModel is needed"),
        ("--model json:CNN", "json has no CNN; a subclass of lk.NumpyModel is needed"),
        (f"--model {OWN}:Linear --model-option scal=1", "Linear has no setting 'scal'. Did you mean 'scale'? Settings: scale."),
        (f"--model {OWN}:Linear --model-option scale=big", "scale='big' is not allowed; scale is a number"),
        (f"--model {OWN}:MLP --model-option hidden=8", "MLP has no setting 'hidden'. Settings: seed."),
        ("--model-option scale=1", "--model-option scale=1: there is no --model"),
        (f"--model {OWN}:Linear --hidden 8", "with hidden: these describe labkit's network of dense layers"),
        (f"--model {OWN}:Linear --dataset clicks", "the data set 'clicks' has ids of an embedding table"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_sentence(labkit, module, words, said):
    module("raises", "x = 1\n1 / 0\n")
    module("imports", "import nowhere\n")
    module("unreadable", "def f(:\n")
    ran = labkit("simulate", *words.split())
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert said in ran.stderr
