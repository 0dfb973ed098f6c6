"""Messages between roles: all supported values; delivery complete, once, in order, and as a copy that the receiver owns."""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import labkit as lk
from tests.contract.engines import slow_on_processes
from tests.contract.scripts import QUADRATIC, Done, Letter, OneAfterTheOther, Other, Parcel, Script, Unlisted, same

ARRAYS = (
    np.arange(6, dtype=np.float32),
    np.linspace(0, 1, 5),
    np.array([[1, 2], [3, 4]], dtype=np.int64),
    np.array([True, False]),
    np.arange(12, dtype=np.uint8).reshape(3, 4).T,
    np.arange(20)[::3],
    np.array([1 + 2j]),
    np.zeros(0, np.float32),
    np.zeros((0, 3)),
    np.array(2.5),
    np.array([np.nan, np.inf, -0.0]),
    np.arange(4, dtype=">i4"),
    np.array(["ab", "c"]),
)
PARCELS = (
    Parcel(),
    Parcel(
        -(2**63), 1e-300, "zwei Wörter\0 und ein Nullbyte", True, None, (1, 2.5, "x", (None, False, ())), np.arange(3)
    ),
    Parcel(2**63 - 1, float("inf"), "", False, None, (np.arange(4.0), (np.zeros(0), "in")), None),
    *(Parcel(array=array) for array in ARRAYS),
    Parcel("text in a field called number", 1, 2.0, "yes", 3, 4, 5),
)


class Echo(Script):
    """Worker 0 sends parcels to worker 1, which sends them back."""

    async def play(self, ctx, rank):
        you = ctx.peers("worker")[1 - rank]
        for parcel in PARCELS:
            if rank == 0:
                ctx.send(you, parcel)
            back = await ctx.recv(Parcel)
            assert back.sender == you
            for name, sent in vars(parcel).items():
                if name not in ("sender", "incarnation"):
                    assert same(sent, getattr(back, name)), (name, sent, getattr(back, name))
            if rank == 1:
                ctx.send(you, back)


COUNTED = (  # by hand: 8 bytes per number in any container; Letter has no header, and that of Chunk is not counted
    (Letter(3, np.arange(3.0)), 8 + 24),
    (Letter(3, (0.0, 1.0, 2.0)), 8 + 24),
    (Letter(3.5, "w\u00f6rd"), 8 + 5),
    (Letter(3), 8 + 1),
    (Letter(3, (True, (2,), "ab", None, np.zeros(2), np.zeros((0, 7)))), 8 + 1 + (1 + 8) + 2 + 1 + 16 + 16),
    (lk.Chunk(np.zeros(3), 1, 2), 24),
    (lk.Chunk((0.0, 0.0, 0.0), 1, 2), 24),
    (lk.Chunk((np.zeros(3), np.ones(1, np.uint8)), 1, 2), 25),
    (lk.Chunk(np.zeros((0, 5)), 1, 2), 0),
    (lk.Chunk(np.zeros((0, 5, 6)), 1, 2), 24),
)


class Sent(Script):
    """Worker 0 sends one message of each to worker 1."""

    async def play(self, ctx, rank):
        for message, _ in COUNTED:
            if rank == 0:
                ctx.send("worker-1", message)
            else:
                await ctx.recv(type(message))


def test_payload_counts_whatever_its_type(engine):
    run = engine.wait(QUADRATIC, Sent(), lk.Budget(seconds=30))
    sent = run.trace.counters[run.trace.roles.index("worker-0")].bytes
    assert sum(sent) == sum(size for _, size in COUNTED)
    sender, size = run.trace.column("messages", "sender", "bytes")
    mine = size[sender == run.trace.roles.index("worker-0")].tolist()
    assert sorted(mine) == sorted([size for _, size in COUNTED] + [0])  # and one that it has finished


class NumpyNumbers(Script):
    async def play(self, ctx, rank):
        ctx.send(ctx.name, Parcel(np.int64(3), np.float32(0.5), np.str_("a"), np.bool_(True)))
        got = await ctx.recv(Parcel)
        assert same((got.number, got.real, got.text, got.flag), (3, 0.5, "a", True))
        assert got.sender == ctx.name


