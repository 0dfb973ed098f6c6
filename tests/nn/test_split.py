"""Layers split over ranks add up to the layers; boxes partition the parameters exactly; stages in two halves."""

from itertools import product

import numpy as np
import pytest

import labkit as lk
from labkit.nn import Network
from labkit.nn.objective import StageSequence
from labkit.nn.split import boxes_of, split_pairs

RNG = np.random.default_rng(5)


def network(hidden, activation="relu"):
    return Network.mlp(7, hidden, 4, activation, dtype="float64")


def test_every_parameter_has_exactly_one_owner():
    for ranks, hidden in product([1, 2, 3, 5], [(), (6,), (6, 5), (6, 5, 8)]):
        net = network(hidden)
        owners, numbers = np.zeros(net.size), np.arange(net.size, dtype=float)
        for rank in range(ranks):
            own = boxes_of(split_pairs(net, rank, ranks))
            ones = np.zeros(net.size)
            own.put(ones, np.ones(own.size))
            owners += ones
            taken = own.take(numbers)
            assert len(set(taken.tolist())) == len(taken) == own.size, (hidden, ranks)
        assert (owners == 1).all(), (hidden, ranks)


def test_summands_add_up_to_the_network():
    """Forward and backward through all pairs, with explicit sums, compared with the network itself."""
    for ranks, hidden, activation in product([1, 2, 3, 5], [(), (6,), (6, 5), (6, 5, 8)], ["relu", "tanh"]):
        net = network(hidden, activation)
        params = RNG.normal(size=net.size)
        x, dy = RNG.normal(size=(9, 7)), RNG.normal(size=(9, 4))
        split = [split_pairs(net, rank, ranks) for rank in range(ranks)]
        flats = [boxes_of(pairs).take(params) for pairs in split]
        grads = [np.full_like(flat, np.nan) for flat in flats]
        cuts = [np.cumsum([0, *(p.size for p in pairs)]) for pairs in split]
        value, saved, behind = x, [], []
        for i in range(len(split[0])):
            made = [pairs[i].forward(flat[c[i] : c[i + 1]], value) for pairs, flat, c in zip(split, flats, cuts)]
            value = sum(y for y, _ in made)
            saved.append([kept for _, kept in made])
            activation_ = split[0][i].second.activation
            behind.append(None)
            if activation_ is not None:
                value, behind[-1] = activation_.forward(params[:0], value)
        wanted, kept = net.forward(params, x)
        np.testing.assert_allclose(value, wanted, rtol=0, atol=1e-13)
        delta = dy
        for i in reversed(range(len(split[0]))):
            if behind[i] is not None:
                delta = split[0][i].second.activation.input_gradient(params[:0], behind[i], delta)
            delta = sum(
                pairs[i].backward(flat[c[i] : c[i + 1]], saved[i][r], delta, grad[c[i] : c[i + 1]])
                for r, (pairs, flat, c, grad) in enumerate(zip(split, flats, cuts, grads))
            )
        out = np.empty(net.size)
        dx = net.backward(params, kept, dy, out)
        np.testing.assert_allclose(delta, dx, rtol=0, atol=1e-12)
        together = np.full(net.size, np.nan)
        for pairs, grad in zip(split, grads):
            boxes_of(pairs).put(together, grad)
        np.testing.assert_allclose(together, out, rtol=0, atol=1e-12)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_shares_of_the_work_add_up_to_one(ranks):
    net = network((6, 5, 8))
    shares = [pair.share for rank in range(ranks) for pair in split_pairs(net, rank, ranks)]
    assert sum(shares) == pytest.approx(1)


def test_a_layer_too_narrow_to_be_split_is_named():
    with pytest.raises(lk.BadInput, match=r"dense1 has 6 outputs.*over 7 workers; allowed: 1 to 6"):
        split_pairs(network((6, 8)), 0, 7)
    with pytest.raises(lk.BadInput, match=r"output has 7 inputs.*over 8 workers; allowed: 1 to 7"):
        split_pairs(network(()), 0, 8)


def test_a_backward_in_two_halves_has_the_bits_of_a_whole_one():
    for blocks, activation in product([(0, 1), (1, 3), (0, 3)], ["relu", "tanh"]):
        net = network((6, 5), activation)
        stage = StageSequence(net.stages[slice(*blocks)])
        params = RNG.normal(size=stage.size)
        x, dy = RNG.normal(size=(9, stage.inputs)), RNG.normal(size=(9, stage.outputs))
        saved = stage.forward(params, x)[1]
        whole, halves, first = (np.full(stage.size, np.nan) for _ in range(3))
        before = dy.copy()
        dx = stage.backward(params, saved, dy, whole)
        dx2, dys = stage.input_gradient(params, saved, dy)
        stage.parameter_gradient(saved, dys, halves)
        assert dx.tobytes() == dx2.tobytes(), (activation, blocks)
        assert whole.tobytes() == halves.tobytes(), (activation, blocks)
        assert stage.backward(params, saved, dy, first, dx=False).shape == (0, stage.inputs), (activation, blocks)
        assert stage.input_gradient(params, saved, dy, dx=False)[0].shape == (0, stage.inputs), (activation, blocks)
        assert first.tobytes() == whole.tobytes(), (activation, blocks)
        assert dy.tobytes() == before.tobytes(), (activation, blocks)
        with pytest.raises(lk.BadInput, match="dy: shape"):
            stage.input_gradient(params, saved, dy[:3])
