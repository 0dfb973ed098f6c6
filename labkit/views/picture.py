"""The picture of the README: one worker becomes five times slower, asynchronous over pinned synchronous.

    python -m labkit.views.picture picture.png

A view draws traces and knows no engine, so the two runs are made here, in `main`, and nowhere else.
"""

from __future__ import annotations

import sys
from pathlib import Path

from .figures import save
from .plots import overview

__all__ = ["main"]


def main(path: str) -> Path:
    """Simulate both runs (a second or two) and write the overview to `path`."""
    import labkit as lk

    problem = lk.Problem("digits", hidden=(64, 32), seed=7)
    cluster = lk.SimulatedCluster(workers=4, compute=lk.LogNormal(0.1, 0.15))
    budget, faults = lk.Budget(seconds=12), [lk.Slow("worker-2", 5, at=5.0)]
    pinned = lk.train(problem, lk.SyncPS(learning_rate=0.1), cluster, budget, faults=faults).wait()
    run = lk.train(problem, lk.AsyncPS(learning_rate=0.1), cluster, budget, faults=faults).wait()
    data, model = problem.dataset, run.result()
    raw, labels = data.x_test * data.scale + data.mean, data.y_test
    said = model.predict(raw)
    wrong = int((said != labels).argmax())
    first = max(0, wrong - 6)
    chosen = slice(first, first + 18)
    return save(overview(run.trace, pinned=pinned.trace, arrays=(raw[chosen], labels[chosen], said[chosen])), path)


if __name__ == "__main__":
    print(main(sys.argv[1] if len(sys.argv) > 1 else "picture.png"))
