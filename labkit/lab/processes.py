"""The processes of a lab: a given cluster, or the lab's own, which starts in the background. If bokeh is installed the lab's
own cluster has Dask's dashboard (half a second of processor time, 19 MB).
"""

from __future__ import annotations

import importlib.util
import threading

from ..engines.dask import DaskCluster
from ..errors import BadInput

__all__ = ["Processes"]


class Processes:
    """`cluster` exists from the beginning, its processes when `ready`. `ours`: closing the lab ends them. `problem`: why they
    could not be started. `wanted`: the number to start.
    """

    def __init__(self, given: DaskCluster | None = None):
        self.ours = given is None
        self._cluster = given
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self.problem: Exception | None = None
        self.wanted = 0

    @property
    def cluster(self) -> DaskCluster:
        """The cluster, started or not."""
        with self._lock:
            if self._cluster is None:
                self._cluster = DaskCluster(dashboard=importlib.util.find_spec("bokeh") is not None)
            return self._cluster

    @property
    def ready(self) -> bool:
        """Whether a run can start without waiting for processes."""
        return self._cluster is not None and self._cluster.is_open and not self.starting

    @property
    def starting(self) -> bool:
        """Whether processes are being started."""
        return self._thread is not None and self._thread.is_alive()

    def check(self) -> None:
        """`BadInput` if the cluster was given and is closed; a closed cluster of the lab's own is replaced by a new one."""
        if self._cluster is None or not self._cluster.is_closed:
            return
        if not self.ours:
            raise BadInput("The cluster has been closed: open a lab on another one, or choose the engine simulated.")
        self._cluster = None

    def progress(self) -> tuple[int, int] | None:
        """Return (processes that run, processes wanted) while they start; else None."""
        if not self.starting or self._cluster is None:
            return None
        return min(self._cluster.progress()[0], self.wanted), self.wanted

    def start(self, nodes: int) -> None:
        """Start `nodes` processes, on a thread; `starting` until they are up or `problem` is set."""
        if self.starting:
            return
        cluster, self.problem, self.wanted = self.cluster, None, nodes

        def work() -> None:
            try:
                cluster.open(nodes)
            except Exception as error:
                self.problem = error
            self._thread = None

        self._thread = threading.Thread(target=work, name="labkit-lab-cluster", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the processes if they are the lab's own."""
        if self.ours and self._cluster is not None:
            self._cluster.close()
