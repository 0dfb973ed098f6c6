"""A data set of a .npy file is that of the same arrays in memory, byte for byte, and reads the file only when it has to."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

import labkit as lk
from labkit.serialization import fingerprint
from tests.refusals import check_refused

RNG = np.random.default_rng(0)
X = RNG.normal(3, 2, (60, 4))
Y = (X[:, 0] > X[:, 1]).astype(int)
PICTURES = RNG.integers(0, 256, (60, 5, 3, 2), dtype=np.uint8)
TARGETS = X[:, :2] * 300
WORDS = np.array(["no", "yes"])[Y]
SIMULATED = lk.SimulatedCluster(workers=3)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def saved(name, values):
    np.save(name, values)
    return name


def both(x, y, **options):
    """The data set of arrays in memory, and that of their files."""
    held_out = {"x_test": x[:7], "y_test": y[:7]} if options.pop("given", False) else {}
    files = {name: saved(f"{name}.npy", values) for name, values in held_out.items()}
    weights = options.pop("sample_weights", None)
    in_memory = lk.from_arrays(x, y, name="x", sample_weights=weights, **held_out, **options)
    weights = None if weights is None else saved("weights.npy", weights)
    in_file = lk.from_npy(saved("x.npy", x), saved("y.npy", y), sample_weights=weights, **files, **options)
    return in_memory, in_file


@pytest.mark.parametrize(
    ("x", "y", "options"),
    [
        (X, Y, {}),
        (X.astype(">f4"), Y, {"dtype": "float64", "stratify": True, "seed": 3}),
        (X > 3, Y, {"standardize": False}),
        (PICTURES, WORDS, {"test_fraction": 0.5}),
        (X, TARGETS, {"given": True}),
        (X, TARGETS[:, 0], {"sample_weights": np.arange(60.0)}),
        (X, Y, {"regression": True, "dtype": "float64"}),
    ],
    ids=["labels", "big-endian", "truth", "pictures", "targets", "weights", "regression"],
)
@pytest.mark.parametrize("block", [None, 9])
def test_the_same_numbers_as_in_memory(x, y, options, block, monkeypatch):
    if block is not None:
        monkeypatch.setattr(lk.data.mapped, "BLOCK_VALUES", block)  # 2 of 60 samples
    in_memory, in_file = both(x, y, **options)
    for name in ("x_train", "y_train", "x_test", "y_test", "mean", "scale", "sample_weights"):
        np.testing.assert_array_equal(getattr(in_file, name), getattr(in_memory, name), strict=True)
    assert (in_file.name, in_file.classes, in_file.sample_shape) == ("x", in_memory.classes, in_memory.sample_shape)
    assert (in_file.class_names, in_file.dtype) == (in_memory.class_names, in_memory.dtype)
    assert in_file.x_train.shape == in_memory.x_train.shape
    assert os.path.abspath("x.npy") in repr(in_file)


@pytest.mark.parametrize(
    "key",
    [3, -1, slice(2, 9), slice(None, None, -2), [5, 1, 5], np.arange(48) % 5 == 0, (4, 2), (slice(3), 1), (..., 0)],
    ids=str,
)
def test_parts_are_read_as_from_an_array(key):
    in_memory, in_file = both(X, Y)
    np.testing.assert_array_equal(in_file.x_train[key], in_memory.x_train[key], strict=True)


@pytest.mark.parametrize("partition", ["even", "by-label:0.3", "shared", "global-batch"])
@pytest.mark.parametrize("validation", [0.0, 0.25])
def test_a_run_is_the_same_as_in_memory(partition, validation):
    runs = []
    for data in both(X, Y, sample_weights=np.arange(60.0)):
        problem = lk.Problem(data, hidden=(5,), batch_size=6, partition=partition, validation=validation)
        runs.append(lk.train(problem, lk.AsyncPS(), SIMULATED, lk.Budget(updates=40)).wait())
    one, other = (run.summary().to_dict() for run in runs)
    assert one == other
    assert runs[0].trace.header == runs[1].trace.header
    for run in runs:
        assert run.result().confusion_matrix().counts.sum() == 12


def test_samples_in_a_plane_are_drawn_and_workers_may_join():
    runs = []
    for data in both(X[:, :2], Y):
        elastic = lk.SimulatedCluster(workers=2, max_workers=3)
        runs.append(lk.train(lk.Problem(data, hidden=(5,)), lk.AsyncPS(), elastic, lk.Budget(updates=20)).wait())
    assert runs[0].trace.header == runs[1].trace.header
    assert runs[0].summary()["parameters_sha256"] == runs[1].summary()["parameters_sha256"]


def test_a_copy_of_the_samples_is_sent_as_path_and_rows():
    wide = RNG.normal(size=(60, 2000)).astype(np.float32)
    in_memory, in_file = both(wide, Y)
    assert len(pickle.dumps(in_memory)) > wide.nbytes
    sent = pickle.dumps(lk.data.samples_of_workers(in_file, lk.partitions.Even(), 3, 0))
    assert len(sent) < wide.nbytes / 4  # mean and scale of the 2000 features
    shares = pickle.loads(sent)
    whole = np.concatenate([np.asarray(x) for x, _ in shares])
    assert sorted(map(tuple, whole)) == sorted(map(tuple, in_memory.x_train))


def test_the_contents_of_the_file_identify_the_data():
    def identity():
        return fingerprint(lk.Problem(lk.from_npy("x.npy", Y, name="mine")))

    before = [saved("x.npy", X) and identity(), identity()]
    os.rename("x.npy", "other.npy")
    moved = fingerprint(lk.Problem(lk.from_npy("other.npy", Y, name="mine")))
    assert before == [moved, moved]
    saved("x.npy", X + np.eye(60, 4))
    assert identity() != moved
    assert fingerprint(lk.Problem(lk.from_npy("other.npy", Y, name="mine", test_fraction=0.5))) != moved


def test_a_file_that_changes_is_noticed_wherever_it_is_read():
    data = lk.from_npy(saved("x.npy", X), Y)
    sent = pickle.dumps(data)
    os.utime("x.npy", ns=(1, 1))  # a copy: another time, the same contents
    assert np.asarray(pickle.loads(sent).x_train).shape == (48, 4)
    saved("x.npy", X * 2)
    problem = lk.Problem(data, hidden=())
    with pytest.raises(lk.ClusterError, match=r"This process has another file '.*x.npy' than the one"):
        np.asarray(pickle.loads(sent).x_train)
    os.truncate("x.npy", 200)
    check_refused([
        (lambda: data.x_train[0], r"x.npy' was changed.* make a new data set of a file that has changed"),
        (lambda: lk.train(problem, lk.SyncPS(), SIMULATED), "x.npy' was changed"),
        (lambda: np.asarray(data.x_test), "x.npy' was changed"),
    ])  # fmt: skip
    os.remove("x.npy")
    check_refused([(lambda: data.x_train[0], "x.npy' is gone, but a data set reads its samples from it")])
    with pytest.raises(lk.ClusterError, match=r"This process cannot read '.*x.npy': No such file"):
        np.asarray(pickle.loads(sent).x_train)


def test_a_run_whose_file_changes_ends_with_an_error_that_names_it():
    problem = lk.Problem(lk.from_npy(saved("x.npy", X), Y), hidden=())
    run = lk.train(problem, lk.SyncPS(), SIMULATED, lk.Budget(updates=1000))
    run.advance(0.5)
    os.utime("x.npy", ns=(1, 1))
    with pytest.raises(lk.RoleError, match=r"worker-\d failed at step \d+: The file '.*x.npy' was changed"):
        run.wait()
    assert run.stopped_by == "error"


def written(name, contents):
    Path(name).write_bytes(contents)
    return name


def test_files_that_are_refused():
    objects = np.array([{}, {}, {}])
    np.save("npy.npy", objects, allow_pickle=True)
    np.savez("x.npz", x=X)
    whole = Path(saved("x.npy", X)).read_bytes()
    check_refused([
        (lambda: lk.from_npy("none.npy", Y), r"x: the file '/.*none.npy' cannot be read: No such file"),
        (lambda: lk.from_npy(".", Y), "cannot be read: Is a directory"),
        (lambda: lk.from_npy("x.npy", "none.npy"), r"y: the file '/.*none.npy' cannot be read"),
        (lambda: lk.from_npy(X, Y), "give a path, as text"),
        (lambda: lk.from_npy("x.npz", Y), "archive of arrays .* write each array with np.save"),
        (lambda: lk.from_npy(written("x.csv", b"1,2\n3,4"), Y), "no .npy file.* CSV file is read by from_csv"),
        (lambda: lk.from_npy(written("e.npy", b""), Y), "no .npy file"),
        (lambda: lk.from_npy("npy.npy", Y), r"x: '/.*npy.npy' holds Python objects.* write numbers"),
        (lambda: lk.from_npy(saved("f.npy", np.asfortranarray(X)), Y), "Fortran order.*np.ascontiguousarray"),
        (lambda: lk.from_npy(written("short.npy", whole[:-8]), Y), "was not written to its end"),
        (lambda: lk.from_npy(saved("c.npy", X + 1j), Y), "x has dtype complex128; it must hold real numbers"),
        (lambda: lk.from_npy(saved("n.npy", np.where(X[9, 2] == X, np.nan, X)), Y), "x is nan at row 9, column 2"),
        (lambda: lk.from_npy(saved("big.npy", X * 1e300), Y), "too large for float32"),
        (lambda: lk.from_npy("x.npy", Y[1:]), "y has 59 rows for 60 samples"),
        (lambda: lk.from_npy("x.npy", Y, x_test="x.npy"), "x_test and y_test belong together"),
        (lambda: lk.from_npy("x.npy", Y, sample_weights=np.ones(3)), "one number for each sample"),
    ])  # fmt: skip
