"""Placement of rows on servers: the load of hot keys, consistent hashing, and that every row is placed exactly once."""

import numpy as np
import pytest

from labkit.errors import BadInput
from labkit.roles.sparse.placement import ConsistentHash, HashPlacement, RangePlacement, placement_of

KEYS = 100_000
IDS = np.arange(KEYS)
ZIPF = 1 / (IDS + 1.0)
ZIPF /= ZIPF.sum()


def load_of(placement, servers):
    return np.bincount(placement.owner(IDS, servers), weights=ZIPF, minlength=servers)


def test_the_hottest_key_and_the_hottest_of_eight_hashed_servers_have_the_load_of_the_formula():
    assert ZIPF[0] == pytest.approx(0.08271, abs=5e-6)
    hottest = np.mean([load_of(HashPlacement(seed), 8).max() for seed in range(400)])
    assert hottest == pytest.approx(0.197, rel=0.02)


@pytest.mark.parametrize("servers", [8, 64, 512])
def test_more_servers_cannot_have_less_load_than_the_hottest_key(servers):
    for placement in (HashPlacement(), ConsistentHash(), RangePlacement(KEYS)):
        load = load_of(placement, servers)
        assert load.max() >= ZIPF[0]
        assert load.sum() == pytest.approx(1)
    assert load_of(HashPlacement(), 512).max() < ZIPF[0] + 0.02  # it can only approximate it


def test_range_placement_puts_the_hottest_keys_on_one_server():
    assert load_of(RangePlacement(KEYS), 8)[0] == pytest.approx(ZIPF[: KEYS // 8].sum())
    assert load_of(RangePlacement(KEYS), 8)[0] > 0.8


def test_shares_of_the_ring_have_the_coefficient_of_variation_of_the_formula():
    shares = np.array([ConsistentHash(100, seed).shares(8) for seed in range(200)])
    assert np.allclose(shares.sum(axis=1), 1)
    assert np.mean(shares.std(axis=1) / shares.mean(axis=1)) == pytest.approx(0.0935, rel=0.05)


def test_shares_of_the_ring_are_shares_of_the_keys():
    ring = ConsistentHash(100, 3)
    counts = np.bincount(ring.owner(IDS, 8), minlength=8) / KEYS
    assert np.allclose(counts, ring.shares(8), atol=0.005)
    assert ring.shares(1).tolist() == [1.0]


def test_removing_a_server_moves_only_its_own_keys():
    for gone in range(8):
        for seed in range(5):
            ring = ConsistentHash(100, seed)
            before = ring.owner(IDS, 8)
            after = ring.owner(IDS, [s for s in range(8) if s != gone])
            assert np.array_equal(before != after, before == gone), gone
            assert gone not in after, gone


def test_modulo_hashing_moves_nearly_all_keys():
    moved = (HashPlacement().owner(IDS, 8) != HashPlacement().owner(IDS, 7)).mean()
    assert moved == pytest.approx(7 / 8, abs=0.01)


@pytest.mark.parametrize("placement", [RangePlacement(KEYS), HashPlacement(5), ConsistentHash(10, 2)])
def test_every_row_has_one_owner_whatever_stands_beside_it(placement):
    whole = placement.owner(IDS, 3)
    assert set(whole.tolist()) == {0, 1, 2}
    some = np.array([[99_999, 0], [7, 7]])
    assert np.array_equal(placement.owner(some, 3), whole[some])
    assert set(placement.owner(IDS, [4, 9]).tolist()) == {4, 9}
    assert not placement.owner(IDS, 1).any()
    assert len(placement.owner(np.empty(0, np.int64), 3)) == 0


def test_ranges_are_even():
    counts = np.bincount(RangePlacement(10).owner(np.arange(10), 3))
    assert counts.tolist() == [4, 3, 3]
    assert RangePlacement().of_table(10) == RangePlacement(10)
    assert RangePlacement(5).of_table(10) == RangePlacement(5)


def test_a_placement_is_given_by_name_or_as_an_object():
    assert [type(placement_of(name)) for name in ("range", "hash", "consistent-hash")] == [
        RangePlacement, HashPlacement, ConsistentHash,
    ]  # fmt: skip
    assert placement_of(HashPlacement(3)) == HashPlacement(3)
    with pytest.raises(BadInput, match="Did you mean 'hash'"):
        placement_of("hsah")
    for wrong in (0, [1, 1], [-1]):
        with pytest.raises(BadInput, match="servers="):
            HashPlacement().owner(IDS, wrong)
    with pytest.raises(BadInput, match="give rows"):
        RangePlacement().owner(IDS, 2)
