"""What a model was trained on is part of it: predictions from raw samples are those of the run, in the shape of the targets, and
names of classes and features keep their meaning when data come in again.
"""

import json

import dask.array as da
import numpy as np
import pandas as pd
import pytest

import labkit as lk
from tests.refusals import check_refused

N = 240
Z, OTHER = np.random.default_rng(0).normal(size=(2, N))
SIDE = (Z > 0).astype(int)


def trained(data, epochs=8):
    problem, cluster = lk.Problem(data, hidden=(8,), batch_size=16), lk.SimulatedCluster(workers=2)
    return lk.train(problem, lk.SyncPS(learning_rate=0.3), cluster, lk.Budget(epochs=epochs)).wait(progress=False)


def arrays(offset, scale=1.0, dtype="float32", **more):
    return lk.from_arrays(np.c_[offset + scale * Z, OTHER], SIDE, dtype=dtype, **more)


def table(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("t,q,k\n" + "".join(f"{1.7e9 + 30 * z:.6f},{z * z:.6f},{'ab'[side]}\n" for z, side in zip(Z, SIDE)))
    return lk.from_csv(path)


def on_dask(tmp_path):
    x = da.from_array(np.c_[1.7e9 + 30 * Z, Z**2], chunks=(60, 2))
    return lk.from_dask(x, da.from_array(SIDE, chunks=60), classes=2).gathered()


def whole_numbers(tmp_path):
    return lk.from_arrays(np.c_[1_700_000_000_000 + (30 * Z).astype(np.int64), SIDE * 0], SIDE)


OFFSETS = {
    "seconds since 1970": lambda folder: arrays(1.7e9, 30),
    "seconds, float64": lambda folder: arrays(1.7e9, 30, "float64"),
    "milliseconds": whole_numbers,
    "a year": lambda folder: arrays(2024, 1e-3),
    "a negative offset": lambda folder: arrays(-4e7, 0.5),
    "beyond float32": lambda folder: arrays(1e39, 1e38),
    "not standardised": lambda folder: arrays(0, 1, standardize=False),
    "a file": table,
    "Dask arrays": on_dask,
}


@pytest.mark.parametrize("name", OFFSETS)
def test_raw_samples_keep_their_digits(name, tmp_path):
    data = OFFSETS[name](tmp_path)
    run = trained(data)
    model, raw = run.result(), data.raw(data.x_test)
    assert raw.dtype == np.float64
    np.testing.assert_allclose(data.standardise(raw), data.x_test, rtol=0, atol=2e-6)
    assert (model.predict(raw) == data.y_test).mean() == run.summary()["accuracy"] > 0.9
    assert (lk.load(model.save(tmp_path / "m.npz")).predict(raw) == model.predict(raw)).all()


def test_points_with_an_offset_are_drawn_where_they_are():
    data = lk.from_arrays(np.c_[1.7e9 + 30 * Z, 1e-3 * Z**2], SIDE)
    plane = trained(data, 1).trace.header.samples.plane
    drawn = np.array([*plane.points, plane.low, plane.high])
    assert np.ptp(drawn[:, 0]) == pytest.approx(1.12 * np.ptp(data.raw(data.x_train)[:, 0]), rel=0.01)
    assert len(np.unique(drawn[:, 0])) > 100
    assert np.ptp(drawn[:, 1]) == pytest.approx(1.12 * np.ptp(data.raw(data.x_train)[:, 1]), rel=0.01)


LINE, X = 2 * Z + 1, np.c_[Z, Z**2]


def regression_file(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("a,b,y\n" + "".join(f"{z},{z * z},{y}\n" for z, y in zip(Z, LINE)))
    return lk.from_csv(path, regression=True)


TARGETS = {
    "(n,)": (lambda folder: lk.from_arrays(X, LINE), ()),
    "(n, 1)": (lambda folder: lk.from_arrays(X, LINE[:, None]), (1,)),
    "(n, 3)": (lambda folder: lk.from_arrays(X, np.c_[LINE, Z, -Z]), (3,)),
    "(n,), test part (n, 1)": (lambda folder: lk.from_arrays(X, LINE, x_test=X, y_test=LINE[:, None]), ()),
    "a series": (lambda folder: lk.from_arrays(X, pd.Series(LINE)), ()),
    "a frame": (lambda folder: lk.from_arrays(X, pd.DataFrame({"y": LINE})), (1,)),
    "a file": (regression_file, ()),
    "a data set": (lambda folder: lk.Problem("linear-regression").dataset, (1,)),
    "Dask (n,)": (lambda folder: lk.from_dask(da.from_array(X), da.from_array(LINE), classes=None).gathered(), ()),
    "Dask (n, 1)": (
        lambda folder: lk.from_dask(da.from_array(X), da.from_array(LINE[:, None]), classes=None).gathered(),
        (1,),
    ),
}


@pytest.mark.parametrize("name", TARGETS)
def test_predictions_have_the_shape_of_the_targets(name, tmp_path):
    make, shape = TARGETS[name]
    data = make(tmp_path)
    assert data.target_shape == data.y_train.shape[1:] == data.y_test.shape[1:] == shape
    assert next(lk.Problem(data).batches()[0]).y.shape[1:] == shape
    run = trained(data)
    for model in (run.result(), lk.load(run.result().save(tmp_path / "m.npz"))):
        error = model.predict(data.raw(data.x_test)) - data.raw_targets(data.y_test)
        assert error.shape == (data.n_test, *shape)
        # the loss of the run: half the sum over the standardised targets, averaged over the samples
        error /= data.target_scale
        assert np.square(error).sum() / (2 * len(error)) == pytest.approx(run.summary()["loss"], rel=1e-4)
    assert model.predict(data.raw(data.x_test[0])).shape == (1, *shape)


# names ----------------------------------------------------------------------------------------------------------------

KIND = np.array(["low", "medium", "top"])[np.digitize(Z, [-0.5, 0.5])]
FRAME = pd.DataFrame({"a": Z, "b": OTHER + 100, "kind": KIND})


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model of `FRAME`, after it was saved, loaded, and saved and loaded again."""
    folder = tmp_path_factory.mktemp("model")
    FRAME.to_csv(folder / "train.csv", index=False)
    made = trained(lk.from_csv(folder / "train.csv"), 60).result()
    for name in ("one.npz", "two.npz"):
        made = lk.load(made.save(folder / name))
    return made


def test_names_are_part_of_the_model_and_its_file(model):
    assert (model.class_names, model.feature_names, model.classes, model.features) == (
        ("low", "medium", "top"),
        ("a", "b"),
        3,
        2,
    )
    assert not {"class_names", "feature_names"} & set(model.about)


SECOND = {
    "without the first class": FRAME[FRAME.kind != "low"],
    "without the last class": FRAME[FRAME.kind != "top"],
    "one class": FRAME[FRAME.kind == "medium"],
    "other order of columns": FRAME[["kind", "b", "a"]],
    "more columns": FRAME.assign(note="text", c=1.0)[["note", "b", "a", "c", "kind"]],
    "other order of lines": FRAME[::-1],
}


@pytest.mark.parametrize("name", SECOND)
def test_a_second_file_keeps_the_classes_and_features_of_the_model(name, model, tmp_path):
    path, frame = tmp_path / "second.csv", SECOND[name]
    for index in (False, True):
        frame.to_csv(path, index=index)
        data = lk.from_csv(path, target="kind", like=model)
        assert (data.class_names, data.feature_names) == (model.class_names, model.feature_names)
        x, y = np.concatenate([data.x_train, data.x_test]), np.concatenate([data.y_train, data.y_test])
        assert (model.predict(data.raw(x)) == y).mean() > 0.95
        assert sorted(np.array(data.class_names)[y]) == sorted(frame.kind)
    again = lk.from_arrays(frame, frame.kind, like=model)
    assert (again.class_names, again.feature_names) == (model.class_names, model.feature_names)
    assert (model.predict(again.raw(again.x_train)) == again.y_train).mean() > 0.95


@pytest.mark.parametrize("name", SECOND)
def test_a_data_frame_is_read_by_the_names_of_the_model(name, model):
    frame = SECOND[name]
    assert (np.array(model.class_names)[model.predict(frame)] == frame.kind).mean() > 0.95
    assert np.array_equal(model.predict_proba(frame), model.predict_proba(frame[["a", "b"]].to_numpy()))


def test_data_that_do_not_fit_the_model(model, tmp_path):
    def second(frame, **options):
        frame.to_csv(tmp_path / "t.csv", index=False, header=options.get("header") is not False)
        return lk.from_csv(tmp_path / "t.csv", **{"like": model, **options})

    plain = lk.from_arrays(X, SIDE)
    check_refused(
        [
            (lambda: model.predict(FRAME[["a"]]), "no column in predict: x 'b'.*features are a, b"),
            (lambda: model.predict_proba(FRAME.rename(columns={"a": "A"})), "'a'. Did you mean 'A'"),
            (lambda: model.predict(FRAME.set_axis(["a", "b", "b"], axis=1)), "two columns 'b'"),
            (lambda: model.predict(FRAME.assign(b="word")), "its column 'b' has dtype"),
            (lambda: second(FRAME.rename(columns={"b": "c"})), "no column in t.csv 'b'"),
            (lambda: second(FRAME.assign(kind="other")), "no class 'other'.*line 2, 'kind'"),
            (lambda: lk.from_arrays(FRAME[["a"]], FRAME.kind, like=model), "no column in x 'b'"),
            (lambda: lk.from_arrays(FRAME, np.char.add(KIND, "er"), like=model), "no class '"),
            (lambda: lk.from_arrays(X[:, :1], KIND, like=model), "x has 1 features; .* has 2"),
            (lambda: second(FRAME, header=False), "no header"),
            (lambda: second(FRAME.assign(c=1.0)[["a", "b", "c", "kind"]], like=plain), "3 features; .* has 2"),
        ]
    )


def test_names_given_to_a_data_set():
    frame = trained(lk.from_arrays(FRAME[["a", "b"]], FRAME.kind), 1).result()
    assert (frame.class_names, frame.feature_names) == (("low", "medium", "top"), ("a", "b"))
    named = lk.from_dask(da.from_array(X), da.from_array(SIDE), classes=["left", "right"])
    assert (named.classes, named.class_names, trained(named, 1).result().class_names) == (
        2,
        ("left", "right"),
        ("left", "right"),
    )


def test_a_model_file_without_names_is_loaded(tmp_path):
    path = trained(lk.from_arrays(X, LINE), 1).result().save(tmp_path / "m.npz")
    with np.load(path) as file:
        header = json.loads(file["header"].tobytes())
    assert not {"class_names", "feature_names", "column_target"} & set(header["about"])
    again = lk.load(path)
    assert (again.class_names, again.feature_names, again.predict(X).shape) == ((), (), (N,))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("class_names", ["low", "medium"]),
        ("class_names", ["low", "low", "top"]),
        ("class_names", [0, 1, 2]),
        ("class_names", "low"),
        ("feature_names", ["a", "b", "c"]),
        ("feature_names", {"a": 1, "b": 2}),
        ("column_target", "yes"),
    ],
)
def test_damaged_names_are_refused(field, value, model, tmp_path):
    with np.load(model.save(tmp_path / "m.npz")) as file:
        arrays = {name: file[name] for name in file.files}
    header = json.loads(arrays["header"].tobytes())
    header["about"][field] = value
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez(tmp_path / "m.npz", **arrays)
    check_refused([(lambda: lk.load(tmp_path / "m.npz"), rf"m.npz.* is damaged .*header\.about\.{field}")])


# the constant answer --------------------------------------------------------------------------------------------------


def shares(*parts):
    """Labels in these proportions, of 1000 samples, and features that tell nothing."""
    y = np.repeat(np.arange(len(parts)), [round(1000 * part) for part in parts])
    return np.random.default_rng(1).normal(size=(len(y), 3)), y


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ((0.97, 0.03), True),
        ((0.02, 0.98), True),
        ((0.04, 0.96, 0.0), True),
        ((0.7, 0.1, 0.2), False),
        ((0.5, 0.5), False),
    ],
)
def test_a_run_says_what_a_constant_answer_has(parts, said):
    x, y = shares(*parts)
    data = lk.from_arrays(x, y, classes=len(parts))
    # counted by hand, where one class is the largest
    assert data.baseline_accuracy == (data.y_test == np.argmax(parts)).mean()
    problem, cluster = lk.Problem(data, hidden=(4,)), lk.SimulatedCluster(workers=2, compute=0.05)
    run = lk.train(problem, lk.AsyncPS(), cluster, lk.Budget(accuracy=0.95, updates=300)).wait(progress=False)
    texts = (run.log[-1], run.sentence())
    assert run.summary()["baseline_accuracy"] == data.baseline_accuracy
    assert run.stopped_by == ("accuracy" if said else "updates")
    assert all((f"constant answer has {data.baseline_accuracy:.1%}" in text) == said for text in texts)
    row = dict(run.summary().rows())["accuracy"]
    assert ("constant answer" in row) == (
        data.baseline_accuracy >= 0.6 or run.summary()["accuracy"] <= data.baseline_accuracy
    )


def test_the_constant_answer_of_other_data():
    x, y = shares(0.9, 0.1)
    lazy = lk.from_dask(da.from_array(x, chunks=(130, 3)), da.from_array(y, chunks=130), classes=2)
    here = lazy.gathered()
    assert lazy.baseline_accuracy == here.baseline_accuracy == (here.y_test == 0).mean()
    assert lk.from_arrays(X, LINE).baseline_accuracy is None
    assert lk.from_dask(da.from_array(X), da.from_array(LINE), classes=None).baseline_accuracy is None
    clicks = lk.Problem("clicks").dataset
    assert clicks.baseline_accuracy == clicks.extra["baseline_accuracy"]  # computed from probabilities
    problem, cluster = lk.Problem("moons", timing_only=True), lk.SimulatedCluster(workers=2)
    run = lk.train(problem, lk.AsyncPS(), cluster, lk.Budget(updates=5)).wait(progress=False)
    assert run.summary()["baseline_accuracy"] is None
