"""Messages as values: which are equal. A server that keeps requests finds its own among them."""

from dataclasses import dataclass

import numpy as np
import pytest

import labkit as lk
from labkit.roles.messages import copied_for_sending


@dataclass(frozen=True)
class Ask(lk.Message):
    question: str = "why"
    numbers: tuple = ()


def push(*values, step=0):
    return lk.Push(np.array(values), step, 0, 0)


def sent(message, sender, incarnation=0):
    return copied_for_sending(message, sender, incarnation)[0]


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (lk.Pull(), lk.Pull(), True),
        (lk.Pull(), Ask(), False),
        (sent(lk.Pull(), "worker-0"), sent(lk.Pull(), "worker-0"), True),
        (sent(lk.Pull(), "worker-0"), sent(lk.Pull(), "worker-1"), False),
        (sent(lk.Pull(), "worker-0", 1), sent(lk.Pull(), "worker-0", 2), False),
        (push(1.0, 2.0), push(1.0, 2.0), True),
        (push(1.0, 2.0), push(1.0, 3.0), False),
        (push(1.0, 2.0), push(1.0), False),
        (push(1.0, 2.0), push(1.0, 2.0, step=1), False),
        (Ask("why", (1, np.ones(2))), Ask("why", (1, np.ones(2))), True),
        (Ask("why", (1, np.ones(2))), Ask("why", (1, np.zeros(2))), False),
        (Ask("why", (1,)), Ask("why", (1, 2)), False),
    ],
)
def test_messages_are_equal_if_kind_sender_incarnation_and_content_are(one, other, equal):
    assert (one == other) is (other == one) is equal
    assert (one != other) is not equal


def test_the_message_that_is_removed_from_a_list_is_that_of_its_sender():
    pulls = [sent(lk.Pull(), f"worker-{i}") for i in range(3)]
    pushes = [sent(push(float(i), 0.0), "worker-0") for i in range(3)]
    for messages in (pulls, pushes):
        second = messages[1]
        messages.remove(second)
        assert [message is second for message in messages] == [False, False]
    assert len({*pulls, sent(lk.Pull(), "worker-0")}) == 2
