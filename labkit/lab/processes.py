"""The processes of a lab: a cluster given to the lab, or a cluster of the lab, which is started in the background.

A cluster of the lab has Dask's dashboard if bokeh is installed (it takes half a second of processor time and 19 MB).
"""

from __future__ import annotations

import importlib.util
import threading

from ..engines.dask import DaskCluster
from ..errors import BadInput


class Processes:
    """The cluster of a lab and its processes.

    `cluster`: the cluster, which may not be started yet. `ready`: whether its processes run. `ours`: whether the cluster
    belongs to the lab, so that closing the lab stops it. `problem`: the error if the processes could not be started.
    `wanted`: the number of processes to start.
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
        """The cluster. It may not be started yet."""
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
        """Check that the cluster is not closed. A closed cluster of the lab is replaced; a closed cluster that was given
        raises `BadInput`.
        """
        if self._cluster is None or not self._cluster.is_closed:
            return
        if not self.ours:
            raise BadInput("The cluster has been closed: open a lab on another one, or choose the engine simulated.")
        self._cluster = None

    def progress(self) -> str:
        """Return the stage of the start of the processes, or of a run on them, for example "3 of 6 processes imported"."""
        return str(self.cluster.progress())

    def start(self, nodes: int) -> None:
        """Start `nodes` processes on a thread. `starting` is True until they run or `problem` is set."""
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
        """Stop the processes if they belong to the lab; else keep them no longer."""
        if self._cluster is not None:
            if self.ours:
                self._cluster.close()
            else:
                self._cluster = self._cluster.with_spec(self._cluster.spec, keep=False)
