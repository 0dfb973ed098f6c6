"""An embedding table: its gradient by hand and by differences, initial rows that do not depend on the other rows, files."""

import numpy as np
import pytest

from labkit import Adagrad, Predictor, Problem, load
from labkit.data import load as load_data
from labkit.errors import BadInput
from labkit.nn import EmbeddingBag, Recommender, SparseParameters, load_model, save_model
from labkit.nn.embedding import check_ids, scramble
from tests.refusals import check_refused

F8 = np.dtype("float64")
X = np.array([[0, 3, 3], [4, 0, 1], [3, 3, 3]])
Y = np.array([1, 0, 1])


def small(dtype="float64", **more):
    return Recommender(5, 2, 3, hidden=(4,), activation="tanh", dtype=dtype, **more)


@pytest.mark.parametrize("combine", ["sum", "mean"])
def test_a_bag_and_its_gradient_by_hand(combine):
    bag = EmbeddingBag(5, 2, 3, combine)
    table = np.arange(10.0)
    y, saved = bag.forward(table, X)
    share = 3 if combine == "mean" else 1
    assert np.array_equal(y, [[12 / share, 15 / share], [10 / share, 13 / share], [18 / share, 21 / share]])
    dy, out = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), np.full(10, np.nan)
    bag.parameter_gradient(saved, dy, out)
    want = np.zeros((5, 2))
    for row, ids in enumerate(X.tolist()):
        for i in ids:  # an id counts as often as it occurs
            want[i] += dy[row] / share
    assert np.allclose(out.reshape(5, 2), want)
    assert not out.reshape(5, 2)[2].any()


@pytest.mark.parametrize("combine", ["sum", "mean"])
def test_gradients_are_central_differences(combine):
    model = small(combine=combine)
    w = model.start(1)
    out, scratch = np.empty(model.size), np.empty(model.size)
    model.gradient(w, X, Y, out)
    for i in range(model.size):
        step = np.zeros(model.size)
        step[i] = 1e-5
        up, down = model.gradient(w + step, X, Y, scratch), model.gradient(w - step, X, Y, scratch)
        assert out[i] == pytest.approx((up - down) / 2e-5, abs=1e-8)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_compact_form_is_the_same_to_the_last_bit(dtype):
    model = Recommender(50, 4, 3, hidden=(8,), dtype=dtype)
    x = np.random.default_rng(0).integers(0, 50, (16, 3))
    y = np.arange(16) % 2
    w = model.start(0)
    out = np.empty_like(w)
    loss = model.gradient(w, x, y, out)
    ids, index = np.unique(x, return_inverse=True)
    table = w[: model.bag.size].reshape(50, 4)
    compact = np.concatenate([table[ids].ravel(), w[model.bag.size :]])
    small_out = np.empty_like(compact)
    assert model.compact_gradient(compact, index.reshape(x.shape), y, small_out) == loss
    assert small_out[len(ids) * 4 :].tobytes() == out[model.bag.size :].tobytes()
    assert small_out[: len(ids) * 4].tobytes() == out[: model.bag.size].reshape(50, 4)[ids].tobytes()
    assert not np.delete(out[: model.bag.size].reshape(50, 4), ids, axis=0).any()


def test_a_row_has_the_same_start_value_alone_and_in_the_table():
    bag = EmbeddingBag(1000, 8, 4)
    whole = bag.start(7, np.arange(1000), F8)
    some = np.array([999, 0, 17, 17])
    assert np.array_equal(bag.start(7, some, F8), whole[some])
    assert np.array_equal(EmbeddingBag(10**9, 8, 4).start(7, some, F8), whole[some])  # independent of other rows
    assert not np.array_equal(bag.start(8, some, F8), whole[some])
    assert abs(whole.mean()) < 0.01
    assert np.square(whole).sum(axis=1).mean() * 4 == pytest.approx(1, rel=0.02)  # a bag of 4 has length 1
    assert np.array_equal(bag.start(7, some, np.dtype("float32")), whole[some].astype("float32"))


def test_scrambled_numbers_are_one_to_one_and_even():
    numbers = np.arange(100_000)
    for seed in (0, 1, 2**62, 123456789):
        hashed = scramble(seed, numbers)
        assert len(np.unique(hashed)) == len(numbers)
        counts = np.bincount((hashed % np.uint64(100)).astype(int), minlength=100)
        assert 50 < np.square(counts - 1000).sum() / 1000 < 170  # chi-square, 99 degrees of freedom
    bits = scramble(0, numbers) ^ scramble(1, numbers)  # another seed changes half of the bits
    assert np.unpackbits(bits.view(np.uint8)).mean() == pytest.approx(0.5, abs=0.01)


