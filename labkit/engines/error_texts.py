"""Error texts and failure reports for roles, shared by both engines."""

from __future__ import annotations

import inspect
import linecache
import traceback
from collections.abc import Sequence
from typing import Any

from ..errors import LabkitError, RoleError
from ..trace.query import least_received
from ..trace.schema import seconds
from ..trace.trace import Trace

ONLY = (
    "a role awaits only ctx.compute, ctx.recv, ctx.inbox and ctx.sleep, and functions made of them (pull, push_pull, "
    "all_reduce, ...)."
)
DRIVERS = ("labkit/engines/", "labkit/roles/tasks.py")  # files whose lines tell nothing about a failed role
ASYNCIO = f"No asyncio inside a role: {ONLY}"


def foreign_effect(role: str, thing: Any) -> RoleError:
    """Return the error for a coroutine that yielded something that is not an effect of labkit."""
    what = (
        type(thing).__module__ + "." + type(thing).__name__
        if thing is not None
        else "an awaitable of asyncio (as asyncio.sleep)"
    )
    return RoleError(f"{role} awaited {what}, which labkit cannot wait for: {ONLY}")


def failure_report(role: str, step: int, error: BaseException) -> dict[str, Any]:
    """Return a failure inside `role` as plain values. Source lines are added by `render_failure`, possibly in another
    process.
    """
    frames = [(f.filename, f.lineno or 0, f.name) for f in traceback.extract_tb(error.__traceback__)]
    hint = forgotten_await(error) or (ASYNCIO if "event loop" in str(error) and isinstance(error, RuntimeError) else "")
    return {
        "role": role,
        "step": step,
        "type": type(error).__name__,
        "text": str(error) or type(error).__name__,
        "frames": [list(f) for f in frames],
        "hint": hint,
        "ours": isinstance(error, LabkitError),
    }


def forgotten_await(error: BaseException) -> str:
    """Return a hint if a local variable of the failing role holds a coroutine or generator that was never awaited; else ""."""
    tb = error.__traceback__
    while tb is not None:
        for name, value in tb.tb_frame.f_locals.items():
            if _unstarted(value):
                return f"`{name}` holds a {value.__name__}(...) that was never awaited: is an `await` missing?"
        tb = tb.tb_next
    return ""


def _unstarted(value: Any) -> bool:
    if inspect.iscoroutine(value):
        return inspect.getcoroutinestate(value) == inspect.CORO_CREATED
    return inspect.isgenerator(value) and inspect.getgeneratorstate(value) == inspect.GEN_CREATED


def render_failure(report: dict[str, Any], labkit_lines: bool = False) -> RoleError:
    """Return the error shown to the user: role, step, what failed, and source lines of the role."""
    lines: list[str] = []
    frames: Sequence[Any] = report["frames"]
    for filename, line, name in frames:
        if not labkit_lines and any(part in filename.replace("\\", "/") for part in DRIVERS):
            continue
        source = linecache.getline(filename, line).strip()
        lines.append(f"  {filename}:{line} in {name}" + (f"\n    {source}" if source else ""))
    where = f" at step {report['step']}" if report["step"] >= 0 else ""
    what = report["text"] if report["ours"] else f"{report['type']}: {report['text']}"
    hint = f"\n{report['hint']}" if report["hint"] else ""
    trace = "\n" + "\n".join(lines) if lines else ""
    return RoleError(f"{report['role']} failed{where}: {what}{hint}{trace}")


def loss_text(now: int, what: str) -> str:
    """Return the text for a run that ended at `now` (ns) because roles were lost; `what`: the reason."""
    return f"The run ended after {seconds(now):.2f} s because {what}. Its trace is kept."


def divergence_text(update: int, learning_rate: float | None) -> str:
    """Return the text for a run that ended because the loss at `update` was infinite or NaN."""
    rate = f", learning_rate {learning_rate:g}" if learning_rate else ""
    return f"the loss is no longer a finite number at update {update}{rate}"


def deadlock_text(trace: Trace, now: int, waiting: dict[str, tuple[tuple[str, ...], str | None]], most: int = 8) -> str:
    """Return the text for a deadlock: which role waits for what. `waiting`: {role: (names of message kinds, only sender or
    None)}.

    If a role has received more messages from some peers than from others, the peers with the fewest are named as the ones that
    it waits for.
    """
    sentences = []
    for name, (kinds, sender) in list(waiting.items())[:most]:
        behind = [sender] if sender else [trace.roles[i] for i in least_received(trace, trace.roles.index(name), kinds)]
        source = " from " + ", ".join(behind[:4]) if behind else ""
        sentences.append(f"{name} waits for {' or '.join(kinds)}{source}")
    more = f", and {len(waiting) - most} more" if len(waiting) > most else ""
    return f"deadlock after {seconds(now):.3f} s: {'; '.join(sentences)}{more}. No message is in flight. Is a reply missing?"
