"""User data: valid tables are read unchanged, invalid ones are reported with the place of the error."""

import bz2
import gzip
import lzma
import tracemalloc
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest

import labkit as lk
from labkit.data import from_arrays, from_csv
from labkit.errors import BadInput
from tests.models.own_models import Linear, softmax_loss
from tests.refusals import check_refused

X = np.arange(40.0).reshape(20, 2)
Y = np.arange(20) % 3


def test_arrays_are_split_and_standardised():
    made = from_arrays(X, Y, dtype="float64", seed=4)
    assert (made.n_train, made.n_test, made.classes, made.features) == (16, 4, 3, 2)
    assert np.allclose(made.x_train.mean(axis=0), 0)
    rows = np.concatenate([made.raw(made.x_train), made.raw(made.x_test)])
    labels = np.concatenate([made.y_train, made.y_test])
    order = np.argsort(rows[:, 0])
    assert np.allclose(rows[order], X)
    assert np.array_equal(labels[order], Y)


def test_a_given_test_part_is_kept_and_does_not_leak():
    made = from_arrays(X, Y, x_test=X[:5] + 1000, y_test=[0, 1, 2, 2, 3], dtype="float64")
    assert (made.n_train, made.n_test, made.classes) == (20, 5, 4)
    assert np.allclose(made.mean, X.mean(axis=0))
    assert np.allclose(made.raw(made.x_test), X[:5] + 1000)


def test_data_sets_copy_the_arrays_of_the_caller():
    x = X.copy()
    made = from_arrays(x, Y, x_test=x, y_test=Y, standardize=False, dtype="float64")
    x[0, 0] = -1
    assert made.x_train[0, 0] == 0


def test_pictures_are_flattened():
    made = from_arrays(np.arange(60).reshape(10, 2, 3), np.arange(10) % 2, standardize=False)
    assert made.sample_shape == made.image_shape == (2, 3)
    assert made.x_train.shape == (8, 6)
    assert (np.diff(made.x_train, axis=1) == 1).all()


@pytest.mark.parametrize("shape", [(4, 5, 3), (2, 3, 4, 2), (1, 1)])
def test_samples_of_any_shape_are_rows_and_predicted_in_both_shapes(shape):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, *shape)), np.arange(40) % 2
    made = from_arrays(x, y, x_test=x[:3], y_test=y[:3], dtype="float64")
    assert made.sample_shape == shape
    assert made.image_shape == (shape if len(shape) == 2 else None)
    np.testing.assert_allclose(made.raw(made.x_train).reshape(x.shape), x)
    cluster, budget = lk.SimulatedCluster(workers=2), lk.Budget(updates=3)
    model = lk.train(lk.Problem(made), lk.SyncPS(), cluster, budget).wait(progress=False).result()
    scores = model.predict_proba(x)
    assert np.array_equal(scores, model.predict_proba(x.reshape(40, -1)))
    np.testing.assert_allclose(model.predict_proba(x[7]), scores[7:8], rtol=1e-12)  # one sample
    with pytest.raises(lk.BadInput, match="or samples that flatten to it"):
        model.predict(np.zeros((3, *shape, 2)))


def test_a_model_knows_the_shape_of_samples(tmp_path):
    @dataclass(frozen=True)
    class Colours(Linear):
        """A softmax regression of the mean colour."""

        side: int = 4

        def shapes(self, data):
            assert data.sample_shape == (self.side, self.side, 3)
            assert data.image_shape is None
            return {"linear.weight": (3, data.outputs), "linear.bias": (data.outputs,)}

        def means(self, x):
            return x.reshape(len(x), self.side, self.side, 3).mean(axis=(1, 2))

        def scores(self, p, x):
            return self.means(x) @ p["linear.weight"] + p["linear.bias"]

        def gradient(self, p, x, y, g):
            loss, d = softmax_loss(self.scores(p, x), y)
            g["linear.weight"][...], g["linear.bias"][...] = self.means(x).T @ d, d.sum(axis=0)
            return loss

    y = np.arange(300) % 3
    x = np.random.default_rng(0).normal(size=(300, 4, 4, 3)) + 2 * np.eye(3)[y][:, None, None]
    problem = lk.Problem(from_arrays(x, y, standardize=False), model=Colours(), dtype="float64")
    assert "(4 x 4 x 3)" in str(problem)
    cluster, budget = lk.SimulatedCluster(workers=2), lk.Budget(updates=100)
    model = lk.train(problem, lk.SyncPS(learning_rate=1.0), cluster, budget).wait(progress=False).result()
    assert (model.predict(x) == y).mean() > 0.95
    loaded = lk.load(model.save(tmp_path / "m.npz"), model=Colours())
    assert loaded.network.data.sample_shape == (4, 4, 3)
    assert np.array_equal(loaded.predict(x), model.predict(x))


