"""The peers that train: name, program, requirements and supported jobs. Used by `throughput` and `accuracy`.

A peer does all its jobs in one process, because the start of a framework takes longer than a measurement.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..rows import Side, Unmeasured, Values
from ..subprocesses import ProgramFailed, run_program
from .job import Job, as_json

SINGLE, DASK, DDP, MPI = "one NumPy process", "Dask actors, NumPy", "PyTorch DDP on gloo", "mpi4py, NumPy"
RAY_TORCH, RAY_NUMPY = "Ray's parameter server, PyTorch", "Ray's parameter server, NumPy"
RPC_TORCH, RPC_NUMPY = "PyTorch RPC server, PyTorch", "PyTorch RPC server, NumPy"


@dataclass(frozen=True)
class Trainer:
    """A peer that trains.

    arguments: the arguments of its program before the jobs. shapes: the supported pairs of rule and number of workers.
    """

    name: str
    program: str
    shapes: tuple[tuple[str, int], ...]
    arguments: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()

    def side(self, jobs: Sequence[Job], unit: str) -> Side:
        """Return a side that, in each turn, measures in new processes those of `jobs` that this trainer supports."""
        mine = [job for job in jobs if (job.rule, job.workers) in self.shapes]
        return Side(self.name, lambda: self._measure(mine, unit), self.needs, self.programs)

    def _measure(self, jobs: Sequence[Job], unit: str) -> Values:
        try:
            results = run_program(f"benchmarks.peers.{self.program}", *self.arguments, as_json(jobs)) if jobs else []
        except ProgramFailed as why:
            raise Unmeasured(f"failed: {why}") from why
        for job, result in zip(jobs, results):
            if math.isnan(result):
                raise Unmeasured(f"{job.name}: not reached within {job.duration:g} s")
        return {(job.name, unit): result for job, result in zip(jobs, results)}


def _shapes(rule: str, *workers: int) -> tuple[tuple[str, int], ...]:
    return tuple((rule, n) for n in workers)


SERVERS = _shapes("async", 1, 2, 4)
TRAINERS = (
    Trainer(SINGLE, "numpy_process", (("single", 1),)),
    Trainer(RPC_NUMPY, "torch_rpc", SERVERS, ("numpy",), ("torch",)),
    Trainer(RPC_TORCH, "torch_rpc", SERVERS, ("torch",), ("torch",)),
    Trainer(DASK, "dask_actors", SERVERS, (), ("distributed",)),
    Trainer(RAY_NUMPY, "ray_server", _shapes("async", 2, 4) + _shapes("sync", 2, 4), ("numpy",), ("ray",)),
    Trainer(RAY_TORCH, "ray_server", SERVERS + _shapes("sync", 1, 2, 4), ("torch",), ("ray", "torch")),
    Trainer(DDP, "torch_ddp", _shapes("reduce", 2, 4), (), ("torch",)),
    Trainer(MPI, "mpi_all_reduce", _shapes("reduce", 2, 4), (), ("mpi4py",), ("mpirun",)),
)
