"""Codecs compared with the papers: the values that each sends, and the number of bytes."""

from itertools import product

import numpy as np
import pytest

from labkit.errors import BadInput
from labkit.nn.codecs import QSGD, Float16, PowerSGD, SignSGD, TopK, as_codec, codec_by_name, linear_codec

SHAPES = ((6, 40), (40,), (40, 30), (3, 2), (2,))
SIZE = 240 + 40 + 1200 + 6 + 2
ALL = [TopK(), TopK(7), SignSGD(), QSGD(), QSGD(8, 7), QSGD(3, 100), Float16(), PowerSGD(), PowerSGD(1)]


def values(seed=0, size=SIZE, dtype="float64"):
    return np.random.default_rng(seed).standard_normal(size).astype(dtype)


def through(codec, x, shapes=None, state=None):
    """(decoded, message)."""
    shapes = shapes or ((len(x),),)
    state = state if state is not None else codec.state(shapes, x.dtype, np.random.default_rng(1))
    message = codec.encode(x, state)
    return codec.decode(message, len(x), x.dtype), message


def test_a_message_has_the_declared_size_and_type():
    for codec, dtype in product(ALL, ["float32", "float64"]):
        for shapes in (SHAPES, ((1,),), ((9,),), ((513,),)):
            x = values(size=sum(int(np.prod(s)) for s in shapes), dtype=dtype)
            before = x.copy()
            decoded, message = through(codec, x, shapes)
            assert [(a.shape, a.dtype) for a in message] == list(codec.message(shapes, dtype)), (dtype, codec)
            assert sum(a.nbytes for a in message) == codec.nbytes(shapes, dtype), (dtype, codec)
            assert (decoded.shape, decoded.dtype) == (x.shape, x.dtype), (dtype, codec)
            assert np.array_equal(x, before), (dtype, codec)
            assert not any(np.shares_memory(x, a) for a in message), (dtype, codec)


def test_bytes_by_hand():
    sizes = {
        TopK(0.01): 8 * 15, TopK(3): 24, TopK(1): 8, TopK(9999): 8 * SIZE, SignSGD(): 186 + 4, Float16(): 2 * SIZE,
        QSGD(): SIZE // 2 + 4 * 3, QSGD(8, SIZE): SIZE + 4, QSGD(3, 1000): 558 + 8,
        PowerSGD(): 4 * (2 * 46 + 40 + 2 * 70 + 6 + 2), PowerSGD(1): 4 * (46 + 40 + 70 + 5 + 2),
    }  # fmt: skip
    assert {c: c.nbytes(SHAPES, "float32") for c in sizes} == sizes


# top-k ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 5, 0.1, 60])
def test_top_k_sends_the_largest_and_of_equal_ones_the_first(k):
    for seed in range(20):
        x = np.random.default_rng(seed).integers(-4, 5, 60).astype("float32")  # many ties
        decoded, (index, sent) = through(TopK(k), x)
        n = TopK(k).entries(60)
        best = sorted(np.argsort(-np.abs(x), kind="stable")[:n])
        assert index.tolist() == best
        assert index.dtype == np.int32
        assert sent.tolist() == x[best].tolist()
        expected = np.zeros(60)
        expected[best] = x[best]
        assert np.array_equal(decoded, expected)


def test_top_k_share_and_count():
    assert [TopK(0.01).entries(n) for n in (1, 99, 100, 1000, 1_000_000)] == [1, 1, 1, 10, 10_000]
    assert [TopK(10).entries(n) for n in (1, 10, 1000)] == [1, 10, 10]
    for bad in (0, -1, 2.5, "many", float("nan")):
        with pytest.raises(BadInput, match="k="):
            TopK(bad)


# signs and levels -----------------------------------------------------------------------------------------------------


def test_sign_sgd_is_the_mean_magnitude_with_signs():
    for size in (1, 7, 8, 9, 1000):
        x = values(size=size)
        decoded, _ = through(SignSGD(), x)
        assert np.allclose(decoded, np.abs(x).mean() * np.sign(x), rtol=1e-15)
    assert through(SignSGD(), np.zeros(3))[0].tolist() == [0, 0, 0]


