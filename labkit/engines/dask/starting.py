"""A run whose processes are lost before it has begun is started over: none of its roles has computed anything yet."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ...errors import BadInput, ClusterError
from ...trace.events import Note
from .supervisor import LostWhileStarting
from .timeouts import LOOK_S, REPORT_S

__all__ = ["start_over"]


def start_over(
    attempt: Callable[[], Any], clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
) -> Any:  # fmt: skip
    """What `attempt()` returns; it is called again when it raises `LostWhileStarting`, for `REPORT_S` after the first loss.

    After a loss there may be too few Dask workers for a moment, which is no mistake of the caller's: that is waited for,
    within the same limit. Then `ClusterError` with the losses and what is missing. Other errors are passed on.
    """
    losses: list[LostWhileStarting] = []
    until = 0.0
    while True:
        try:
            run = attempt()
        except LostWhileStarting as loss:
            until = until or clock() + REPORT_S
            losses.append(loss)
            if clock() >= until:
                raise ClusterError(_in_words(losses)) from loss
        except (BadInput, ClusterError) as error:
            if not losses:
                raise
            if clock() >= until:
                raise ClusterError(f"{_in_words(losses)} Then: {error}") from error
        else:
            for text in map(str, losses):
                run.event(Note, f"{text} The run was started over.")
            return run
        sleep(LOOK_S)


def _in_words(losses: list[LostWhileStarting]) -> str:
    return " ".join(dict.fromkeys(str(loss) for loss in losses))