class Overwrite(Script):
    """The sender may write into its array right after `send`, and the receiver into what it received."""

    async def play(self, ctx, rank):
        sizes = (1, 1000, 500_000)
        if rank == 0:
            for size in sizes:
                values = np.arange(size, dtype=np.float64)
                inside = (values,)
                ctx.send("worker-1", Letter(size, values))
                ctx.send("worker-1", Parcel(things=inside))
                values[:] = -1
            return
        kept = []
        for size in sizes:
            letter, parcel = await ctx.recv(Letter), await ctx.recv(Parcel)
            assert np.array_equal(letter.load, np.arange(size))
            letter.load[:] = 7
            kept.append((letter.load, parcel.things[0]))
        for size, (written, other) in zip(sizes, kept):  # later messages did not overwrite values that were kept
            assert written.tolist() == [7] * size
            assert np.array_equal(other, np.arange(size))


class Ordered(Script):
    """Three senders, messages of very different sizes and of two kinds: in order on each link."""

    async def play(self, ctx, rank):
        if rank:
            for k in range(60):
                if k % 3 == 2:
                    ctx.send("worker-0", Other(k))
                else:
                    ctx.send("worker-0", Letter(k, np.zeros((k * 7919) % 40_000, np.uint8)))
                if k % 20 == 0:
                    await ctx.sleep(0.001 * rank)
            return
        others = [name for name in ctx.peers("worker") if name != ctx.name]
        seen = {name: [] for name in others}
        for _ in range(60 * len(others)):
            message = await ctx.recv(Letter, Other)
            assert isinstance(message, Other) == (message.number % 3 == 2)
            seen[message.sender].append(message.number)
        assert seen == {name: list(range(60)) for name in others}


def test_first_in_first_out_on_every_slow_link(simulated):
    run = simulated.wait(QUADRATIC, Ordered(), lk.Budget(seconds=30), workers=4, latency=0.001, bandwidth=1e6)
    assert run.stopped_by == "finished"


class Choosy(Script):
    """Receives kinds and senders out of order; messages that were not requested yet stay in the inbox."""

    async def play(self, ctx, rank):
        if rank:
            ctx.send("worker-0", Letter(rank))
            ctx.send("worker-0", Other(rank))
            ctx.send("worker-0", Letter(10 + rank))
            ctx.send("worker-0", Done())
            return
        for _ in range(2):
            await ctx.recv(Done)  # then everything has arrived
        assert (await ctx.recv(Letter, sender="worker-2")).number == 2
        assert (await ctx.recv(Other, sender="worker-1")).number == 1
        assert (await ctx.recv(Letter, Other, sender="worker-1")).number == 1
        assert (await ctx.recv(Letter, Other, sender="worker-1")).number == 11
        assert await ctx.recv(Letter, Other, sender="worker-1", timeout=0) is None
        assert (await ctx.recv(Letter, Other)).number == 2
        assert (await ctx.recv(Letter, Other)).number == 12
        assert await ctx.recv(Letter, Other, timeout=0) is None


class WaitsWithTimeouts(Script):
    async def play(self, ctx, rank):
        began = ctx.now
        if rank == 0:
            assert await ctx.recv(Letter, timeout=0) is None
            looked = ctx.now
            assert await ctx.recv(Letter, timeout=0.05) is None
            assert ctx.now - looked >= 0.05
            ctx.send("worker-1", Letter(0))
            got = await ctx.recv(Letter, timeout=30)  # does not wait longer than it takes
            assert got.number == 1
            ctx.note("waits", polled=looked - began, slept=0.0)
            return
        await ctx.recv(Letter)
        began = ctx.now
        await ctx.sleep(0.02)
        assert ctx.now - began >= 0.02
        ctx.note("sleeps", polled=0.0, slept=ctx.now - began)
        ctx.send("worker-0", Letter(1))
        assert await ctx.sleep(0) is None


@slow_on_processes
def test_timeouts_sleep_and_now(engine):
    run = engine.wait(QUADRATIC, WaitsWithTimeouts(), lk.Budget(seconds=60))
    noted = {str(event): event.numbers for event in run.trace.events if event.kind == "note"}
    if engine.simulated:
        assert noted == {
            "waits": {"polled": 0.0, "slept": 0.0},
            "sleeps": {"polled": 0.0, "slept": pytest.approx(0.02)},
        }
        assert run.summary()["seconds"] == pytest.approx(0.07)
    assert noted["sleeps"]["slept"] >= 0.02
    assert run.stopped_by == "finished"  # and not when a timeout of 30 s was over