def test_kinds_of_targets():
    assert from_arrays(X, Y.astype(float), classes=5).y_train.dtype == np.int64
    assert from_arrays(X, Y.astype(float), classes=5).outputs == 5
    assert from_arrays(X, Y > 1).classes == 2
    line = from_arrays(X, X[:, 0] / 2)
    assert (line.classes, line.outputs, line.y_train.shape, line.y_train.dtype) == (None, 1, (16,), np.float32)
    assert from_arrays(X, X / 2).outputs == 2


@pytest.mark.parametrize("value", [7.0, 0.1, 1e9 + 0.1])
def test_a_constant_feature_becomes_zero(value):
    made = from_arrays(np.column_stack([X, np.full(20, value)]), Y, dtype="float64")
    assert made.scale[2] == 1
    assert np.abs(made.x_train[:, 2]).max() < 1e-6


def frame():
    return pd.DataFrame(X, columns=["p", "q"])


@pytest.mark.parametrize(
    ("columns", "labels"),
    [
        (lambda x: x.convert_dtypes(), lambda y: y),
        (lambda x: x.astype("Float64"), lambda y: y.astype("Int64")),
        (lambda x: x.astype("Float32"), lambda y: y.astype("category")),
        (lambda x: x.astype({"p": "Int16", "q": float}), lambda y: y.astype("uint8")),
        (lambda x: x.astype("Sparse[float]"), lambda y: y.astype("UInt32")),
    ],
)
def test_columns_of_pandas_without_missing_values_are_taken(columns, labels):
    made = from_arrays(columns(frame()), labels(pd.Series(Y)), standardize=False)
    plain = from_arrays(X, Y, standardize=False)
    for name in ("x_train", "y_train", "x_test", "y_test"):
        assert np.array_equal(getattr(made, name), getattr(plain, name)), name
    assert (made.feature_names, plain.feature_names) == (("p", "q"), ())


def test_labels_that_are_text():
    words = np.array(["rose", "iris", "lily"])[Y]
    for given in (
        words,
        words.tolist(),
        pd.Series(words),
        pd.Categorical(words),
        words.astype(object),
        pd.array(words),
    ):
        made = from_arrays(X, given, standardize=False)
        assert made.class_names == ("iris", "lily", "rose")
        assert np.array_equal(made.y_train, np.array([2, 0, 1])[from_arrays(X, Y).y_train])
    named = from_arrays(X, words, x_test=X[:2], y_test=["lily", "lily"], classes=["rose", "tulip", "lily", "iris"])
    assert (named.classes, named.y_test.tolist(), named.y_train.tolist()) == (
        4,
        [2, 2],
        np.array([0, 3, 2])[Y].tolist(),
    )
    assert from_arrays(X, Y, classes=["a", "b", "c"]).class_names == ("a", "b", "c")


def test_a_test_frame_with_other_columns():
    swapped = from_arrays(frame(), Y, x_test=frame().assign(more=1)[["more", "q", "p"]], y_test=Y)
    assert np.array_equal(swapped.x_test, swapped.x_train)


def test_targets_of_a_regression_are_standardised_by_the_training_part():
    y = 100.0 + np.arange(40.0).reshape(20, 2)  # as years, prices or temperatures
    data = from_arrays(X, y, x_test=X[:4] + 1, y_test=y[:4] + 1, dtype="float64")
    np.testing.assert_allclose(data.y_train, (y - y.mean(0)) / y.std(0), atol=1e-12)
    np.testing.assert_allclose(data.y_test, (y[:4] + 1 - y.mean(0)) / y.std(0), atol=1e-12)
    np.testing.assert_allclose(data.raw_targets(data.y_test), y[:4] + 1, atol=1e-12)
    as_given = from_arrays(X, y, standardize=False)
    assert (as_given.raw_targets(as_given.y_train) == as_given.y_train).all()
    assert as_given.y_train.min() >= 100
    assert (from_arrays(X, Y).raw_targets(np.array([0, 2])) == [0, 2]).all()  # labels stay


