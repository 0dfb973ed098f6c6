"""What an engine asks of the objects that a role computes with: the kind of their work, and what to do when work is given up."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

__all__ = ["Part", "Work"]

Work = Literal["gradient", "server", "measure"]


class Part:
    """Base of the objects that a layout gives to a role, and whose methods the role passes to `ctx.compute`: models, shards,
    a worker's local weights, the evaluator.

    `work`: the kind of work that all its methods are. It decides from which distribution of the cluster virtual time draws
    their duration, whether processes are paced, and under which phase the time is recorded:

    - "gradient": `compute` (the pace of the cluster), phase "compute";
    - "server": `server_time`, phase "apply";
    - "measure": `evaluation_time`, phase "evaluate".

    A function that is not a method of a part is "gradient" work in a role that computes, else "server" work.
    """

    work: ClassVar[Work]

    def cancelled(self) -> None:
        """Work was given up before it was done (`ctx.compute(..., unless=...)` in virtual time): no method was called."""

    def discard(self, result: Any) -> None:
        """Work was done, but its `result` is not used (`ctx.compute(..., unless=...)` on processes)."""