class Loop(Script):
    """`async for` over an inbox, left by `break`."""

    async def play(self, ctx, rank):
        if rank:
            for k in range(5):
                ctx.send("worker-0", Letter(k))
            ctx.send("worker-0", Other(99))
            return
        seen = []
        async for message in ctx.inbox(Letter, Other):
            if isinstance(message, Other):
                break
            seen.append(message.number)
        assert seen == list(range(5))


@dataclass(frozen=True)
class SendsInvalid(Script):
    """Sends values that must be refused."""

    what: str = ""

    async def play(self, ctx, rank):
        def forgotten():
            return lk.pull(ctx)

        bad: dict[str, Any] = {
            "unlisted": lambda: Unlisted(),
            "object": lambda: Parcel(things=object()),
            "list": lambda: Letter(1, [1, 2]),
            "dict": lambda: Parcel(things=(1, {"a": 1})),
            "objects": lambda: Parcel(array=np.array([object()])),
            "coroutine": lambda: Parcel(array=forgotten()),
            "not a message": lambda: forgotten(),
            "text": lambda: "hello",
            "wide": lambda: Parcel(2**63),
            "class": lambda: Letter,
            "function": lambda: Parcel(things=len),
            "structured": lambda: Parcel(array=np.zeros(2, [("a", "i4")])),
        }
        to = "worker-9" if self.what == "nobody" else "worker-0"
        ctx.send(to, bad.get(self.what, Done)())


REFUSED = [
    (
        "unlisted",
        r"sends Unlisted, which CatchesRefusals does not list: messages = \(Done, Parcel, Letter, Other, Chunk\)",
    ),
    ("nobody", "sends to 'worker-9'; there is no such role"),
    ("object", r"Parcel\.things holds a object; a message is made of numbers"),
    ("list", r"Letter\.load holds a list; a message is made of numbers"),
    ("dict", r"Parcel\.things holds a dict"),
    ("function", r"Parcel\.things holds a builtin_function"),
    ("objects", r"Parcel\.array holds an array of dtype object; allowed: numbers"),
    ("structured", r"Parcel\.array holds an array of dtype .*; allowed: numbers"),
    ("coroutine", r"Parcel\.array holds a coroutine; .*await"),
    ("not a message", r"sends a coroutine, not a message: is an `await` missing"),
    ("text", "sends a?.*str"),
    ("class", "sends a?.*type"),
    ("wide", r"Parcel\.number holds an int beyond 64 bits"),
]


class CatchesRefusals(Script):
    """A role that catches every refusal."""

    async def play(self, ctx, rank):
        for what, _ in REFUSED:
            try:
                await SendsInvalid(what=what).play(ctx, rank)
            except lk.RoleError as refused:
                ctx.note(str(refused))
            else:
                ctx.note(f"{what} is accepted")


@pytest.mark.filterwarnings("ignore:coroutine 'pull' was never awaited")
def test_values_that_cannot_be_sent_are_refused_by_name(engine):
    run = engine.wait(QUADRATIC, CatchesRefusals(), lk.Budget(seconds=30), workers=1)
    noted = [str(event) for event in run.trace.events if event.kind == "note"]
    assert len(noted) == len(REFUSED)
    wrong = [(text, message) for text, (_, message) in zip(noted, REFUSED) if not re.search(message, text)]
    assert not wrong, wrong


@slow_on_processes
def test_a_refusal_that_is_not_caught_ends_the_run_at_the_roles_line(engine):
    run = engine.train(QUADRATIC, SendsInvalid(what="object"), lk.Budget(seconds=30), workers=1)
    with pytest.raises(lk.RoleError, match=r"Parcel\.things holds a object") as caught:
        run.wait()
    assert str(caught.value).startswith("worker-0 failed")
    assert "bad.get(self.what" in str(caught.value)  # the line of the role
    assert run.stopped_by == "error"


SCRIPTS = ((Echo(), 2), (NumpyNumbers(), 1), (Overwrite(), 2), (Ordered(), 4), (Choosy(), 3), (Loop(), 2))


def test_scripts_that_check_what_they_receive(engine):
    """Values of all types, copies, order, choice by kind and sender, an inbox that is left: the scripts have the assertions."""
    run = engine.wait(QUADRATIC, OneAfterTheOther(scripts=SCRIPTS), lk.Budget(seconds=600), workers=4)
    assert run.stopped_by == "finished"