def test_qsgd_levels():
    """Values on a level are reproduced exactly: levels are integer fractions of the bucket's norm, bucket by bucket."""
    for bits in range(2, 9):
        levels = 2 ** (bits - 1) - 1
        x = np.array([3.0, -4.0, 0.0, 5.0, 0.0, -1.0, 0.0])
        decoded, (_, lengths) = through(QSGD(bits, 3), x)
        assert lengths.tolist() == [5.0, np.sqrt(26), 0.0], bits
        length = lengths.repeat([3, 3, 1])
        away = np.abs(decoded - x) * levels
        assert (away <= length * (1 + 1e-12)).all()  # one of the two neighbouring levels
        level = decoded * levels / np.where(length, length, 1)
        assert np.allclose(level, np.round(level), rtol=0, atol=1e-12), bits
        alone, _ = through(QSGD(bits, 1), x)  # each its own length: exact
        assert np.array_equal(alone, x), bits


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_qsgd_is_unbiased_and_as_noisy_as_its_bound(bits):
    x, codec, times = values(size=64), QSGD(bits, 32), 4000
    state, levels = codec.state(((64,),), "float64", np.random.default_rng(3)), 2 ** (bits - 1) - 1
    draws = np.array([codec.decode(codec.encode(x, state), 64, "float64") for _ in range(times)])
    error = draws.std(axis=0) / np.sqrt(times)
    assert (np.abs(draws.mean(axis=0) - x) <= 5 * error + 1e-12).all()
    for half in (slice(0, 32), slice(32, 64)):
        length = np.linalg.norm(x[half])
        share = np.abs(x[half]) / length * levels % 1.0
        exact = (share * (1 - share)).sum() * (length / levels) ** 2  # of Bernoulli rounding
        seen = ((draws[:, half] - x[half]) ** 2).sum(axis=1).mean()
        assert seen == pytest.approx(exact, rel=0.1)
        assert seen <= 1.05 * min(32 / levels**2, np.sqrt(32) / levels) * length**2


def test_qsgd_repeats_from_its_stream():
    x = values()
    first, second = (through(QSGD(), x)[0] for _ in range(2))
    assert np.array_equal(first, second)


def test_float16_is_half_precision_and_does_not_overflow():
    x = values() * 10.0 ** np.arange(SIZE).clip(0, 4)
    assert np.array_equal(through(Float16(), x)[0], x.astype(np.float16).astype(float))
    edge = np.array([1e6, -1e6, 65504.0, np.inf, -np.inf, np.nan, 1e-9])
    assert np.array_equal(
        through(Float16(), edge)[0], [65504, -65504, 65504, np.inf, -np.inf, np.nan, 0], equal_nan=True
    )


def test_decoded_gradients_that_were_not_finite_are_not_finite():
    for bad, codec in product([np.nan, np.inf, -np.inf], ALL):
        x = values()
        x[300] = bad
        with np.errstate(all="raise"):
            decoded, _ = through(codec, x, SHAPES)
        assert not np.isfinite(decoded).all(), (codec, bad)


# PowerSGD -------------------------------------------------------------------------------------------------------------


def low_rank(n, m, rank, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, rank)) @ rng.standard_normal((rank, m))


def test_power_sgd_has_the_compression_ratio_of_its_formula():
    """n m / (r (n + m)): 128 for 512 x 512 and rank 2."""
    shapes = ((512, 512),)
    for dtype, width in (("float32", 4), ("float64", 8)):
        assert 512 * 512 * width / PowerSGD(2).nbytes(shapes, dtype) == 128
    assert sum(s[0] for s, _ in PowerSGD(2).sums(shapes, "float32")) == 2 * (512 + 512)


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_power_sgd_restores_a_matrix_of_low_rank(rank):
    m = low_rank(512, 512, rank)
    decoded, message = through(PowerSGD(rank), m.ravel(), ((512, 512),))
    assert np.abs(decoded.reshape(512, 512) - m).max() <= 1e-10
    assert [a.shape for a in message] == [(512, rank)] * 2


def test_power_sgd_restores_the_mean_of_several_workers():
    """The mean of three matrices of rank 1 has rank 3, and is exact with rank 3, after two sums."""
    matrices = [low_rank(40, 30, 1, seed) for seed in range(3)]
    codec, shapes = PowerSGD(3), ((40, 30),)
    vectors = [m.ravel().copy() for m in matrices]
    outs = [np.empty(1200) for _ in vectors]
    rounds = [
        codec.sum_over_workers(v, out, codec.state(shapes, "float64", np.random.default_rng(seed)), 3)
        for seed, (v, out) in enumerate(zip(vectors, outs))  # another stream for each: the first Q must not differ
    ]
    for expected in (3 * 40, 3 * 30):
        parts = [next(r) for r in rounds]
        total = np.sum(parts, axis=0)
        assert total.shape == (expected,)
        for part in parts:
            part[:] = total
    for r in rounds:
        with pytest.raises(StopIteration):
            next(r)
    for out in outs:
        assert np.array_equal(out, outs[0])
        assert np.abs(out.reshape(40, 30) - np.sum(matrices, axis=0)).max() <= 1e-10


