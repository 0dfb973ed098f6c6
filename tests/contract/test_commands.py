"""Commands on both engines: every class that an engine supports is executed and logged, and the log can be replayed."""

import json
from collections import Counter

import labkit as lk
from labkit.engines.commands import (
    COMMANDS,
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
    log_text,
    parse_log,
    read_entry,
)  # fmt: skip
from labkit.trace.schema import TRAINING
from tests.contract.engines import slow_on_processes
from tests.contract.statements import closed

MOONS = lk.Problem("moons", hidden=(8,), batch_size=8, options={"samples": 400})
ENDLESS = lk.Budget(updates=10**9)

# One of each class, in a valid order; and the event to wait for before the next.
EACH = [
    (lk.Slow("worker-0", 2.0), None),
    (End(lk.Slow("worker-0", 3.0, until=1e6)), None),
    (lk.Limit("worker-0", 1e6), ("limited", "worker-0")),
    (End(lk.Limit("worker-0", 1e6, until=1e6)), None),
    (lk.Limit("worker-0", None), None),
    (lk.Delay("worker-0", "server-0", 0.001), None),
    (lk.Delay("worker-0", "server-0", 0.0), None),
    (lk.Drop("worker-0", chance=0.01), None),
    (lk.Drop("worker-0", chance=0.0), None),
    (Cut("worker-0", "server-0"), None),
    (Reconnect("worker-0", "server-0"), None),
    (lk.Freeze("worker-0"), None),
    (Thaw("worker-0"), None),
    (Leave("worker-1"), ("left", "worker-1")),
    (Join("worker-1"), ("joined", "worker-1")),
    (lk.Kill("worker-0", restart=False), ("lost", "worker-0")),
    (Restart("worker-0"), ("restarted", "worker-0")),
    (SetOptions({"learning_rate": 0.02}), None),
    (Inject((lk.Slow("worker-0", 3.0, at=1e6),)), None),
    (Pause(), None),
    (Resume(), None),
    (Stop("user"), None),
]


def test_every_class_that_is_supported_is_executed_and_is_in_the_log(engine):
    run = engine.train(MOONS, lk.AsyncPS(), ENDLESS, time=0.005, max_workers=2)
    run.step().resume()
    before = len(run.engine.commands)
    assert {type(command) for command, _ in EACH} == run.engine.supported_commands == set(COMMANDS.values())
    for command, event in EACH:
        at = run.engine.seconds
        run.execute(command)
        if not (engine.simulated and isinstance(command, Pause | Resume)):  # which have no effect in virtual time
            entry = run.engine.commands[-1]
            assert entry.command == command.changed(at=entry.at)
            assert at <= entry.at
            assert (entry.turn is not None) == engine.simulated
        if event is not None:
            run.wait_for(*event)
    assert run.stopped_by == "user"
    closed(run)
    log = run.engine.commands[before:]
    assert len(log) == len(EACH) - (2 if engine.simulated else 0)
    assert [entry.at for entry in log] == sorted(entry.at for entry in log)
    ending = json.loads(json.dumps(run.trace.ending["commands"]))
    assert [read_entry(plain) for plain in ending] == run.engine.commands


def test_a_limited_bandwidth_changes_when_messages_arrive_and_nothing_else(engine):
    """A ring with one limited worker, whose limit changes while messages wait: the same messages and the same parameters."""
    strategy, budget = lk.BucketedAllReduce(bucket_size=1, eval_every=1000), lk.Budget(updates=12)
    faults = ["limit:worker-1:20kB/s@0.01", "limit:worker-1:50kB/s@0.1", "limit:worker-1:none@0.3"]
    results = []
    for made in (), faults:
        run = engine.wait(MOONS, strategy, budget, workers=3, time=0.01, faults=made)
        closed(run)
        role, sender, size, category = run.trace.column("messages", "role", "sender", "bytes", "category")
        training = category == TRAINING
        sent = Counter(zip(sender[training].tolist(), role[training].tolist(), size[training].tolist()))
        assert (
            engine.simulated or min(sent.values()) >= 12 * 4
        )  # on processes others begin the next step before the end
        results.append((sent if engine.simulated else sent.keys(), run.result().parameters.tobytes()))
    assert results[0] == results[1]
    limits = [event.bandwidth for event in run.trace.events if event.kind == "limited"]
    assert limits == [20e3, 50e3, None][: len(limits)]  # a run on processes may end before the last one
    assert len(limits) >= 1


@slow_on_processes
def test_the_text_of_a_command_log_repeats_the_commands(engine):
    run = engine.train(MOONS, lk.AsyncPS(), ENDLESS, time=0.005, faults=["slow:worker-1:3@0.01"])
    run.wait_for("slowed", "worker-1")
    run.delay("worker-0", 0.001, "server-0").set(learning_rate=0.05)
    run.inject("slow:worker-0:2@0.01") if not engine.simulated else run.slow("worker-0", 2)
    run.wait_for("slowed", "worker-0")
    run.stop()
    text = log_text(run.engine.commands)
    words = [part.partition("@")[0] for part in text.split(",")]
    assert words == ["slow:worker-1:3", "delay:worker-0:server-0:0.001", "set:learning_rate:0.05", "slow:worker-0:2"]
    again = engine.train(MOONS, lk.AsyncPS(), ENDLESS, time=0.005, faults=parse_log(text))
    again.wait_for("slowed", "worker-0")
    again.stop()
    assert [part.partition("@")[0] for part in log_text(again.engine.commands).split(",")] == words
    if engine.simulated:
        assert again.engine.commands[:-1] == run.engine.commands[:-1]
    assert all(isinstance(entry, Executed) for entry in again.engine.commands)
