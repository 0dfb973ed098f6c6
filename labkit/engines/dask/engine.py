"""One run in real time, as the client sees it: a thread that listens, decides when it is over, and closes the books."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable
from queue import Empty
from typing import Any

from ...errors import ClusterError, Deadlock, LabkitError
from ...trace.trace import Trace
from ..checkpoints import fingerprint
from ..drive import deadlock_text, loss_text, render_failure
from ..parts import Plan
from .controls import Controls
from .stillness import Stillness
from .supervisor import Supervisor

__all__ = ["DaskRun"]

SILENCE_S = 8.0  # a role that has not even sent a beat for so long is lost
LISTEN_S = 0.25
KEEP_ROWS = 300_000  # of each table: a run that goes on for hours keeps memory flat
ABSENT_S = 2.0  # this process itself was not running for so long (suspended, starved): nobody's silence counts


class DaskRun(Controls):
    """The engine behind `Run` on a Dask cluster. `error`: what ended the run, if that was one."""

    def __init__(self, plan: Plan, cluster: Any, supervisor: Supervisor, commands: Any, checkpoint: Any, began: float):
        super().__init__(plan, supervisor)
        self.cluster, self._began = cluster, began
        self.trace = Trace(plan.header(cluster), keep=KEEP_ROWS)
        self.error: LabkitError | None = None
        self._still = Stillness(plan.role_ids)
        self._returned: set[str] = set()
        self._lost_roles: set[str] = set()
        self._due = deque(commands)
        self.folder = self._folder(checkpoint)
        self._start()

    def _folder(self, checkpoint: Any) -> str | None:
        """Where roles keep their checkpoints: a given folder, none, or one that goes when this run is forgotten."""
        if checkpoint is False:
            return None
        if checkpoint is not None:
            return str(checkpoint.absolute())
        temporary = tempfile.mkdtemp(prefix="labkit-")
        weakref.finalize(self, shutil.rmtree, temporary, True)
        return temporary

    def _start(self) -> None:
        cluster = self.cluster
        settings = {
            "pace": cluster.pace, "server_time": cluster.server_time, "folder": self.folder,
            "factors": dict(cluster.slow), "ours": cluster.ours,
        }  # fmt: skip
        try:
            self.supervisor.start(settings)
        except BaseException:
            self.supervisor.abandon()
            raise
        for role, factor in cluster.slow.items():
            self.trace.mark(0, "slow", f"{role} computes {factor:g}x slower", name=role, factor=float(factor))
        self._looked = time.monotonic()
        self._heard = dict.fromkeys(self.supervisor.where, self._looked)
        cluster.runs.add(self)
        self._thread = threading.Thread(target=self._listen, name=f"labkit-run-{self.supervisor.run}", daemon=True)
        self._thread.start()

    # the listening thread ---------------------------------------------------------------------------------------------

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
            event = self.supervisor.queue.get(timeout=self._carry_out())
        except Empty:
            return self._look_around()
        role, what = event.get("role", ""), event["what"]
        if role in self._heard:
            self._heard[role] = time.monotonic()
        if what == "batch":
            self.trace.append(event["batch"])
            return self._check_deadlock(event) or self._look_around()
        if what == "returned":
            return self._role_returned(role, event["verdict"])
        if what == "failed":
            self.error = render_failure(event["report"])
            return "error", str(self.error)
        if what == "worker lost" and event["worker"] in self.supervisor.where.values():
            names = self.supervisor.roles_on(event["worker"])
            how = "was killed" if event["worker"] in self._killed else "ended unexpectedly"
            return self._lost(names.split(", "), f"the process of {names} {how}")
        if what == "task failed" and event["status"] == "cancelled":
            return self._lost(self.plan.role_ids, self._why_cancelled())
        if what == "task failed":
            return self._lost([role], f"{role} failed: {self.supervisor.why_failed(role)}")
        if what == "version":
            self._stepping.version(role, event["version"])
        if what == "stepped":
            self._stepping.arrived(role)
        return None

    def _carry_out(self) -> float:
        """Carry out the commands that are due by engine time. Returns the seconds until the next may be."""
        while self._due and self._paused_at is None:
            left = self._due[0][0] - self.seconds
            if left > 0:
                return min(LISTEN_S, left)
            _, name, arguments = self._due.popleft()
            getattr(self, name)(**arguments)
        return LISTEN_S

    def _role_returned(self, role: str, verdict: str | None) -> tuple[str, str] | None:
        roles = self.plan.layout.roles
        if roles[self.plan.role_ids[role]].kind == "chief":
            return verdict or "finished", ""
        self._returned.add(role)
        players = [r.name for r in roles if r.computes] or [r.name for r in roles if r.kind != "chief"]
        if self._returned.issuperset(players):
            self._hurry("finished")
        return None

    def _look_around(self) -> tuple[str, str] | None:
        now = time.monotonic()
        absent, self._looked = now - self._looked > ABSENT_S, now
        if absent:
            self._heard = dict.fromkeys(self._heard, now)
        if self._stop_reason is not None and now > self._stop_deadline:
            return self._stop_reason, "the chief did not answer, so there is no last evaluation"
        if self.supervisor.client.status != "running":
            return self._lost(self.plan.role_ids, self._why_cancelled())
        silent = [role for role, heard in self._heard.items() if now - heard > SILENCE_S]
        if silent:
            return self._lost(silent, f"{', '.join(silent)} did not answer for {SILENCE_S:g} s (frozen, or cut off)")
        return None

    def _why_cancelled(self) -> str:
        if self.supervisor.client.status != "running":
            return "the connection to the Dask scheduler is gone"
        return "Dask cancelled its tasks (was the cluster restarted?)"

    def _lost(self, roles: Iterable[str], what: str) -> tuple[str, str]:
        self._lost_roles.update(roles)
        self.error = ClusterError(loss_text(self.now, what))
        return "error", str(self.error)

    def _check_deadlock(self, event: dict[str, Any]) -> tuple[str, str] | None:
        self._still.hear(
            event["role"], event["waiting"], event["only"], event["sent"], event["received"], event["batch"]["until"]
        )
        stuck = self._still.stuck() if self._paused_at is None else None
        if not stuck:
            return None
        names = [r.name for r in self.plan.layout.roles if r.kind != "chief" and r.name in stuck]
        self.error = Deadlock(deadlock_text(self.trace, self.now, {name: stuck[name] for name in names}))
        return "deadlock", str(self.error)

    def _finish(self, stopped_by: str, why: str) -> None:
        """End all roles, put their last reports into the trace, close the books. Nobody waits for ever."""
        self._closing = True
        try:
            reports = self.supervisor.bring_home(why or stopped_by, self._lost_roles, self._hear_the_last)
            self._close_books(stopped_by, why, reports)
        except Exception as error:
            self.error = ClusterError(f"The books of the run could not be closed: {type(error).__name__}: {error}")
            stopped_by = "error"
        finally:
            self.supervisor.close()
            self.cluster.runs.discard(self)
            self.stopped_by = stopped_by
            self._over.set()
            self._stepping.over()

    def _hear_the_last(self, event: dict[str, Any]) -> None:
        if event["what"] == "batch":
            self.trace.append(event["batch"])

    def _close_books(self, stopped_by: str, why: str, reports: dict[str, dict[str, Any]]) -> None:
        chief = next((r for r in reports.values() if r["role"] == "chief"), None)
        for report in reports.values():
            self.trace.append(report["batch"])
        self._evaluated = chief["parameters"] if chief else self.parameters
        if stopped_by == "diverged" and chief:
            rate = getattr(self._knobs, "learning_rate", None)
            why = f"the loss is {chief['loss']} at update {chief['update']}" + (
                f", learning_rate {rate:g}" if rate else ""
            )
        times = [r["time"] for r in reports.values()] or [self.now]
        self.trace.end(
            stopped_by=stopped_by, why=why, time=max(*times, *(mark["time"] for mark in self.trace.marks), 0),
            wall_seconds=time.monotonic() - self._began,
            in_flight=[f for r in reports.values() for f in r["in_flight"]],
            **_measured(chief or self._last_seen()), parameters_sha256=fingerprint(self._evaluated),
            lost=sorted(set(self.plan.role_ids) - set(reports)),
        )  # fmt: skip

    def _last_seen(self) -> dict[str, Any]:
        """What the chief had measured when it was last heard of."""
        rows = list(zip(*(c.tolist() for c in self.trace.column("evaluations", "update", "loss", "accuracy"))))
        return dict(zip(("update", "loss", "accuracy"), (int(rows[-1][0]), *rows[-1][1:]))) if rows else {}


def _measured(by: dict[str, Any]) -> dict[str, Any]:
    return {name: by.get(name) for name in ("update", "loss", "accuracy")}
