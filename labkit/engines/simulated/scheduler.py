"""The processor scheduler of a host: which role has which core.

A model of the scheduler of Linux that is detailed enough for the throughput of roles that share cores. Each core has a queue
of jobs and executes the first one without interruption, for at most one time slice; a job that needs longer then goes to the
end of the queue. If a role that has slept has a new job, the slice of the present job ends earlier, after a minimal slice. A
role that starts its next job at the instant at which its last one ends keeps its core, as a process that does not wait. A job
of a role that is not pinned is placed on an idle core: one with the fewest pinned roles, if possible the one on which the role
ran last. If no core is idle, it is placed on the core with the shortest queue; a core that becomes idle takes over a waiting
job of such a role.

If a core changes from one role to another, the work of the new role takes longer, by a factor, until it leaves the core, or a
time slice has ended without another role that waits: the caches contain the code and data of the other role. The speed of a
core drifts: a random factor applies to all work on it for some time, as another user of the physical core causes it. Other
processes of the host that serve the run (the client and its monitoring) use a share of the cores, which is noticeable only
while no core is idle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from .event_loop import DONE, EARLY, EventLoop

MOST_BACKGROUND = 0.9  # the largest share of a core that other processes use


class Process(Protocol):
    """The owner of jobs. `core`: the core on which it ran last, or to which it is pinned. `pinned`: whether it is pinned."""

    core: Core | None
    pinned: bool

    def job_finished(self, began: int) -> None:
        """Called when the job is done. `began`: the time (ns) at which a core began to execute it."""


class Job:
    """Processor work. `left`: processor time (ns) that is left. `core`: the core that executes it or in whose queue it waits.
    `began`: the time (ns) at which a core began to execute it; -1 before.
    """

    __slots__ = ("began", "core", "left", "owner")

    def __init__(self, owner: Process, left: float, core: Core, began: int):
        self.owner, self.left, self.core, self.began = owner, left, core, began


# A queue for each core. Equal sharing of all cores, which was tried first, was as good for staleness, and worse for
# throughput: in fact short work is not interrupted.
class Core:
    """One core: a queue of jobs. It has the interface of a role in the event loop: `token` and `work_done`."""

    __slots__ = (
        "_began", "_cold", "_drift", "_extra", "_factor", "_host", "_last", "_period", "_rate", "_slice", "job", "limit",
        "pinned", "queue", "token", "used",
    )  # fmt: skip

    def __init__(self, host: Host, drift: Callable[[], float] | None):
        self._host = host
        # draws factors; the present one; the number of its period
        self._drift, self._factor, self._period = drift, 1.0, -1
        self.queue: deque[Job] = deque()
        self.job: Job | None = None  # the job that it executes
        self._last: Process | None = None  # the owner of the latest job
        self.pinned = 0  # roles that are pinned to it
        # processor time (ns) of the present time slice, until now and at most
        self.used, self.limit = 0.0, host.time_slice
        # processor time (ns) until the next event; additional time because of cold caches
        self._slice, self._extra = 0.0, 0.0
        self._cold = 0.0  # the relative additional time of the present role, until the caches contain its code and data
        self._began, self._rate = 0, 1.0  # when (ns) the event was scheduled; processor time per time
        self.token = 0

    @property
    def length(self) -> int:
        return len(self.queue) + (self.job is not None)

    def execute(self, job: Job, continues: bool = False) -> None:
        """Execute a job until it is done, or to the end of the time slice. `continues`: its role has had the core until now."""
        host, loop = self._host, self._host.loop
        if not continues:
            self.used, self.limit = 0.0, host.time_slice
            self._cold = host.cold if self._last not in (None, job.owner) else 0.0
            self._last = job.owner
        if job.began < 0:
            job.began = loop.now
        self.job, job.core, job.owner.core = job, self, self
        self._slice = max(0.0, min(job.left, self.limit - self.used))
        self._extra = self._cold * self._slice
        self._began, self._rate = loop.now, host.rate() / self._drifted()
        self.token += 1
        end = loop.now + round((self._slice + self._extra) / self._rate)
        loop.schedule(end, EARLY, DONE, self, self.token)  # type: ignore[arg-type]

    def _drifted(self) -> float:
        # The speed of a core of a virtual machine drifts: a third to a half of the variance of gradient times persists for
        # about 50 ms. Without drift, workers at full speed are too equal, and the staleness of SSP is up to 25% too high.
        if self._drift is not None:
            period = self._host.loop.now // self._host.drift_time
            if period != self._period:
                self._period, self._factor = period, self._drift()
        return self._factor

    def work_done(self) -> None:
        """Handle the event of the loop: the job is done, or the time slice has ended."""
        job = self.job
        assert job is not None
        job.left -= self._slice
        self.used += self._slice
        self.job = None
        if job.left > 0.5:
            if self.queue:
                self.put(job)
                self.next()
            else:
                self.used, self.limit, self._cold = 0.0, self._host.time_slice, 0.0
                self.execute(job, continues=True)
            return
        self._host.finished(job, self)

    def stop(self) -> None:
        """Stop the execution of the present job, and continue with the next one."""
        job = self.job
        assert job is not None
        job.left = max(0.0, job.left - self._executed())
        self.job = None
        self.token += 1
        self.next()

    def _executed(self) -> float:
        """Return the processor time (ns) of the present job since the last event."""
        passed = (self._host.loop.now - self._began) * self._rate
        return passed * self._slice / (self._slice + self._extra) if self._slice else 0.0

    def put(self, job: Job) -> None:
        """At the end of the queue."""
        job.core = self
        self.queue.append(job)
        self._host.waiting += 1

    def shorten(self) -> None:
        """Let the present time slice end as soon as it has lasted a minimal slice."""
        host, loop, executed = self._host, self._host.loop, self._executed()
        # as Linux does for a process that has slept: it gets the core after a minimal slice of the present one
        self.limit = min(self.limit, max(host.min_slice, self.used + executed))
        if self.limit - self.used >= self._slice:
            return
        self._extra *= (self.limit - self.used) / self._slice
        self._slice = self.limit - self.used
        self.token += 1
        end = max(loop.now, self._began + round((self._slice + self._extra) / self._rate))
        loop.schedule(end, EARLY, DONE, self, self.token)  # type: ignore[arg-type]

    def remove(self, job: Job) -> None:
        self.queue.remove(job)
        self._host.waiting -= 1

    def next(self) -> None:
        """Execute the next job, one of its own queue or a waiting job of a role that is not pinned. Idle if there is none."""
        job = self.queue[0] if self.queue else self._host.movable_job()
        if job is not None:
            job.core.remove(job)
        if job is None:
            self._host.idle[self] = None
        else:
            self.execute(job)


class Host:
    """The cores of one host, with the scheduler.

    `number`: that of the host. `speed`: processor time of the measured host that passes per second on a core of this one.
    `time_slice`: the longest time for which a role has a core while others wait, in ns; `min_slice`: the same if one of them has
    just slept. `cold`: the additional time of work after another role has used the core, relative to the work. `background`:
    cores that other processes use. `drifts`: one function per core that draws the factors of its time; each factor is used for
    `drift_time` ns. Empty: no drift.
    """

    __slots__ = (
        "_background", "_cores", "_jobs", "_resuming", "_speed", "cold", "drift_time", "idle", "loop", "min_slice", "number",
        "time_slice", "waiting",
    )  # fmt: skip

    def __init__(
        self, number: int, loop: EventLoop, cores: int, speed: float, time_slice: float, min_slice: float, cold: float,
        background: float, drifts: Sequence[Callable[[], float]], drift_time: int,
    ):  # fmt: skip
        self.number, self.loop = number, loop
        self.time_slice, self.min_slice, self.drift_time = time_slice, min_slice, drift_time
        self.cold = cold
        self._cores = [Core(self, drifts[i] if drifts else None) for i in range(cores)]
        self.idle: dict[Core, None] = dict.fromkeys(self._cores)  # idle cores; a dict keeps the order
        self._speed, self._background = speed, min(MOST_BACKGROUND, background / cores)
        self._jobs: dict[Process, Job] = {}
        self.waiting = 0  # jobs in all queues
        self._resuming: tuple[Process, Core] | None = None  # a process whose job has just ended, and its core

    def core(self, number: int) -> Core:
        """Return a core; numbers above that of the last core begin again with the first."""
        return self._cores[number % len(self._cores)]

    def rate(self) -> float:
        """Return the processor time that a core executes per time, now."""
        return self._speed if self.idle else self._speed * (1.0 - self._background)

    def start(self, owner: Process, duration: float, began: int = -1, woken: bool = False) -> None:
        """Start a job of `duration` ns of processor time. `owner.job_finished` is called when it is done.

        `began`: for the rest of a cancelled job, the time (ns) at which a core began to execute it. `woken`: whether its role has
        slept.
        """
        resuming = self._resuming
        if resuming is not None and resuming[0] is owner:
            self._jobs[owner] = job = Job(owner, duration, resuming[1], began)
            self._resuming = None
            if resuming[1].used < resuming[1].limit:
                job.core.execute(job, continues=True)
            else:
                job.core.put(job)
                job.core.next()
            return
        core = owner.core if owner.pinned and owner.core is not None else self._choose(owner)
        self._jobs[owner] = job = Job(owner, duration, core, began)
        if core in self.idle:
            del self.idle[core]
            core.execute(job)
        else:
            core.put(job)
            if woken:
                core.shorten()

    def _choose(self, owner: Process) -> Core:
        if self.idle:
            return min(self.idle, key=lambda core: (core.pinned, core is not owner.core))
        return min(self._cores, key=lambda core: core.length)

    def finished(self, job: Job, core: Core) -> None:
        """Handle the end of a job. If its owner starts another job in this call, it keeps the core."""
        owner = job.owner
        del self._jobs[owner]
        self._resuming = owner, core
        owner.job_finished(job.began)
        if self._resuming is not None:
            self._resuming = None
            core.next()

    def movable_job(self) -> Job | None:
        """Return a waiting job of a role that is not pinned, of the core with the longest queue; None if there is none."""
        if not self.waiting:
            return None
        for core in sorted(self._cores, key=lambda core: -len(core.queue)):
            for job in core.queue:
                if not job.owner.pinned:
                    return job
        return None

    def cancel(self, owner: Process) -> Job | None:
        job = self._jobs.pop(owner, None)
        if job is None:
            return None
        if job.core.job is job:
            job.core.stop()
        else:
            job.core.remove(job)
        return job
