"""Base class of the objects that a role computes with: declares the kind of their work, and handles cancelled work."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

Work = Literal["gradient", "server", "measure"]


class Part:
    """Base class of the objects whose methods a role passes to `ctx.compute`: models, shards, the local weights of a worker,
    and the evaluator.

    `work`: the kind of work of all its methods. It determines the distribution from which their duration is drawn in virtual
    time, whether processes are paced, and the phase under which the time is recorded:

    - "gradient": `compute` (the pace of the cluster), phase "compute";
    - "server": `server_time`, phase "apply";
    - "measure": `evaluation_time`, phase "evaluate".

    A function that is not a method of a part is "gradient" work in a role that computes, else "server" work.
    """

    work: ClassVar[Work]

    def cancelled(self) -> None:
        """Called in virtual time if work was cancelled before it was done (`ctx.compute(..., unless=...)`). The method passed
        to `ctx.compute` was not called.
        """

    def discard(self, result: Any) -> None:
        """Called on processes if work was cancelled but was done nevertheless (`ctx.compute(..., unless=...)`). Its `result`
        is not used.
        """
