"""Deadlock detection from reports alone, without a cluster."""

from hypothesis import given
from hypothesis import strategies as st

from labkit.engines.dask.client.deadlock import MARGIN_NS, DeadlockDetector

MS = 1_000_000


def deadlock_after(*reports, roles=("a", "b")):
    detector = DeadlockDetector(roles)
    for role, waiting, sent, received, ms in reports:
        detector.report(role, waiting, None, sent, received, ms * MS)
    return detector.blocked()


def test_a_deadlock_is_found_if_all_wait_and_no_message_is_in_flight():
    reports = [(role, ["Weights"], 3, 3, ms) for ms in range(0, 400, 100) for role in "ab"]
    assert deadlock_after(*reports) == {"a": (("Weights",), None), "b": (("Weights",), None)}


def test_no_deadlock_is_reported_before_the_grace_period_ends():
    assert deadlock_after(*[(role, ["Weights"], 3, 3, ms) for ms in (0, 100) for role in "ab"]) is None


def test_no_deadlock_if_a_role_has_never_reported():
    assert deadlock_after(*[("a", ["Weights"], 3, 3, ms) for ms in range(0, 900, 100)]) is None


def test_no_deadlock_if_a_role_does_not_wait():
    waiting = {"a": ["W"], "b": None}
    assert deadlock_after(*[(role, waiting[role], 3, 3, ms) for ms in range(0, 900, 100) for role in "ab"]) is None


def test_a_message_that_cannot_arrive_does_not_prevent_a_deadlock():
    detector = DeadlockDetector("ab")
    for ms in range(0, 3900, 100):
        for role in "ab":
            detector.report(role, ["W"], None, 3, 3 - (role == "b"), ms * MS)
            assert detector.blocked(unreachable=True) is None  # others may be on their way
    for role in "ab":
        detector.report(role, ["W"], None, 3, 3 - (role == "b"), 4000 * MS)
    assert detector.blocked(unreachable=True) == dict.fromkeys("ab", (("W",), None))
    assert detector.blocked() is None


def test_a_message_in_flight_prevents_a_deadlock():
    assert (
        deadlock_after(*[(role, ["W"], 3, 3 - (role == "b"), ms) for ms in range(0, 900, 100) for role in "ab"]) is None
    )


def test_a_returned_role_is_neither_awaited_nor_named_in_a_deadlock():
    reports = [(role, ["W"] if role == "a" else [], 3, 3, ms) for ms in range(0, 400, 100) for role in "ab"]
    assert deadlock_after(*reports) == {"a": (("W",), None)}


def test_only_roles_that_are_here_are_waited_for():
    detector = DeadlockDetector("ab")
    for ms in range(0, 400, 100):
        detector.report("a", ["W"], None, 3, 3, ms * MS)
    assert detector.blocked() is None
    detector.reset("a")
    assert detector.blocked() is None
    for ms in range(400, 800, 100):
        detector.report("a", ["W"], None, 3, 3, ms * MS)
    assert detector.blocked() == {"a": (("W",), None)}


def test_counts_of_reports_from_different_times_are_not_compared():
    """b received a's message, answered, and computes, which its last report does not contain; a received the answer: 6 and 6."""
    old = [("b", ["W"], 2, 2, ms) for ms in range(0, 400, 100)]
    new = [("a", ["W"], 4, 4, ms) for ms in range(300, 1000, 100)]
    assert deadlock_after(*old, *new) is None
    always = [("a", ["W"], 4, 4, ms) for ms in range(0, 1000, 100)]
    assert deadlock_after(*old, *always) is not None  # had it been so all the time


@given(st.data())
def test_a_run_that_advances_is_never_deadlocked(data):
    """Three roles pass one message around, each computing for a while; they report at arbitrary times while they wait."""
    now, at = 0, data.draw(st.integers(0, 2))
    sent, received = [0, 0, 0], [0, 0, 0]
    detector = DeadlockDetector("012")
    for _ in range(data.draw(st.integers(1, 12))):
        for _ in range(data.draw(st.integers(0, 5))):  # role `at` computes and sends no report; the others may report
            now += data.draw(st.integers(1, 3 * MARGIN_NS))
            for role in range(3):
                if role != at and data.draw(st.booleans()):
                    detector.report(str(role), ["Word"], None, sent[role], received[role], now)
                    assert detector.blocked() is None
        after = data.draw(st.sampled_from([r for r in range(3) if r != at]))
        sent[at] += 1
        received[after] += 1
        at = after