def test_a_regression_with_large_targets_trains_without_a_small_rate():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 5))
    y = 152 + 77 * (x @ rng.normal(size=5))  # the mean and the deviation of the diabetes data
    problem = lk.Problem(from_arrays(x, y), hidden=(), batch_size=32)
    run = lk.train(problem, lk.SyncPS(learning_rate=0.1), lk.SimulatedCluster(workers=2), lk.Budget(epochs=20)).wait()
    assert np.abs(run.result().predict(x) - y).max() < 0.01 * np.ptp(y)
    assert "standardised" in str(problem)


@pytest.mark.parametrize(
    "options", [{}, {"standardize": False}, {"stratify": True}, {"x_test": X[:3], "y_test": Y[:3]}]
)
def test_many_blocks_give_the_same_data_set_as_one(monkeypatch, options):
    whole = from_arrays(X, Y, **options)
    monkeypatch.setattr(lk.data.mapped, "BLOCK_VALUES", 6)  # 3 of 20 samples
    parts = from_arrays(X, Y, **options)
    for name in ("x_train", "x_test", "mean", "scale"):
        np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), rtol=1e-6)
    assert (parts.y_train == whole.y_train).all()
    assert (parts.y_test == whole.y_test).all()


@pytest.mark.parametrize(
    ("make", "kept_of_x"), [(lambda path, y: from_arrays(np.load(path, mmap_mode="r"), y), 1), (lk.from_npy, 0)]
)
def test_a_mapped_file_is_not_copied_as_a_whole(tmp_path, monkeypatch, make, kept_of_x):
    monkeypatch.setattr(lk.data.mapped, "BLOCK_VALUES", 1 << 16)
    x = np.random.default_rng(0).normal(size=(400_000, 25)).astype("float32")  # 40 MB
    np.save(tmp_path / "x.npy", x)
    y = np.arange(400_000) % 2
    tracemalloc.start()
    try:
        data = make(tmp_path / "x.npy", y)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < kept_of_x * x.nbytes + 3 * y.nbytes
    assert data.n_train == 320_000
    assert peak < kept + x.nbytes / 2


def test_a_stratified_split_holds_out_of_every_class():
    labels = np.repeat([0, 1, 2], [90, 9, 1])
    x = np.arange(100.0)[:, None] ** 0.5
    for seed in range(5):
        data = from_arrays(x, labels, stratify=True, seed=seed, classes=3)
        assert np.bincount(data.y_test, minlength=3).tolist() == [18, 2, 0]
        assert np.bincount(data.y_train).tolist() == [72, 7, 1]
        samples = np.concatenate([data.raw(data.x_train), data.raw(data.x_test)])[:, 0] ** 2
        assert (np.sort(samples.round(3)) == np.arange(100)).all()
    with pytest.raises(BadInput, match="at least 2 samples"):
        from_arrays(x[:2], [0, 1], stratify=True)
    with pytest.raises(BadInput, match="for classes"):
        from_arrays(x, x[:, 0], stratify=True)
    with pytest.raises(BadInput, match="contradict"):
        from_arrays(x, labels, x_test=x, y_test=labels, stratify=True)


NUMBERED = [1, 2, 3] * 10
PROBABLY_WRONG = {
    "labels from 1": (NUMBERED, {}, r"no sample has 0: 4 classes.*y - 1.*classes=4"),
    "a gap": ([0, 1, 3] * 10, {}, r"no sample has 2: 4 classes.*np\.unique.*classes=4"),
    "floats that are labels": ([0.0, 1.0] * 15, {}, r"only the values 0, 1.*astype\(int\).*regression=True"),
}


@pytest.mark.parametrize("name", PROBABLY_WRONG)
def test_labels_that_are_probably_not_meant_as_they_are_give_a_warning(name):
    y, options, message = PROBABLY_WRONG[name]
    with pytest.warns(UserWarning, match=message) as caught:
        from_arrays(np.arange(30.0)[:, None], y, **options)
    assert caught[0].filename == __file__


def test_labels_that_are_confirmed_give_no_warning(recwarn):
    x = np.arange(30.0)[:, None]
    assert from_arrays(x, NUMBERED, classes=4).classes == 4
    assert from_arrays(x, NUMBERED, regression=True).classes is None
    assert from_arrays(x, [0.0, 1.0] * 15, regression=True).classes is None
    assert from_arrays(x, np.array(NUMBERED) - 1).classes == 3
    assert from_arrays(x, NUMBERED, like=from_arrays(x, NUMBERED, classes=4)).classes == 4
    assert from_arrays(x, np.arange(30.0)).classes is None  # many values
    assert not recwarn.list