def test_ids_are_whole_numbers_of_the_table():
    cases = [
        (np.array([[0.0, 1, 2]]), "whole-number ids"),
        (np.array([[0, 1]]), r"shape \(batch, 3\)"),
        (np.array([[0, 1, 5]]), "ids go from 0 to 4; found 0 to 5"),
        (np.array([[0, -1, 2]]), "found -1 to 2"),
        (np.empty((0, 3), int), "at least one row"),
    ]
    check_refused((lambda x=x: check_ids(x, 3, 5), why) for x, why in cases)
    check_refused((lambda x=x: small().predict(small().start(0), x), why) for x, why in cases)


def test_sparse_parameters_stand_for_the_whole_vector():
    model, rng = small(), np.random.default_rng(0)
    whole = model.start(3)
    ids, rows, dense = np.array([4, 1]), rng.random((2, 2)), rng.random(model.tower.size)
    sparse = SparseParameters.of(model.bag, 3, ids, rows, dense)
    table = whole[: model.bag.size].reshape(5, 2)
    table[ids], whole[model.bag.size :] = rows, dense
    assert np.array_equal(sparse.plain(), whole)
    assert np.array_equal(sparse.table(np.array([3, 1, 4, 3])), table[[3, 1, 4, 3]])
    assert model.evaluate(sparse, X, Y) == model.evaluate(whole, X, Y)
    assert np.array_equal(model.predict_proba(sparse, X), model.predict_proba(whole, X))
    newer = SparseParameters.of(model.bag, 3, np.array([2, 4]), np.ones((2, 2)), dense + 1)
    table[[2, 4]], whole[model.bag.size :] = 1, dense + 1
    assert np.array_equal(sparse.updated(newer).plain(), whole)
    assert np.array_equal(model.sparse_start(3).plain(), model.start(3))
    assert sparse.fingerprint() != newer.fingerprint()


def test_a_large_table_stays_sparse():
    model = Recommender(10_000_000, 8, 3)
    sparse = model.sparse_start(0)
    assert sparse.plain() is sparse
    assert model.predict(sparse, X + 9_000_000).shape == (3,)
    with pytest.raises(BadInput, match=r"10,000,000 rows makes a model of 320,000,072 bytes.*SparsePS"):
        model.start(0)


@pytest.mark.parametrize("sparse", [False, True])
def test_a_recommender_can_be_saved_and_loaded(tmp_path, sparse):
    model = small()
    params = model.start(2)
    if sparse:
        params = SparseParameters.of(model.bag, 2, np.array([3]), np.ones((1, 2)), model.tower.start(5))
    save_model(tmp_path / "m.npz", model, params, {"data": "clicks"})
    again, back, about = load_model(tmp_path / "m.npz")
    assert repr(again) == repr(model)
    assert about["data"] == "clicks"
    assert np.array_equal(again.predict_proba(back, X), model.predict_proba(params, X))


def test_rows_of_another_table_are_refused(tmp_path):
    other = Recommender(6, 2, 3, hidden=(4,), activation="tanh", dtype="float64").sparse_start(0)
    with pytest.raises(BadInput, match="rows of another table"):
        save_model(tmp_path / "m.npz", small(), other)
    with pytest.raises(BadInput, match="do not fit each other"):
        SparseParameters(small().bag, np.array([3, 1]), np.zeros(30), 0).checked()


def test_a_predictor_takes_ids(tmp_path):
    problem = Problem("clicks", hidden=(4,), options={"rows": 50, "samples": 100})
    made = Predictor(problem, problem.objective().start(0))
    x = problem.dataset.x_test
    assert made.predict(x).shape == (len(x),)
    assert np.array_equal(made.predict_proba(x[0]), made.predict_proba(x[:1]))
    assert np.array_equal(load(made.save(tmp_path / "m.npz")).predict(x), made.predict(x))
    with pytest.raises(BadInput, match="ids go from 0 to 49"):
        made.predict(x + 50)


def test_an_embedding_model_trains_with_adagrad():
    problem = Problem("clicks", hidden=(8,), options={"rows": 300, "samples": 4000})
    data, model, rule = problem.dataset, problem.objective(), Adagrad()
    w = model.start(0)
    out, state = np.empty_like(w), rule.state(model.size, w.dtype)
    for step in range(60):
        rows = slice(step % 10 * 320, step % 10 * 320 + 320)
        model.gradient(w, data.x_train[rows], data.y_train[rows], out)
        rule.apply(w, out, 0.1, state, step + 1)
    loss, accuracy = model.evaluate(w, data.x_test, data.y_test)
    assert loss < data.extra["baseline_loss"] - 0.15
    assert accuracy > data.extra["baseline_accuracy"] + 0.1


def test_a_data_set_of_ids_that_is_handed_in_has_a_network_of_floats():
    data = load_data("clicks", rows=100, samples=50)
    assert data.x_train.dtype == np.int64
    assert Problem(data).objective().dtype == np.float32
