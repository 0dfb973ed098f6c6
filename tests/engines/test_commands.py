"""Commands as values: their texts, their dicts, their checks, the log, and what each engine supports."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import labkit as lk
from labkit.engines.command_words import PAIRS, WORDS
from labkit.engines.commands import (
    COMMANDS,
    EVERY,
    Command,
    Cut,
    End,
    Executed,
    Inject,
    Join,
    Leave,
    Pause,
    Reconnect,
    Restart,
    Resume,
    SetOptions,
    Stop,
    Thaw,
    check_supported,
    from_dict,
    log_text,
    not_executed,
    parse_command,
    parse_log,
    read_entry,
)
from labkit.engines.faults import FAULTS
from labkit.engines.storage.journal import read_commands, write_json
from labkit.engines.storage.store import Store
from labkit.trace.events import EVENTS

# every class -----------------------------------------------------------------------------------------------------------

names = st.from_regex(r"[a-z]{1,8}(-[0-9]{1,3})?", fullmatch=True)
who = st.one_of(names, st.lists(names, min_size=1, max_size=3).map(tuple), st.just(EVERY))
peers = st.none() | names
moments = st.floats(0, 1e6)
times = st.tuples(moments, st.none() | st.floats(1e-3, 1e6)).map(
    lambda t: {"at": t[0], "until": None if t[1] is None else t[0] + t[1]}
)
options = st.dictionaries(
    st.from_regex(r"[a-z_]{1,10}", fullmatch=True),
    st.booleans() | st.integers() | st.floats(allow_nan=False),
    max_size=3,
)
BUILT = {
    lk.Slow: st.builds(lambda r, f, t: lk.Slow(r, f, **t), names, st.floats(0.001, 1000), times),
    lk.Kill: st.builds(lk.Kill, names, moments, st.booleans()),
    Restart: st.builds(Restart, names, moments),
    lk.Freeze: st.builds(lambda r, t: lk.Freeze(r, **t), names, times),
    Thaw: st.builds(Thaw, names, moments),
    lk.Limit: st.builds(
        lambda r, b, t: lk.Limit(r, b, **t),
        who,
        st.none() | st.floats(1e3, 1e300) | st.sampled_from(["10MB/s", "2.5 kB"]),
        times,
    ),
    lk.Delay: st.builds(lambda a, b, s, t: lk.Delay(a, b, s, **t), who, who, st.floats(0, 1e6), times),
    lk.Drop: st.builds(lambda a, b, c, t: lk.Drop(a, b, c, **t), who, who, st.floats(0, 0.95), times),
    Cut: st.builds(lambda r, p, t: Cut(r, p, **t), names, peers, times),
    Reconnect: st.builds(Reconnect, names, peers, moments),
    Join: st.builds(Join, names, moments),
    Leave: st.builds(Leave, names, moments),
    SetOptions: st.builds(SetOptions, options, moments),
    Pause: st.builds(Pause, moments),
    Resume: st.builds(Resume, moments),
    Stop: st.builds(Stop, st.sampled_from(["user", "interrupted", "closed"]), moments),
    lk.Partition: st.builds(lambda a, b, t: lk.Partition(a, b, **t), who, who, times),
    lk.Preempt: st.builds(lambda r, w, t: lk.Preempt(r, w, **t), st.floats(1e-9, 1e3), who, times),
}
temporary = st.one_of(*(BUILT[kind] for kind in (lk.Slow, lk.Freeze, lk.Limit, lk.Delay, lk.Drop, Cut)))
BUILT[End] = st.builds(lambda fault, t: End(replace(fault, until=fault.at + 1.0), t), temporary, moments)
texted = st.one_of(*BUILT.values())
injected = st.builds(
    Inject, st.lists(st.one_of(*(BUILT[kind] for kind in COMMANDS.values() if kind is not Inject)), max_size=3)
)
ALL = COMMANDS | FAULTS


def test_every_class_is_here():
    assert BUILT.keys() | {Inject} == set(ALL.values())
    for word, kind in ALL.items():
        assert kind.word == word
        assert kind is Inject or type(parse_command(kind.example, ALL)) is kind


@settings(max_examples=200, deadline=None)
@given(texted)
def test_every_command_is_read_back_from_its_text(command):
    assert parse_command(command.text(), ALL) == command
    assert parse_command(command.text(timed=True), ALL) == command


@settings(max_examples=200, deadline=None)
@given(texted | injected)
def test_every_command_is_made_again_from_its_dict(command):
    plain = json.loads(json.dumps(command.to_dict()))
    assert from_dict(plain, ALL) == command
    if type(command) in COMMANDS.values():
        assert read_entry(plain) == command
        assert read_entry(json.loads(json.dumps(Executed(command, 7).to_dict()))) == Executed(command, 7)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.one_of(*(BUILT[k] for k in (lk.Kill, Restart, Thaw, Cut, Join))), st.none() | st.integers(0)))
)
def test_a_log_is_read_back_from_its_text(entries):
    log = [Executed(command, turn) for command, turn in entries]
    back = [entry if isinstance(entry, Executed) else Executed(entry) for entry in parse_log(log_text(log))]
    assert back == log


def test_command_texts_are_short_with_exact_numbers():
    assert lk.Slow("worker-2", 5, at=5.0).text() == "slow:worker-2:5@5"
    assert lk.Slow("worker-2", 0.1 + 0.2).text() == "slow:worker-2:0.30000000000000004"
    assert Cut("worker-0").text(timed=True) == "cut:worker-0@0"
    assert SetOptions({"learning_rate": 0.2, "s": 3}, at=7.25).text() == "set:learning_rate:0.2:s:3@7.25"
    assert Executed(lk.Delay("worker-0", "server-0", 0.5, at=4.0), 31).text() == "delay:worker-0:server-0:0.5@4#31"


# texts and files --------------------------------------------------------------------------------------------------

WRITTEN = {
    "slow:worker-2:5.0@0.5#12": Executed(lk.Slow("worker-2", 5, at=0.5), 12),
    "kill:worker-1@1.5": lk.Kill("worker-1", 1.5),
    "kill:server-0:for-good@1.5#3": Executed(lk.Kill("server-0", 1.5, restart=False), 3),
    "restart:server-0@2.0#4": Executed(Restart("server-0", 2.0), 4),
    "freeze:worker-0@2.0": lk.Freeze("worker-0", at=2.0),
    "thaw:worker-0@2.5": Thaw("worker-0", 2.5),
    "cut:worker-0@3.0": Cut("worker-0", at=3.0),
    "cut:worker-0:server-0@3.0#9": Executed(Cut("worker-0", "server-0", 3.0), 9),
    "reconnect:worker-0:server-0@3.5": Reconnect("worker-0", "server-0", 3.5),
    "limit:worker-0:10MB/s@4.0": lk.Limit("worker-0", 10e6, at=4.0),
    "limit:worker-0:1e6@4.0": lk.Limit("worker-0", 1e6, at=4.0),
    "limit:worker:none@4.0": lk.Limit("worker", math.inf, at=4.0),
    "delay:worker-0:0.5@4.0": lk.Delay("worker-0", seconds=0.5, at=4.0),
    "delay:worker-0:server-0:0.5@4.0": lk.Delay("worker-0", "server-0", 0.5, at=4.0),
    "drop:worker-0:server-0:0.25@4.0": lk.Drop("worker-0", "server-0", 0.25, at=4.0),
    "join:worker-3@5.0": Join("worker-3", 5.0),
    "leave:worker-3@6.0": Leave("worker-3", 6.0),
    "set:learning_rate:0.2@7.25#31": Executed(SetOptions({"learning_rate": 0.2}, 7.25), 31),
    "slow:worker-2:5.0@1e-05#1": Executed(lk.Slow("worker-2", 5, at=1e-5), 1),
}


def test_a_share_text_is_read():
    assert parse_log(",".join(WRITTEN)) == tuple(WRITTEN.values())
    assert parse_log("") == ()


@pytest.mark.parametrize(
    "wrong",
    [
        "kill:@1.0", "kill:w:x@1.0", "slow:worker-1@1.0", "cut:a:b:c@1", "drop:a@1", "stop:a@1", "kill:worker-1", "set:a@1",
        "break:everything", "end:kill:worker-1:3@3", "kill:worker-1@1#x", "kill:worker-1@1#", "pause@1", "inject@1",
        "delay:worker-0:0.5:server-0@4",
    ],
)  # fmt: skip
def test_invalid_log_lines_are_refused(wrong):
    with pytest.raises(lk.BadInput, match=r"is not something that is done to a run; one reads slow:worker-2:5@5\.0"):
        parse_log(wrong)


def test_a_command_log_of_another_format_is_refused_by_name(tmp_path):
    write_json(Store(tmp_path), "commands.json", {"format": 1, "commands": [], "now": 1.0})
    with pytest.raises(
        lk.BadInput, match=r"commands\.json in .* has format 1, made by an older labkit; this one reads format 2"
    ):
        read_commands(Store(tmp_path))


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ({"command": "system", "at": 1.0}, "is not a command; allowed: slow, kill"),
        ({"command": ["kill"]}, "is not a command; allowed"),
        ("kill", "is not a command; allowed"),
        ({"command": "kill", "role": "worker-1", "shell": "x"}, "kill has no 'shell'"),
        ({"command": "delay", "seconds": 1.0}, "is not a command: .*'a'"),
        ({"command": "kill", "role": 7}, "Kill: role=7 is not allowed"),
        ({"command": "inject", "scheduled": [{"command": "exec"}]}, "is not a command; allowed"),
        ({"command": "kill", "role": "worker-1", "turn": "soon"}, "turn is a whole number"),
        ([1.0, "slow", {"role": "worker-1"}, 3], "is not a command; allowed"),
    ],
)
def test_invalid_plain_log_entries_are_refused(plain, message):
    with pytest.raises(lk.BadInput, match=message):
        read_entry(plain)


# checks ---------------------------------------------------------------------------------------------------------------

ROLES = {"worker-0": 0, "worker-1": 1, "server-0": 2}


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (lk.Kill("worker-9"), "There is no role 'worker-9'. Did you mean 'worker-"),
        (lk.Limit("worker"), "There is no role 'worker'"),
        (lk.Delay("worker"), "There is no role 'worker'"),
        (lk.Delay(("worker-0", "worker-1")), "There is no role 'worker-0,worker-1'"),
        (lk.Delay("*", "worker-0"), r"There is no role '\*'"),
        (
            lk.Drop("worker-0", "worker-0"),
            r"drop\('worker-0', peer='worker-0'\): nothing lies between a role and itself",
        ),
        (Cut("worker-0", "worker-0"), r"cut\('worker-0', peer='worker-0'\): nothing lies between a role and itself"),
        (Reconnect("worker-0", "worker-7"), "There is no role 'worker-7'"),
        (End(lk.Slow("worker-7", 2, until=3.0)), "There is no role 'worker-7'"),
        (
            Inject((lk.Slow("worker-0", 2, until=3.0),)),
            "slow:worker-0:2@0-3 is two commands, .*: inject it into the run",
        ),
        (Inject((lk.Kill("worker-7", at=1.0),)), "There is no role 'worker-7'"),
    ],
)
def test_commands_about_unknown_roles_or_links_are_refused(command, message):
    with pytest.raises(lk.BadInput, match=message):
        command.check(ROLES)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: lk.Slow("worker-0", 0), "Slow: factor=0 is not allowed; factor is a number from 0.001 to 1,000"),
        (
            lambda: lk.Limit("worker-0", "10MBit/s"),
            "bandwidth='10MBit/s' is not allowed; bandwidth is a number from 1,000 to inf bytes/s .or a text, as '10MB/s'.",
        ),
        (lambda: lk.Limit("worker-0", 0), "bandwidth=0 is not allowed"),
        (
            lambda: lk.Delay("worker-0", seconds=-1),
            "Delay: seconds=-1 is not allowed; seconds is a number from 0 to 1,000,000",
        ),
        (lambda: lk.Drop("worker-0", chance=1), "Drop: chance=1 is not allowed; chance is a number from 0 to 0.95"),
        (lambda: lk.Kill("worker-0", restart=1), "Kill: restart=1 is not allowed; restart is True or False"),
        (lambda: Cut("worker-0", 3), r"cut: peer=3 is not allowed; give a role \('worker-1'\), or None"),
        (lambda: SetOptions(3), "set: 3 is not allowed; give {'learning_rate': 0.05}"),
        (lambda: Inject((3,)), r"inject: \(3,\) is not allowed; give commands"),
    ],
)
def test_commands_check_their_arguments_when_they_are_created(make, message):
    with pytest.raises(lk.BadInput, match=message):
        make()


def test_a_temporary_fault_is_two_commands():
    fault = lk.Slow("worker-0", 2, during=(1, 3))
    run = lk.train("digits", lk.AsyncPS(), lk.SimulatedCluster(workers=2), lk.Budget(seconds=4))
    with pytest.raises(lk.BadInput, match=r"slow:worker-0:2@1-3 is two commands, .*: inject it into the run"):
        run.execute(fault)
    with pytest.raises(lk.BadInput, match=r"end: .* has no end"):
        End(lk.Slow("worker-0", 2))
    assert fault.commands(run.plan) == [fault, End(fault, 3.0)]
    assert [c.later(5.0) for c in fault.commands(run.plan)] == lk.Slow("worker-0", 2, during=(6, 8)).commands(run.plan)


def test_scheduled_commands_that_were_not_executed_are_listed():
    one, two = lk.Kill("worker-1", at=0.1 + 0.2), lk.Kill("worker-1", at=0.3)  # the same nanosecond
    assert not_executed([one, two], []) == [one, two]
    assert not_executed([one, two], [Executed(lk.Kill("worker-1", at=0.3), 5)]) == [two]
    assert not_executed([one], [Executed(lk.Kill("worker-1", at=0.4), 5)]) == [one]
    assert not_executed([Executed(one, 5)], [Executed(one, 9)]) == []


def test_faults_injected_by_a_program_have_no_log_text():
    inject = Inject((lk.Kill("worker-1", at=2.0),), at=1.0)
    with pytest.raises(lk.BadInput, match="injected into this run by a program"):
        log_text([Executed(inject, 5)])
    log = [Executed(c) for c in (inject, lk.Kill("worker-1", 2.01), Pause(3.0), Stop("user", 4.0))]
    assert log_text(log) == "kill:worker-1@2.01"  # in real time, what it did is in the log


# engines --------------------------------------------------------------------------------------------------------------


class Unknown(Command):
    """A command that no engine supports."""

    word, at = "unknown", 0.0


def test_an_unsupported_command_is_refused_with_the_supported_ones():
    run = lk.train("moons", lk.AsyncPS(), lk.SimulatedCluster(workers=2), lk.Budget(updates=20))
    run.engine.supported_commands = frozenset({lk.Slow, Inject})
    with pytest.raises(
        lk.BadInput, match=r"cut: the engine of this run cannot do that; it can slow, inject\. The run goes on"
    ):
        run.cut("worker-1")
    with pytest.raises(lk.BadInput, match="kill: the engine of this run cannot"):
        run.inject("kill:worker-1")
    with pytest.raises(lk.BadInput, match="unknown: the engine of this run cannot"):
        run.execute(Unknown())
    assert run.engine.commands == []
    assert run.slow("worker-1", 2).wait().stopped_by == "updates"


@pytest.mark.parametrize("wrong", [7, lk.Kill, "kill:worker-1", None])
def test_values_that_are_no_commands_are_refused(wrong):
    with pytest.raises(lk.BadInput, match=r"is not a command; give for example lk\.Kill"):
        check_supported(wrong, frozenset(COMMANDS.values()))


# words ----------------------------------------------------------------------------------------------------------------


def test_an_event_names_the_command_that_causes_it():
    cluster = lk.SimulatedCluster(workers=3)
    run = lk.train("digits", lk.AsyncPS(), cluster, lk.Budget(seconds=9)).advance(0.5)
    commands = {
        "slow": lk.Slow("worker-1", 5), "kill": lk.Kill("worker-2"), "freeze": lk.Freeze("worker-0"), "thaw": Thaw("worker-0"),
        "cut": Cut("worker-0"), "reconnect": Reconnect("worker-0"), "delay": lk.Delay("worker-0", "*", 0.1),
        "limit": lk.Limit("worker-0", 1e6),
        "drop": lk.Drop("worker-0", "*", 0.1), "set": SetOptions({"learning_rate": 0.2}),
    }  # fmt: skip
    for command in commands.values():
        run.execute(command)
    assert [event.command for event in run.trace.events if event.command] == list(commands)
    assert {kind.command for kind in EVENTS.values()} <= {"", *COMMANDS}


def test_what_people_read_about_a_command_is_complete():
    for kind, words in WORDS.items():
        assert words.progress.endswith(("ing", "ing off"))
        assert bool(words.noun) == (words.undone_by is not None)
        assert bool(words.label) == bool(words.tip)
        assert bool(words.label) == (kind is not lk.Slow)  # it has a menu
    assert {lk.Kill: Restart, lk.Freeze: Thaw, Cut: Reconnect} == PAIRS
    assert set(WORDS) == {*PAIRS, *PAIRS.values(), lk.Slow}
