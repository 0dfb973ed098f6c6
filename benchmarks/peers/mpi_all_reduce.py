"""All-reduce with MPI: every process has the weights, sums the gradients in place, and steps.

After the tutorial of mpi4py, https://mpi4py.readthedocs.io/en/stable/tutorial.html (collectives on NumPy arrays)

Kept: `comm.Allreduce` on the NumPy array itself, `MPI.IN_PLACE`, `mpirun -n N python -m ...`. Changed: nothing. The
network and the data are labkit's, and a gradient is one flat array. Every `check_every` steps rank 0 broadcasts whether
training continues. Open MPI is configured for more processes than cores, so that waiting processes yield and do not spin.
"""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import count

import numpy as np

from .job import Job, JobClock, as_json, from_json, run_jobs

RANK = "rank"


def train(job: Job) -> None:
    """Run one process of the job."""
    from mpi4py import MPI  # the import starts MPI, which must not happen in the process that calls mpirun

    comm = MPI.COMM_WORLD
    weights, gradient, batches, clock = job.start, job.gradient(), job.batches(comm.rank), JobClock(job)
    rate, keep_training = np.float32(job.learning_rate / comm.size), np.ones(1, np.uint8)
    comm.Barrier()
    clock.begin()
    for step in count(1):
        total = gradient(weights, next(batches))
        comm.Allreduce(MPI.IN_PLACE, total)
        np.subtract(weights, rate * total, weights)
        if step % job.check_every == 0:
            if comm.rank == 0:
                keep_training[0] = clock.should_continue(step * comm.size, lambda: weights)
            comm.Bcast(keep_training)
            if not keep_training[0]:
                break
    if comm.rank == 0:
        print(clock.result, flush=True)


def launch(job: Job) -> float:
    """Run `mpirun` on this program, and return the result that rank 0 prints."""
    command = ["mpirun", *_options(), "-n", str(job.workers), sys.executable, "-m", __spec__.name, RANK, as_json([job])]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True, text=True)
    return float(done.stdout.split()[-1])


def _options() -> list[str]:
    """Return options with which Open MPI allows more processes than cores, and running as root. Other MPIs need none."""
    version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout
    if "Open MPI" not in version:
        return []
    return ["--oversubscribe", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]


if __name__ == "__main__":
    if sys.argv[1] == RANK:
        train(from_json(sys.argv[2])[0])
    else:
        run_jobs(from_json(sys.argv[1]), launch)
