"""Layouts, the quadratic with known results, the model without storage, and model files."""

import json
import math

import numpy as np
import pytest

from labkit.errors import BadInput
from labkit.nn import SGD, Network, NullObjective, ParameterLayout, QuadraticObjective, load_model, save_model


def test_layout_covers_the_vector_in_order():
    layout = ParameterLayout({"a.weight": (2, 3), "a.bias": (3,), "b.weight": (3, 1), "c": ()})
    assert layout.size == 13
    assert layout.names == ("a.weight", "a.bias", "b.weight", "c")
    flat = np.arange(13.0)
    assert np.concatenate([flat[layout.slices[n]] for n in layout.names]).tolist() == flat.tolist()
    assert layout.groups() == {"a": slice(0, 9), "b": slice(9, 12), "c": slice(12, 13)}
    layout.view(flat, "a.weight")[1, 2] = -1
    assert flat[5] == -1
    assert layout.view(flat, "b.weight").shape == layout.shapes["b.weight"] == (3, 1)


def test_layout_refuses():
    with pytest.raises(BadInput, match="stands apart"):
        ParameterLayout({"a.weight": (2,), "b.weight": (2,), "a.bias": (2,)})
    with pytest.raises(BadInput, match="at least 0"):
        ParameterLayout({"a": (-1,)})
    layout = ParameterLayout({"dense1.weight": (2, 2)})
    with pytest.raises(BadInput, match=r"Did you mean 'dense1\.weight'"):
        layout.view(np.zeros(4), "dense.weight")
    with pytest.raises(BadInput, match=r"shape \(5,\)"):
        layout.view(np.zeros(5), "dense1.weight")


def test_the_quadratic_contains_its_exact_solution():
    x = np.array([[1.0, 2.0], [3.0, -2.0]])
    bowl = QuadraticObjective(np.array([2.0, 4.0]), start=[0.0, 1.0])
    w, out = bowl.start(0), np.empty(2)
    assert bowl.gradient(w, x, None, out) == (2 * 1 + 4 * 1 + 2 * 9 + 4 * 9) / 4
    assert out.tolist() == [2 * -2.0, 4 * 1.0]
    assert bowl.evaluate(bowl.minimum(x), x, None) == ((2 * 1 + 4 * 4) / 2, None)
    bowl.gradient(bowl.minimum(x), x, None, out)
    assert out.tolist() == [0, 0]
    w += 1
    assert bowl.start(1).tolist() == [0, 1]  # every start is its own copy


def test_sgd_on_a_quadratic_is_the_linear_recurrence():
    bowl, x = QuadraticObjective([0.5, 2.0]), np.zeros((1, 2))
    w, out = bowl.start(0), np.empty(2)
    for step in range(1, 6):
        bowl.gradient(w, x, None, out)
        SGD().apply(w, out, 0.25, {}, step)
    np.testing.assert_allclose(w, [(1 - 0.125) ** 5, 0.5**5], rtol=1e-14)


def test_quadratic_refuses():
    for bad in ([1.0, 0.0], [math.nan], [[1.0]], []):
        with pytest.raises(BadInput, match="curvature"):
            QuadraticObjective(bad)
    with pytest.raises(BadInput, match="start is one finite number or 2"):
        QuadraticObjective([1.0, 1.0], start=[1.0, 2.0, 3.0])
    with pytest.raises(BadInput, match="nothing to predict"):
        QuadraticObjective([1.0]).predict(np.ones(1), np.ones((1, 1)))


def test_null_objective_has_bytes_but_no_memory():
    net = Network.mlp(64, (128,), 10)
    null = NullObjective(net.size, net.layout)
    params = null.start(0)
    assert params.nbytes == net.start(0).nbytes
    assert params.strides == (0,)
    assert math.isnan(null.gradient(params, None, None, params))
    assert NullObjective(10**12).start(0).nbytes == 4 * 10**12
    assert null.layout.groups() == net.layout.groups()
    with pytest.raises(BadInput, match="describes 9610"):
        NullObjective(5, net.layout)
    with pytest.raises(BadInput, match="timing-only"):
        null.predict(params, np.ones((1, 64)))


@pytest.mark.parametrize(
    "net",
    [
        Network.mlp(3, (4, 5), 2, "tanh", dtype="float64"),
        Network.mlp(3, (4,), 2),
        Network.mlp(2, (), 1, loss="squared-error"),
    ],
    ids=repr,
)
def test_saved_and_loaded_is_the_same(net, tmp_path):
    path, params = tmp_path / "model", net.start(3)
    mean = np.arange(3.0)
    save_model(path, net, params, {"seed": 3, "classes": ["no", "yes"]}, arrays={"mean": mean})
    again, loaded, about = load_model(path)
    assert loaded.dtype == params.dtype
    np.testing.assert_array_equal(loaded, params)
    np.testing.assert_array_equal(about.pop("arrays")["mean"], mean)
    assert about == {"seed": 3, "classes": ["no", "yes"]}
    assert again.layout == net.layout
    x = np.random.default_rng(0).normal(size=(5, net.inputs))
    np.testing.assert_array_equal(again.predict(loaded, x), net.predict(params, x))
    assert repr(again) == repr(net)
    np.testing.assert_array_equal(again.start(8), net.start(8))
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_a_loaded_model_can_be_saved_again(tmp_path):
    net = Network.mlp(3, (), 2)
    save_model(tmp_path / "a", net, net.start(0), arrays={"scale": np.ones(3)})
    save_model(tmp_path / "b", *load_model(tmp_path / "a"))
    assert load_model(tmp_path / "b")[2]["arrays"]["scale"].tolist() == [1, 1, 1]


def write(path, header, **arrays):
    np.savez(path, header=np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays)


def test_foreign_and_older_files_are_refused(tmp_path):
    path = tmp_path / "m.npz"
    np.savez(path, weights=np.ones(3))
    with pytest.raises(BadInput, match="not a labkit model"):
        load_model(path)
    write(path, {"kind": "labkit model", "format": 1})
    with pytest.raises(BadInput, match="format 1, made by an older labkit; this one reads format 2"):
        load_model(path)
    np.savez(path, header=np.array([{"kind": "labkit model"}], dtype=object))
    with pytest.raises(BadInput, match=r"header is an array of object, not of numbers or text"):
        load_model(path)


def test_models_that_cannot_be_saved_are_refused_without_a_file(tmp_path):
    net = Network.mlp(3, (), 2)
    with pytest.raises(BadInput, match="A QuadraticObjective predicts nothing and cannot be saved"):
        save_model(tmp_path / "m", QuadraticObjective([1.0]), np.ones(1))
    with pytest.raises(BadInput, match="vector of shape"):
        save_model(tmp_path / "m", net, np.ones(3, np.float32))
    with pytest.raises(BadInput, match="JSON"):
        save_model(tmp_path / "m", net, net.start(0), {"what": object()})
    with pytest.raises(BadInput, match="dtype object"):
        save_model(tmp_path / "m", net, net.start(0), arrays={"a": np.array([object()])})
    with pytest.raises(BadInput, match="cannot be written"):
        save_model(tmp_path / "missing" / "m", net, net.start(0))
    assert list(tmp_path.iterdir()) == []
