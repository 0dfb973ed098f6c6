"""One run in real time, as the client sees it: a thread that listens, decides when it is over, and closes the books."""

from __future__ import annotations

import tempfile
import threading
import time
from queue import Empty
from typing import Any

import numpy as np

from ...errors import ClusterError, Deadlock, LabkitError
from ...trace.trace import Trace
from ...trace.vocabulary import seconds
from ..checkpoints import check_folder, fingerprint
from ..drive import deadlock_text, render_failure
from ..parts import Plan, check_factor, find_role
from .supervisor import Supervisor

__all__ = ["DaskRun"]

SILENCE_S = 8.0  # a role that has not even sent a beat for so long is lost
LISTEN_S = 0.25


class DaskRun:
    """The engine behind `Run` on a Dask cluster. `wait`, `stop`, `pause`, `resume`, `step`, `set`, `slow`."""

    def __init__(self, plan: Plan, cluster: Any, supervisor: Supervisor, commands: Any, checkpoint: Any, began: float):
        self.plan, self.cluster, self.supervisor, self._began = plan, cluster, supervisor, began
        self.trace = Trace(plan.header(cluster))
        self.stopped_by: str | None = None
        self.error: LabkitError | None = None
        self.parameters: np.ndarray | None = None
        self._over = threading.Event()
        self._lock = threading.RLock()
        self._paused_at: int | None = None
        self._stop_reason: str | None = None
        self._stop_deadline = 0.0
        self._stepping: set[str] = set()
        self._stepped = threading.Event()
        self._beats: dict[str, Any] = {}
        self._heard = dict.fromkeys(supervisor.where, time.monotonic())
        self._timers: list[threading.Timer] = []
        self._knobs = plan.strategy
        folder = check_folder(checkpoint)
        self._temporary = tempfile.TemporaryDirectory(prefix="labkit-") if folder is None and checkpoint is not False else None
        self.folder = str(folder) if folder else self._temporary.name if self._temporary else None
        self._start(commands)

    def _start(self, commands: Any) -> None:
        cluster = self.cluster
        settings = {
            "pace": cluster.pace, "server_time": cluster.server_time, "folder": self.folder, "factors": dict(cluster.slow),
        }  # fmt: skip
        try:
            for role, factor in cluster.slow.items():
                find_role(role, self.plan.role_ids)
                check_factor(factor)
            self.supervisor.start(settings)
        except BaseException:
            self.supervisor.bring_home("the run could not start")
            self.supervisor.close()
            raise
        for role, factor in cluster.slow.items():
            self.trace.mark(0, "slow", f"{role} computes {factor:g}x slower", name=role, factor=float(factor))
        for at, name, arguments in commands:
            timer = threading.Timer(at, self._at_time, (name, arguments))
            timer.daemon = True
            timer.name = f"labkit-fault-{self.supervisor.run}"
            self._timers.append(timer)
            timer.start()
        self._thread = threading.Thread(target=self._listen, name=f"labkit-run-{self.supervisor.run}", daemon=True)
        self._thread.start()

    def _at_time(self, name: str, arguments: dict[str, Any]) -> None:
        if self.stopped_by is None:
            getattr(self, name)(**arguments)

    # the listening thread ----------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        stopped_by, why = "error", ""
        try:
            while True:
                over = self._hear()
                if over is not None:
                    stopped_by, why = over
                    break
        except Exception as error:  # a bug of ours: the run ends, and says so
            self.error = ClusterError(f"The supervisor failed: {type(error).__name__}: {error}")
            why = str(self.error)
        finally:
            self._finish(stopped_by, why)

    def _hear(self) -> tuple[str, str] | None:
        """Take in one event. (stopped_by, why) when it ends the run."""
        try:
            event = self.supervisor.queue.get(timeout=LISTEN_S)
        except Empty:
            return self._look_around()
        role = event.get("role")
        if role in self._heard:
            self._heard[role] = time.monotonic()
        what = event["what"]
        if what == "batch":
            self.trace.append(event["batch"])
            return self._check_deadlock(event) or self._look_around()
        if what == "returned":
            return self._role_returned(role, event["verdict"])
        if what == "failed":
            self.error = render_failure(event["report"])
            return "error", str(self.error)
        if what == "worker lost" and event["worker"] in self.supervisor.where.values():
            return self._lost(f"the process of {self.supervisor.roles_on(event['worker'])} ended unexpectedly")
        if what == "task failed":
            return self._lost(f"{role} failed: {self.supervisor.why_failed(role)}")
        if what == "stepped":
            self._stepping.discard(role)
            if not self._stepping:
                self._stepped.set()
        return None

    def _role_returned(self, role: str, verdict: str | None) -> tuple[str, str] | None:
        spec = self.plan.layout.roles[self.plan.role_ids[role]]
        if spec.kind == "chief":
            return verdict or "finished", ""
        self._beats[role] = None
        working = [r.name for r in self.plan.layout.roles if r.computes and self._beats.get(r.name, 0) is not None]
        if spec.computes and not working:
            self._hurry("finished")
        return None

    def _look_around(self) -> tuple[str, str] | None:
        now = time.monotonic()
        if self._stop_reason is not None and now > self._stop_deadline:
            return self._stop_reason, "the chief did not answer, so there is no last evaluation"
        if self.supervisor.client.status != "running":
            return self._lost("the connection to the Dask scheduler is gone")
        silent = [role for role, heard in self._heard.items() if now - heard > SILENCE_S]
        if silent:
            return self._lost(f"{', '.join(silent)} did not answer for {SILENCE_S:g} s (frozen, or cut off)")
        return None

    def _lost(self, what: str) -> tuple[str, str]:
        self.error = ClusterError(f"The run ended after {seconds(self.now):.2f} s because {what}. Its trace is kept.")
        return "error", str(self.error)

    def _check_deadlock(self, event: dict[str, Any]) -> tuple[str, str] | None:
        """All roles but the chief wait without a limit, twice in a row, and every message sent has been received."""
        role = event["role"]
        state = (tuple(event["waiting"]), event["only"], event["sent"], event["received"])
        before = self._beats.get(role)
        if before is None and role in self._beats:
            return None
        count = before[1] + 1 if before is not None and before[0] == state else 1
        self._beats[role] = (state, count)
        names = [r.name for r in self.plan.layout.roles if r.kind != "chief"]
        beats = [self._beats.get(name) for name in names]
        if self._paused_at is not None or any(b is None or not b[0][0] or b[1] < 3 for b in beats):
            return None
        everyone = [b[0] for b in self._beats.values() if b is not None]
        if sum(s[2] for s in everyone) != sum(s[3] for s in everyone):
            return None
        waiting = {name: (beat[0][0], beat[0][1]) for name, beat in zip(names, beats) if beat is not None}
        self.error = Deadlock(deadlock_text(self.trace, self.now, waiting))
        return "deadlock", str(self.error)

    def _finish(self, stopped_by: str, why: str) -> None:
        """End all roles, put their last reports into the trace, close the books."""
        for timer in self._timers:
            timer.cancel()
        reports: dict[str, dict[str, Any]] = {}
        try:
            reports = self.supervisor.bring_home(why or stopped_by)
        finally:
            self._close_books(stopped_by, why, reports)
            self.supervisor.close()
            self.stopped_by = stopped_by
            self._over.set()
            self._stepped.set()

    def _close_books(self, stopped_by: str, why: str, reports: dict[str, dict[str, Any]]) -> None:
        chief = next((r for r in reports.values() if r["role"] == "chief"), None)
        for report in reports.values():
            self.trace.append(report["batch"])
        self.parameters = chief["parameters"] if chief else None
        if stopped_by == "diverged" and chief:
            rate = getattr(self._knobs, "learning_rate", None)
            why = f"the loss is {chief['loss']} at update {chief['update']}" + (f", learning_rate {rate:g}" if rate else "")
        lost = sorted(set(self.plan.role_ids) - set(reports))
        self.trace.end(
            stopped_by=stopped_by, why=why, time=max((r["time"] for r in reports.values()), default=self.now),
            wall_seconds=time.monotonic() - self._began, in_flight=[f for r in reports.values() for f in r["in_flight"]],
            update=chief["update"] if chief else None, loss=chief["loss"] if chief else None,
            accuracy=chief["accuracy"] if chief else None, parameters_sha256=fingerprint(self.parameters), lost=lost,
        )  # fmt: skip

    # what `Run` calls --------------------------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        """Engine time, ns."""
        if self._paused_at is not None:
            return self._paused_at - self.supervisor.zero
        return self.supervisor.now()

    @property
    def seconds(self) -> float:
        """Engine time, s."""
        return seconds(self.now)

    def flush(self) -> None:
        """Nothing to do: reports come by themselves."""

    def wait(self, timeout: float | None = None) -> None:
        """Until the run is over, or `TimeoutError`."""
        if not self._over.wait(timeout):
            raise TimeoutError(f"The run is not over after {timeout:g} s; it goes on.")

    def stop(self, reason: str = "user") -> None:
        """End the run, with a last evaluation; returns when nothing of it is left."""
        with self._lock:
            if self.stopped_by is None and self._stop_reason is None:
                self._stop_reason, self._stop_deadline = reason, time.monotonic() + 5
                self.resume()
                self._hurry(reason)
        if threading.current_thread() is not self._thread:
            self._over.wait(30)

    def _hurry(self, reason: str) -> None:
        self.supervisor.command({"do": "hurry", "reason": reason}, "chief")

    def pause(self) -> None:
        """Hold every role between two effects."""
        with self._lock:
            if self._paused_at is None and self.stopped_by is None:
                self._paused_at = time.monotonic_ns()
                self.supervisor.command({"do": "pause"})
                self.trace.mark(self.now, "pause", "paused")

    def resume(self, step: bool = False) -> None:
        """Go on; the time of the pause is taken out of engine time."""
        with self._lock:
            if self._paused_at is not None:
                self.supervisor.zero += time.monotonic_ns() - self._paused_at
                self._paused_at = None
                self.supervisor.command({"do": "resume", "zero": self.supervisor.zero, "step": step})

    def step(self) -> bool:
        """Let every shard apply once more, then pause; False once the run is over."""
        with self._lock:
            self.pause()
            self._stepping = {r.name for r in self.plan.layout.roles if r.shard is not None}
            self._stepped.clear()
            self.resume(step=True)
        self._stepped.wait(30)
        self.pause()
        return self.stopped_by is None

    def set(self, **knobs: Any) -> None:
        """Change live knobs of the strategy in every role."""
        changed = self._knobs.changed(**knobs)
        with self._lock:
            self._knobs = changed
            self.supervisor.command({"do": "set", "knobs": {name: getattr(changed, name) for name in knobs}})
            self.trace.mark(self.now, "set", ", ".join(f"{k} = {v}" for k, v in knobs.items()))

    def slow(self, role: str, factor: float) -> None:
        """From now on `role` computes `factor` times slower than it would."""
        find_role(role, self.plan.role_ids)
        factor = check_factor(factor)
        with self._lock:
            self.supervisor.command({"do": "slow", "factor": factor}, role)
            self.trace.mark(self.now, "slow", f"{role} computes {factor:g}x slower", name=role, factor=factor)