def test_what_a_loader_of_scikit_learn_returns():
    bunch = {
        "data": X,
        "target": Y,
        "feature_names": ["a", "b"],
        "target_names": np.array(["x", "y", "z"]),
        "DESCR": "...",
    }
    data = from_arrays(bunch)
    assert (data.feature_names, data.class_names, data.classes) == (("a", "b"), ("x", "y", "z"), 3)
    assert from_arrays({"data": X, "target": X[:, 0], "feature_names": ["a", "b"]}).classes is None
    frame = pd.DataFrame(X, columns=["a", "b"])
    assert from_arrays({"data": frame, "target": pd.Series(Y)}).feature_names == ("a", "b")
    with pytest.raises(BadInput, match=r"from_arrays\(x, y\)"):
        from_arrays(X)


def with_cell(value, row=3, column=1):
    x = X.copy()
    x[row, column] = value
    return x


def test_bad_arrays():
    cases = [
        ({"x": with_cell(np.nan)}, "x is nan at row 3, column 1"),
        ({"x": with_cell(-np.inf, 0, 0)}, "x is -inf at row 0, column 0"),
        ({"x": X[:, 0]}, r"x has shape \(20,\)"),
        ({"x": X[:, 0]}, r"give x\[:, None\]"),
        ({"x": X[0, 0]}, r"must be \(samples, features\)"),
        ({"x": with_cell(np.nan)}, r"leave such samples out, or fill the values in, as x\.fillna"),
        ({"x": X[:0], "y": Y[:0]}, "x is empty"),
        ({"x": [[1, 2], [3]]}, "different lengths"),
        ({"x": X.astype(object)}, "dtype object"),
        ({"x": X.astype(str)}, "must hold real numbers"),
        ({"x": X + 1j}, "dtype complex128"),
        ({"y": Y[:-1]}, "y has 19 rows for 20 samples"),
        ({"y": np.where(Y == 2, 5, Y), "classes": 3}, "y at row 2 .* is 5; labels are whole numbers from 0 to 2"),
        ({"y": Y - 1}, "y at row 0 .* is -1"),
        ({"y": Y + 0.5, "classes": 4}, "is 0.5; labels are whole"),
        ({"y": np.where(Y == 1, np.nan, Y), "classes": 3}, "y at row 1 .* is nan"),
        ({"y": np.where(Y == 1, np.nan, Y)}, "y is nan at row 1"),
        ({"y": np.eye(3, dtype=int)[Y]}, "one whole number a sample"),
        ({"y": Y * 1000}, "regression give y as floats"),
        ({"y": [["a"]] * 20}, r"y has dtype <U1 and shape \(20, 1\).* one column of y"),
        ({"y": pd.DataFrame({"k": ["a", "b"] * 10, "l": "c"})}, r"shape \(20, 2\).* one column of y"),
        ({"x": X.astype(str)}, r"give x\.astype\(float\)"),
        ({"y": np.eye(3, dtype=int)[Y]}, r"give y\.argmax\(axis=1\)"),
        ({"y": Y[:, None]}, r"give y\[:, 0\]"),
        ({"y": np.where(Y == 1, "n/a", "word")}, "y at row 1 .* is 'n/a', which means missing"),
        ({"y": [None, "a", *"abc" * 6]}, "y at row 0 .* is empty"),
        ({"y": ["a"] * 20}, "only one class"),
        ({"y": ["a", "b"] * 10, "classes": ["a", "c"]}, "no class 'b'.*y at row 1"),
        ({"y": ["a", "b"] * 10, "x_test": X, "y_test": Y}, "labels of both are text"),
        ({"classes": ["a"]}, "two different names"),
        ({"classes": ["a", "a"]}, "two different names"),
        ({"classes": ["a", "b"]}, "y at row 2 .* is 2; labels are whole numbers from 0 to 1"),
        ({"x": pd.DataFrame(X, columns=["p", "q"]).assign(city="w")}, "x: its column 'city' has dtype"),
        (
            {"x": pd.DataFrame({"p": X[:, 0], "when": pd.Timestamp(2024, 1, 1)})},
            "its column 'when' has dtype datetime64",
        ),
        ({"x": pd.DataFrame(with_cell(np.nan)).convert_dtypes()}, "x is nan at row 3, column 1"),
        ({"x": pd.DataFrame(X).astype("object")}, "its column 0 has dtype object"),
        ({"x": pd.DataFrame({"Unnamed: 0": range(20), "p": X[:, 0]})}, "'Unnamed: 0' numbers the rows"),
        ({"x": frame().reset_index()}, "'index' numbers the rows; leave it out"),
        ({"x": pd.DataFrame(X, columns=["p", "p"])}, "two columns 'p'"),
        ({"x": frame(), "x_test": frame()[["p"]], "y_test": Y}, "There is no column in x_test 'q'"),
        ({"classes": 1}, "classes=1 is not allowed"),
        ({"x_test": X}, "belong together"),
        ({"x_test": X[:, :1], "y_test": Y}, "x_test has 1 features and x has 2"),
        ({"x_test": X, "y_test": Y / 2}, "differ in kind"),
        ({"x": X[:1], "y": Y[:1]}, "There is 1 sample"),
        ({"x": X * 1e300}, "too large for float32"),
        ({"x": X * 1e38, "standardize": False}, "too large for float32; .*float64"),
        ({"y": X[:, 0] * 1e40, "standardize": False}, "too large for float32"),
        ({"y": X[:, 0] * 1e300}, "too large for float32"),
    ]
    check_refused((lambda given=given: from_arrays(**{"x": X, "y": Y, **given}), message) for given, message in cases)


