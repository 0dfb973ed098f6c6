"""What happens to a role that waits in an effect when its process is killed or frozen, the run is paused, and the run ends."""

from dataclasses import dataclass

import labkit as lk
from tests.contract.engines import over
from tests.contract.scripts import QUADRATIC, Letter, Script

SECONDS = 2.0  # of engine time: the duration of each effect
LONG, PACE = 1000 * SECONDS, 0.01
WORKERS = ("worker-0", "worker-1", "worker-2")
BEGINS, GOES_ON = "begins", "goes on"


def answer():
    return 7.0


@dataclass(frozen=True)
class Waits(Script):
    """Each worker waits in another effect: in the order of their numbers `compute`, `sleep` and `recv`."""

    seconds: float = SECONDS

    async def play(self, ctx, rank):
        ctx.note(f"{ctx.name} {ctx.incarnation} {BEGINS}")
        value = None
        if rank == 0:
            value = await ctx.compute(answer, cost=self.seconds / PACE)
        elif rank == 1:
            value = await ctx.sleep(self.seconds)
        else:
            value = await ctx.recv(Letter, timeout=self.seconds)
        ctx.note(f"{ctx.name} {ctx.incarnation} {GOES_ON}", value=-1.0 if value is None else value)


def noted(run, incarnation, what):
    """{worker: the note} of those workers whose incarnation begins its effect, or goes on after it."""
    notes = {event.text: event for event in run.trace.events if event.kind == "note"}
    texts = {worker: f"{worker} {incarnation} {what}" for worker in WORKERS}
    return {worker: notes[text] for worker, text in texts.items() if text in notes}


def all_have(incarnation, what):
    return lambda run: len(noted(run, incarnation, what)) == len(WORKERS)


def seconds_in_effects(run, incarnation):
    begun, over = noted(run, incarnation, BEGINS), noted(run, incarnation, GOES_ON)
    assert [over[worker].numbers["value"] for worker in WORKERS] == [answer(), -1.0, -1.0]
    return [(over[worker].time - begun[worker].time) / 1e9 for worker in WORKERS]


def kill(run, engine):
    """The effect has no result. The next incarnation begins anew."""
    for worker in WORKERS:
        run.kill(worker)
    run.wait_for(all_have(1, GOES_ON))
    assert noted(run, 0, GOES_ON) == {}
    assert min(seconds_in_effects(run, 1)) >= SECONDS


def freeze(run, engine):
    """The same incarnation goes on after the thaw. In virtual time the rest of the effect begins then."""
    for worker in WORKERS:
        run.freeze(worker)
    if engine.simulated:
        run.advance(2 * SECONDS)
        assert noted(run, 0, GOES_ON) == {}
    for worker in WORKERS:
        run.thaw(worker)
    run.wait_for(all_have(0, GOES_ON))
    took = seconds_in_effects(run, 0)
    assert took == [3 * SECONDS] * 3 if engine.simulated else min(took) >= SECONDS
    assert not any(event.kind == "lost" for event in run.trace.events)


def pause(run, engine):
    """Engine time stands still, so the effect takes as long as without the pause."""
    run.pause()
    assert noted(run, 0, GOES_ON) == {}
    run.resume().wait_for(all_have(0, GOES_ON))
    took = seconds_in_effects(run, 0)
    assert took == [SECONDS] * 3 if engine.simulated else min(took) >= SECONDS


def end(run, engine):
    """The effect has no result, and that is no error. Only the chief goes on: it receives no message, and returns."""
    run.stop()
    assert run.stopped_by == "finished"
    assert noted(run, 0, GOES_ON) == {}


@over("event", {"kill": kill, "freeze": freeze, "pause": pause, "end": end}, slow=["kill", "freeze", "pause", "end"])
def test_a_role_that_waits_in_an_effect(engine, event):
    strategy = Waits(seconds=LONG if event is end else SECONDS)
    run = engine.train(QUADRATIC, strategy, lk.Budget(seconds=LONG), 3, time=PACE, heartbeat_timeout=3 * SECONDS)
    run.advance(SECONDS / 4) if engine.simulated else run.wait_for(all_have(0, BEGINS))
    event(run, engine)
