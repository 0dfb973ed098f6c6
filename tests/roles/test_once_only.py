"""With retransmission, drops, checkpoints, losses and restores, each gradient is applied once and accounted for once.

A state machine is compared with a model in plain Python. The model identifies a gradient by (sender, incarnation,
step); what the shard holds is a set of them, saved and restored as a whole. Each gradient pushes a distinct number, so
the shard's single parameter shows which ones it holds.
"""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, precondition, rule

import labkit as lk
from labkit.roles.budget import Limits
from labkit.roles.dense_parameters import DenseParameters
from labkit.roles.shard import Shard
from labkit.trace import Recorder
from labkit.trace.schema import IGNORED, LATE, ROLLED_BACK, UNKNOWN

SENDERS = ("worker-0", "worker-1")
IDS = {"server-0": 0, "worker-0": 1, "worker-1": 2}
ROLES = len(IDS)


def bit(index):
    """The number that gradient `index` pushes; a sum of such numbers determines its terms exactly."""
    return float(2**index)


class OnceOnly(RuleBasedStateMachine):
    """`held`: what the parameter holds; `closed`: {gradient: reason} of gradients that this incarnation of the shard
    has given up.
    """

    saves = Bundle("saves")

    @initialize()
    def begin(self):
        self.time, self.numbers, self.lives = 0, {}, dict.fromkeys(SENDERS, 0)
        self.next = dict.fromkeys(((s, 0) for s in SENDERS), 0)  # the next step that each incarnation computes
        self.pushes = []  # all that were ever sent
        self.held, self.last, self.dropped, self.version = set(), {}, {}, 0
        self.forgets = False  # whether steps that were held before can be missing
        self.met = set()
        self.life = -1
        self.start(None)

    def start(self, state):
        """Start the shard's next incarnation."""
        self.life += 1
        self.recorder = Recorder(0, self.life, roles=ROLES)
        parameters = DenseParameters(0, slice(0, 1), np.zeros(1), lk.SGD())
        self.shard = Shard(parameters, self.recorder, self.tick, IDS, Limits(), senders=2)
        if self.life:
            self.shard.restore(state)
        self.duplicates, self.ends = 0, []  # what this incarnation must count, and the drops it must record
        self.unknown = 0

    def tick(self):
        self.time += 1
        return self.time

    # rules ------------------------------------------------------------------------------------------------------------

    def made(self, sender, skip, count):
        """The next push of a sender: of `count` gradients, after `skip` that were never sent here."""
        instance = (sender, self.lives[sender])
        first = self.next[instance] + skip
        self.next[instance] = first + count
        value = 0.0
        for step in range(first, first + count):
            self.numbers[*instance, step] = bit(len(self.numbers))
            value += self.numbers[*instance, step]
        push = lk.Push(np.array([-value]), first + count - 1, self.shard.generation, self.shard.version, count, count)
        push.__dict__.update(sender=sender, incarnation=instance[1])
        self.pushes.append(push)
        return push

    def room(self):
        return len(self.numbers) < 48  # so that doubles hold their sum exactly

    @precondition(room)
    @rule(sender=st.sampled_from(SENDERS), skip=st.sampled_from([0, 0, 0, 1, 2]), count=st.sampled_from([1, 1, 2]))
    def push_new(self, sender, skip, count):
        self.offer([self.made(sender, skip, count)])

    @precondition(room)
    @rule(counts=st.tuples(st.integers(1, 2), st.integers(1, 2)))
    def push_of_both_in_one_step(self, counts):
        self.offer([self.made(sender, 0, count) for sender, count in zip(SENDERS, counts)])

    @precondition(lambda self: self.pushes)
    @rule(data=st.data())
    def push_again(self, data):
        self.offer([data.draw(st.sampled_from(self.pushes))])

    @precondition(lambda self: any(self.dropped.values()))
    @rule(data=st.data())
    def push_again_what_was_dropped(self, data):
        gone = [push for push in self.pushes if push.step in self.dropped.get(self.key(push), ())]
        self.offer([data.draw(st.sampled_from(gone))])

    @precondition(lambda self: self.pushes)
    @rule(data=st.data())
    def push_twice_in_one_step(self, data):
        push = data.draw(st.sampled_from(self.pushes))
        self.offer([push, push])

    @precondition(room)
    @rule(sender=st.sampled_from(SENDERS))
    def sent_and_lost(self, sender):
        """In flight while the shard was absent: it can arrive later."""
        self.made(sender, 0, 1)

    @precondition(lambda self: self.pushes)
    @rule(data=st.data())
    def drop(self, data):
        push = data.draw(st.sampled_from(self.pushes))
        if self.is_news(push):
            self.dropped.setdefault(self.key(push), set()).update(self.steps(push))
            self.ends.append((*self.key(push), push.step, push.count, LATE))
        else:
            self.duplicates += 1
        self.shard.drop(push, "late")

    @rule(sender=st.sampled_from(SENDERS))
    def restart_sender(self, sender):
        self.lives[sender] += 1
        self.next[sender, self.lives[sender]] = 0

    @rule(target=saves)
    def save(self):
        model = set(self.held), dict(self.last), {k: set(v) for k, v in self.dropped.items()}, self.version
        return self.shard.to_state(), model

    @rule(saved=saves)
    def restore(self, saved):
        state, (held, last, dropped, version) = saved
        self.held, self.last, self.dropped, self.version = (
            set(held),
            dict(last),
            {k: set(v) for k, v in dropped.items()},
            version,
        )
        self.met, self.forgets = set(), True
        self.start(state)

    @rule()
    def lose_everything(self):
        self.held, self.last, self.dropped, self.version = set(), {}, {}, 0
        self.met, self.forgets = set(), True
        self.start(None)

    # invariants -------------------------------------------------------------------------------------------------------

    @staticmethod
    def key(push):
        return push.sender, push.incarnation

    @staticmethod
    def steps(push):
        return range(push.step - push.count + 1, push.step + 1)

    def is_news(self, push):
        """Whether it was neither held nor given up before, according to this shard's state."""
        return push.step > self.last.get(self.key(push), -1) and push.step not in self.dropped.get(self.key(push), ())

    def offer(self, pushes):
        fresh = []
        for push in pushes:
            if self.is_news(push) and not any(push is other for other in fresh):
                fresh.append(push)
            elif self.is_news(push):
                continue  # twice in one step: one of them
            else:
                self.duplicates += 1
        for push in fresh:
            self.takes(push)
        self.version += bool(fresh)
        before = self.shard.version
        assert self.shard.apply(pushes, 1.0, "sum") == bool(fresh)
        assert self.shard.version == before + bool(fresh)

    def takes(self, push):
        key = self.key(push)
        why = ROLLED_BACK if self.forgets and key not in self.met else IGNORED
        gone = self.dropped.pop(key, set())
        for step in range(self.last.get(key, -1) + 1, push.step - push.count + 1):
            if step not in gone:
                self.ends.append((*key, step, 1, why))
        self.met.add(key)
        self.last[key] = push.step
        self.unknown += push.count if push.generation != self.shard.generation else 0
        new = {(*key, step) for step in self.steps(push)}
        assert not new & self.held, "the model itself applies something twice"
        self.held |= new

    @invariant()
    def the_parameter_is_the_sum_of_what_is_held(self):
        assert self.shard.values[0] == sum(self.numbers[gradient] for gradient in self.held)

    @invariant()
    def versions_go_on_and_a_restored_shard_has_a_generation_of_its_own(self):
        assert (self.shard.version, self.shard.generation) == (self.version, self.life)

    @invariant()
    def each_end_is_booked_once_and_with_its_reason(self):
        rows = np.frombuffer(self.recorder.drops, np.int64).reshape(-1, 7)
        names = {number: name for name, number in IDS.items()}
        booked = [
            (names[sender], instance, step, count, why) for _, _, sender, instance, step, count, why in rows.tolist()
        ]
        assert booked == self.ends

    @invariant()
    def the_counts_are_those_of_the_model(self):
        counters = self.recorder.counters
        assert counters.duplicates == self.duplicates
        assert counters.gradients == len(self.held)
        assert counters.staleness.get(UNKNOWN, 0) == self.unknown
        by_incarnation = {IDS[s] + instance * ROLES: step for (s, instance), step in self.last.items()}
        assert {instance: last for instance, (_, last) in counters.applied.items()} == by_incarnation
        assert sum(count for count, _ in counters.applied.values()) == len(self.held)


OnceOnly.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestOnceOnly = OnceOnly.TestCase