@pytest.fixture
def csv(tmp_path):
    def write(text, encoding="utf-8"):
        path = tmp_path / "flowers.csv"
        path.write_bytes(text.encode(encoding))
        return path

    return write


WORDS = "a,b,kind\n1,2,rose\n3,4,iris\n5,6,rose\n7,8,daisy\n"


def test_csv_with_labels_as_text(csv):
    made = from_csv(csv(WORDS), standardize=False, test_fraction=0.25)
    assert made.extra == {"class_names": ("daisy", "iris", "rose"), "feature_names": ("a", "b")}
    assert (made.name, made.classes, made.n_train, made.n_test) == ("flowers", 3, 3, 1)
    pairs = zip(np.concatenate([made.x_train, made.x_test])[:, 0], np.concatenate([made.y_train, made.y_test]))
    assert {int(x): int(y) for x, y in pairs} == {1: 2, 3: 1, 5: 2, 7: 0}


def test_csv_headers_targets_and_delimiters(csv):
    plain = from_csv(csv("0,1.5,2\n1,2.5,3\n\n0,3.5,4\n"), target=0, standardize=False)
    assert (plain.features, plain.classes, plain.n_train + plain.n_test, plain.extra) == (2, 2, 3, {})
    named = from_csv(csv("\ufeffk;a\n0;1\n1;2\n"), target="k", delimiter=";")
    assert (named.features, named.extra) == (1, {"feature_names": ("a",)})
    years = from_csv(csv("1999,2000,0\n1,2,0\n3,4,1\n5,6,1\n"), header=True)
    assert years.n_train + years.n_test == 3
    first_label_is_a_word = from_csv(csv("1,2,rose\n3,4,iris\n"))
    assert first_label_is_a_word.n_train + first_label_is_a_word.n_test == 2
    line = from_csv(csv("1,2\n3,4\n5,7\n"), regression=True, standardize=False)
    assert sorted(np.concatenate([line.y_train, line.y_test])) == [2, 4, 7]
    assert line.classes is None


def test_several_targets_of_a_file(csv):
    path = csv("a,b,c,d\n" + "".join(f"{i},{i * i},{-i},{i + 7}\n" for i in range(20)))
    for target in (["b", "c"], [1, 2], (-3, "c")):
        data = from_csv(path, target=target, regression=True)
        assert (data.target_shape, data.feature_names) == ((2,), ("a", "d"))
        a = data.raw(data.x_test)[:, 0]
        np.testing.assert_allclose(data.raw_targets(data.y_test), np.c_[a**2, -a], rtol=1e-5, atol=1e-4)
    assert from_csv(path, target=["b"], regression=True).target_shape == (1,)