def test_warm_start_finds_the_best_approximation():
    """The power method: on one matrix again and again, the error falls to that of the singular value decomposition."""
    m = low_rank(50, 40, 4) + 0.1 * values(size=2000).reshape(50, 40)
    codec, shapes = PowerSGD(2), ((50, 40),)
    state = codec.state(shapes, "float64", np.random.default_rng(0))
    errors = [np.linalg.norm(through(codec, m.ravel(), shapes, state)[0] - m.ravel()) for _ in range(60)]
    best = np.sqrt((np.linalg.svd(m, compute_uv=False)[2:] ** 2).sum())
    assert errors[0] > 1.05 * best
    assert errors[-1] == pytest.approx(best, rel=1e-6)
    assert all(b <= a * (1 + 1e-12) for a, b in zip(errors, errors[1:]))


def test_vectors_and_small_matrices_are_sent_as_they_are():
    x = values()
    decoded, message = through(PowerSGD(2), x, SHAPES)
    assert [a.shape for a in message] == [(6, 2), (40, 2), (40,), (40, 2), (30, 2), (6,), (2,)]
    for whole in (slice(240, 280), slice(1480, 1488)):
        assert np.array_equal(decoded[whole], x[whole])
    assert not PowerSGD(2).shrinks((4, 4))  # 16 values either way
    assert PowerSGD(2).shrinks((4, 5))
    assert not PowerSGD(1).shrinks((2, 2, 9))


def test_power_sgd_recovers_after_a_matrix_of_zeros():
    codec, shapes = PowerSGD(2), ((20, 30),)
    state = codec.state(shapes, "float64", np.random.default_rng(0))
    assert not through(codec, np.zeros(600), shapes, state)[0].any()
    m = low_rank(20, 30, 2).ravel()
    assert np.abs(through(codec, m, shapes, state)[0] - m).max() <= 1e-10


def test_a_message_of_another_model_is_refused():
    _, message = through(PowerSGD(2), values(), SHAPES)
    for size in (SIZE - 1, SIZE + 1):
        with pytest.raises(BadInput, match="are not the factors of a vector"):
            PowerSGD(2).decode(message, size, "float64")


# names ----------------------------------------------------------------------------------------------------------------


def test_codecs_are_made_from_their_names():
    made = {
        "top-k": TopK(0.01), "top-k:0.05": TopK(0.05), "top-k:10": TopK(10), "sign-sgd": SignSGD(), "qsgd:8": QSGD(8),
        "qsgd:4:64": QSGD(4, 64), "float16": Float16(), "power-sgd:4": PowerSGD(4),
    }  # fmt: skip
    for name, codec in made.items():
        assert codec_by_name(name) == as_codec(name) == as_codec(codec) == codec
    assert as_codec(None) is as_codec("none") is as_codec("None") is None
    with pytest.raises(BadInput, match="Did you mean 'top-k'"):
        codec_by_name("topk:0.01")
    with pytest.raises(BadInput, match=r"bits=9 is not allowed; bits is a whole number from 2 to 8"):
        codec_by_name("qsgd:9")
    with pytest.raises(BadInput, match=r"write lk.codecs.TopK\(\)"):
        as_codec(TopK)
    with pytest.raises(BadInput, match="codec=3 is not a codec; give one, as lk"):
        as_codec(3)


def test_only_linear_codecs_can_be_added_up():
    for fit in (None, "float16", PowerSGD(3)):
        assert linear_codec("RingAllReduce", fit) == as_codec(fit)
    for codec in (TopK(), "sign-sgd", QSGD()):
        with pytest.raises(BadInput) as error:
            linear_codec("RingAllReduce", codec)
        assert "is not linear: sums of its messages are not messages of a sum" in str(error.value)
        assert "RingAllReduce" in str(error.value)
        assert str(error.value).endswith("all-reduce takes Float16, PowerSGD.")


@pytest.mark.parametrize(("codec", "shares"), [(Float16(), 1), (Float16(), 5), (PowerSGD(), 4)], ids=repr)
def test_linear_codecs_are_linear(codec, shares):
    """Sums decode to the sum of the workers' decoded messages, up to rounding of float16."""
    vectors = [values(seed) for seed in range(shares)]
    outs = [v.copy() for v in vectors]  # also in place
    rounds = [
        codec.sum_over_workers(o, o, codec.state(SHAPES, "float64", np.random.default_rng(0)), shares) for o in outs
    ]
    done = False
    sent = []
    while not done:
        parts = []
        for r in rounds:
            try:
                parts.append(next(r))
            except StopIteration:
                done = True
        if parts:
            total = np.sum(parts, axis=0, dtype=parts[0].dtype)
            sent.append((total.shape, total.dtype))
            for part in parts:
                part[:] = total
    assert tuple(sent) == codec.sums(SHAPES, "float64")
    plain = np.sum(vectors, axis=0)
    if isinstance(codec, Float16):
        assert np.abs(outs[0] - plain).max() < 2e-3 * np.abs(plain).max() * shares
    else:
        alone, _ = through(codec, plain, SHAPES)  # compressing the sum itself
        assert np.abs(outs[0] - alone).max() <= 1e-9
    assert all(np.array_equal(o, outs[0]) for o in outs)
