"""Dask arrays stay on the cluster, and are partitioned, split and standardised like arrays in memory."""

import importlib
import pickle

import numpy as np
import pytest

from labkit.data import ByLabel, BySize, Even, from_arrays, from_dask
from labkit.errors import BadInput
from tests.refusals import check_refused

dask = importlib.import_module("dask")
da = importlib.import_module("dask.array")
cloudpickle = importlib.import_module("cloudpickle")

N = 1000
X = np.random.default_rng(0).normal(3, 2, (N, 3))
X[:, 0] = np.arange(N)  # names the sample
Y = np.arange(N) % 4


@pytest.fixture(autouse=True)
def threads():
    with dask.config.set(scheduler="threads", num_workers=2):
        yield


def lazy(x=X, y=Y, rows=130, unknown=False, **options):
    x, y = da.from_array(x, chunks=(rows, -1)), da.from_array(y, chunks=rows)
    if unknown:
        keep = da.ones(x.shape[0], chunks=rows) > 0
        x, y = x[keep], y[keep]
    return from_dask(x, y, **{"classes": 4, "dtype": "float64", **options})


def ids(made, x):
    return np.round(made.raw(x)[:, 0]).astype(int).tolist()


@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize("how", [Even(), BySize(2.0), ByLabel(0.1), "by-size:0.5"])
def test_every_training_sample_exactly_once(how, unknown):
    made = lazy(unknown=unknown, test_fraction=0.25)
    shares = dask.compute(*made.shares(5, how, seed=2))
    held = ids(made, dask.compute(made.test())[0][0])
    dealt = [i for x, _ in shares for i in ids(made, x)]
    assert sorted(dealt + held) == list(range(N))
    assert (len(dealt), len(held)) == (made.n_train, made.n_test)
    assert abs(len(held) - N / 4) <= 8
    for x, y in shares:
        assert np.array_equal(Y[ids(made, x)], y)
        assert (x.dtype, y.dtype, x.flags.c_contiguous) == (np.float64, np.int64, True)


def test_sizes_are_those_of_the_partition():
    made = lazy()
    for how in (Even(), BySize(1.0)):
        sizes = [len(y) for _, y in dask.compute(*made.shares(3, how))]
        assert sizes == list(how.sizes(made.n_train, 3))
    label_counts = [np.bincount(y, minlength=4) for _, y in dask.compute(*made.shares(4, ByLabel(0.05)))]
    assert max(c.max() / c.sum() for c in label_counts) > 0.6