def test_bad_csv(csv):
    cases = [
        ("a,b,k\n1,2,0\n1,x,0\n", {}, "line 3, 'b': 'x' is not allowed; it must be a finite number"),
        ("a,b,k\n1,,0\n1,2,0\n", {}, "line 2, 'b': ''"),
        ("1,2,0\n1,nan,0\n", {}, "line 2, 'column 1': 'nan'"),
        ("1,,0\n1,2,0\n", {}, "line 1, 'column 1': ''"),
        ("a,b,k\n1,2,0\n1,2\n", {}, "line 3 has 2 cells; the first line has 3"),
        ('a,b,k\n"1\n",2,0\n1,2,3,4\n', {}, "line 4 has 4 cells"),
        ("", {}, "empty"),
        ("a,b\n", {}, "no samples"),
        ("a\n1\n", {}, "one column"),
        (WORDS, {"target": "knd"}, "Did you mean 'kind'"),
        (WORDS, {"target": 3}, "columns 0 to 2"),
        (WORDS, {"target": "kind", "header": False}, "header=False"),
        (WORDS, {"header": "perhaps"}, "header='perhaps'"),
        (WORDS, {"delimiter": ",,"}, "delimiter=',,'"),
        (WORDS, {"regression": True}, "line 2, 'kind': 'rose'"),
        (WORDS, {"classes": 2}, "is 2; labels are whole numbers from 0 to 1"),
        ("1,2,rose\n3,4,\n", {}, "line 2, 'column 2' is empty"),
        ("a,k\n1,0\n2,NaN\n", {}, "line 3, 'k' is 'NaN', which means missing"),
        ("a,k\nN/A,0\n2,1\n", {}, "line 2, 'a': 'N/A' is not allowed.* fill the value in"),
        ("a,k\n1_000,0\n2,1\n", {}, "line 2, 'a': '1_000' is not allowed"),
        ("a,k\ninf,0\n2,1\n", {}, "line 2, 'a': 'inf' is not allowed"),
        ("a;k\n1,5;0\n2;1\n", {"delimiter": ";"}, "'1,5' is not allowed.*decimal comma"),
        ("a;k\n1;0\n2;1\n", {}, "one column.*delimiter=';'"),
        ("a,b,k\n1,2,x\n3,4,x\n", {}, "'k' is 'x' everywhere: there is only one class"),
        ("a,a,k\n1,2,x\n3,4,y\n", {}, "two columns 'a'"),
        (WORDS, {"target": ["a", "b"]}, "several columns.*regression=True"),
        (WORDS, {"target": ["a", "a"], "regression": True}, "several different ones"),
        (WORDS, {"target": [0, 1, 2], "regression": True}, "leave at least one"),
        (WORDS, {"target": ["a", "c"], "regression": True}, "no column.* 'c'"),
        (WORDS, {"classes": ("rose", "iris")}, "no class 'daisy'.*line 5, 'kind'"),
        (WORDS, {"missing": ["Rose"]}, "line 2, 'kind' is 'rose', which means missing"),
        (WORDS, {"missing": "rose"}, "missing='rose' is not allowed"),
        (",k\n0,x\n1,y\n2,y\n", {}, "numbers the lines, and there is no other feature"),
        ("1,2,0.5\n3,4,1\n", {}, "line 1, 'column 2': '0.5' is no label"),
        ("1,2,0\n3,4,1\n", {"regression": True, "classes": 2}, "contradict"),
    ]
    check_refused(
        (lambda text=text, given=given: from_csv(csv(text), **given), message) for text, given, message in cases
    )


def test_files_that_cannot_be_read(tmp_path, csv):
    with pytest.raises(BadInput, match=r"nothing.csv' cannot be read: No such file"):
        from_csv(tmp_path / "nothing.csv")
    with pytest.raises(BadInput, match="cannot be read"):
        from_csv(tmp_path)
    with pytest.raises(BadInput, match="not a CSV file in UTF-8"):
        from_csv(csv("é,1\n", encoding="utf-16"))
    for kind, pack in {"gzip": gzip, "bzip2": bz2, "xz": lzma}.items():
        (tmp_path / "packed.csv").write_bytes(pack.compress(WORDS.encode()))
        with pytest.raises(BadInput, match=rf"compressed \({kind}\).*decompress"):
            from_csv(tmp_path / "packed.csv")
    with pytest.raises(BadInput, match="is a URL; from_csv reads local files"):
        from_csv("https://example.org/iris.csv")


def test_masked_values_are_refused():
    x, y = np.zeros((10, 2)), np.arange(10) % 2
    hidden = np.ma.masked_array(x, mask=False)
    hidden[3, 1] = np.ma.masked
    with pytest.raises(lk.BadInput, match=r"^x is a masked array with 1 masked values, the first at \(3, 1\)"):
        lk.from_arrays(hidden, y)
    lk.from_arrays(np.ma.masked_array(x, mask=False), y)