def test_even_spreads_each_block_over_all_workers():
    made = lazy(rows=250)
    for x, _ in dask.compute(*made.shares(4)):
        per_block = np.bincount(np.array(ids(made, x)) // 250, minlength=4)
        assert per_block.min() >= 35


def test_the_size_of_serialized_shares_does_not_depend_on_the_number_of_samples():
    def size(n):
        made = from_dask(da.zeros((n, 2), chunks=(n // 4, 2)), da.zeros(n, chunks=n // 4, dtype=int), classes=2)
        return len(cloudpickle.dumps([dict(share.dask) for share in made.shares(3)]))

    assert abs(size(40_000) - size(400)) < 500


def test_the_shared_partition_gives_all_samples_to_all():
    made = lazy()
    first, second = dask.compute(*made.shares(2, "shared"))
    assert len(first[0]) == made.n_train
    assert np.array_equal(first[0], second[0])


def test_standardised_as_in_memory():
    made = lazy(rows=77)
    x, y = dask.compute(made.shares(1, "shared")[0])[0]
    rows = ids(made, x)
    oracle = from_arrays(X[rows], y, x_test=X, y_test=Y, dtype="float64")
    assert np.allclose(made.mean, oracle.mean)
    assert np.allclose(made.scale, oracle.scale)
    assert np.allclose(x, oracle.x_train)
    plain = lazy(standardize=False, dtype="float32")
    assert np.array_equal(plain.mean, np.zeros(3))
    assert (plain.dtype, dask.compute(plain.test())[0][0].dtype) == (np.float32, np.float32)


def test_a_share_unpacks_and_the_seed_decides():
    made, other = lazy(), lazy(seed=1)
    x, y = made.shares(3)[1]
    x, y = dask.compute(x, y)
    again = dask.compute(lazy().shares(3)[1])[0]
    assert np.array_equal(x, again[0])
    assert np.array_equal(y, again[1])
    assert set(ids(made, x)) != set(ids(made, dask.compute(made.shares(3, seed=1)[1])[0][0]))
    assert set(ids(made, dask.compute(made.test())[0][0])) != set(ids(other, dask.compute(other.test())[0][0]))


def test_gathered_is_a_data_set_in_memory():
    made = lazy(dtype="float32")
    here = made.gathered()
    assert (here.name, here.classes, here.features, here.outputs) == ("dask", 4, 3, 4)
    assert (made.features, made.outputs, made.image_shape) == (3, 4, None)
    assert (here.n_train, here.n_test, here.dtype) == (made.n_train, made.n_test, np.float32)
    assert sorted(ids(here, here.x_train) + ids(here, here.x_test)) == list(range(N))
    assert here.mean is made.mean


def test_regression_and_odd_blocks():
    x = da.from_array(X, chunks=(300, 2))  # features in two chunks, rows in other blocks than y
    made = from_dask(x, da.from_array(X[:, :2], chunks=(170, 1)), classes=None, dtype="float64")
    assert (made.classes, made.outputs) == (None, 2)
    x_test, y_test = dask.compute(made.test())[0]
    assert np.allclose(made.raw(x_test)[:, :2], made.raw_targets(y_test))
    assert np.allclose(y_test, x_test[:, :2])  # both are standardised by the same training samples
    assert lazy(y=Y / 2, classes=None).outputs == 1
    with pytest.raises(BadInput, match="needs class labels"):
        made.shares(2, "by-label")
    filtered = da.from_array(X, chunks=100)
    keep = filtered[:, 0] >= 350  # whole blocks become empty
    labels = da.from_array(Y, chunks=100)
    odd = from_dask(filtered[keep], labels[keep], classes=4)
    assert odd.n_train + odd.n_test == 650
    assert sum(len(y) for _, y in dask.compute(*odd.shares(3))) == odd.n_train


def with_cell(value, row, column):
    x = X.copy()
    x[row, column] = value
    return x


def test_bad_input():
    check_refused(
        [
            (lambda: lazy(x=with_cell(np.nan, 777, 2)), "At row 777 .* x is nan in column 2"),
            (lambda: lazy(x=with_cell(np.inf, 5, 1), unknown=True), "At row 5 .* x is inf in column 1"),
            (lambda: lazy(y=np.where(np.arange(N) == 500, 4, Y)), "At row 500 .* y is 4; .* from 0 to 3"),
            (lambda: lazy(y=np.where(np.arange(N) == 501, 0.5, Y)), "At row 501 .* y is 0.5"),
            (lambda: lazy(x=X * 1e300), "too large to standardise"),
            (lambda: lazy(x=X * 1e38, standardize=False, dtype="float32"), "x is too large for float32"),
            (lambda: lazy(x=X[:1], y=Y[:1]), "both need at least one"),
            (lambda: lazy(classes=1), "classes=1"),
            (lambda: lazy().shares(N), "800 samples for 1000 workers"),
            (lambda: lazy().shares(0), "workers=0"),
            (lambda: lazy().shares(2, addresses=["a"]), "1 addresses for 2 workers"),
            (lambda: lazy().shares(2, "evenly"), "Did you mean 'even'"),
            (lambda: from_dask(X, Y, classes=4), "x is a ndarray; it must be a dask array"),
            (lambda: from_dask(da.from_array(X)[:, 0], da.from_array(Y), classes=4), r"x has shape \(1000,\)"),
            (lambda: from_dask(da.from_array(X), da.from_array(X), classes=4), r"y has shape \(1000, 3\)"),
            (lambda: from_dask(da.from_array(X), da.from_array(Y[1:]), classes=4), "1000 rows and y has 999"),
            (lambda: from_dask(da.from_array(X.astype(str)), da.from_array(Y), classes=4), "must hold real numbers"),
        ]
    )


def test_unknown_blocks_that_do_not_match():
    x, y = da.from_array(X, chunks=100), da.from_array(Y, chunks=100)
    with pytest.raises(BadInput, match=r"block 0 .* x has 50 rows and y has 100"):
        from_dask(x[x[:, 0] % 2 == 0], y, classes=4)
    with pytest.raises(BadInput, match="10 blocks of rows and y has 20"):
        from_dask(x[x[:, 0] >= 0], da.from_array(Y, chunks=50)[da.from_array(Y, chunks=50) >= 0], classes=4)


@pytest.mark.dask
def test_on_a_cluster_nothing_big_comes_to_the_client(monkeypatch):
    distributed = importlib.import_module("distributed")
    brought = []
    compute = dask.compute

    def weighed(*args, **options):
        answer = compute(*args, **options)
        brought.append(len(pickle.dumps(answer)))
        return answer

    cluster = distributed.LocalCluster(
        processes=False, n_workers=2, threads_per_worker=1, dashboard_address=None, memory_limit=0
    )
    with cluster, distributed.Client(cluster) as client, dask.config.set(scheduler=None):
        numbers = da.arange(20_000, chunks=2_000)
        x = da.stack([numbers.astype(float)] * 10, axis=1) + da.zeros((20_000, 10), chunks=(2_000, 10))
        x, y = client.persist([x.rechunk({1: -1}), numbers % 4])
        monkeypatch.setattr(dask, "compute", weighed)
        made = from_dask(x, y, classes=4, dtype="float64")
        addresses = sorted(client.scheduler_info()["workers"])
        shares = client.compute(made.shares(2, addresses=addresses))
        distributed.wait(shares)
        assert [list(client.who_has([s])[s.key]) for s in shares] == [[a] for a in addresses]
        assert brought
        assert sum(brought) < 4_000  # x is 1.6 MB, y 160 KB
        seen = [client.submit(lambda pair: pair[0][:, 0] * 1.0, s).result() for s in shares]
        x_test, _ = client.compute(made.test()).result()
        rows = [*np.concatenate(seen) * made.scale[0] + made.mean[0], *made.raw(x_test)[:, 0]]
        assert sorted(np.round(rows).astype(int)) == list(range(20_000))
        made.shares(2, "by-label")
        assert sum(brought) < 8 * made.n_train + 8_000  # labels only
