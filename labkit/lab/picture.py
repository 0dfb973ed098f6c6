"""The picture of the README: one worker becomes five times slower in asynchronous training. The reference run is
synchronous.

    python -m labkit.lab.picture docs/images/picture.png

The runs are simulated, so the picture is the same on every machine. It is reduced to 192 colours to keep the file small.
"""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image

import labkit as lk

from ..views import overview, save


def main(path: str) -> Path:
    """Simulate both runs (a second or two) and write the overview to `path`."""
    problem = lk.Problem("digits", hidden=(64, 32), seed=7)
    cluster = lk.SimulatedCluster(workers=4, compute=lk.distributions.LogNormal(0.1, 0.15))
    budget, faults = lk.Budget(seconds=12), [lk.Slow("worker-2", 5, at=5.0)]
    reference = lk.train(problem, lk.SyncPS(learning_rate=0.1), cluster, budget, faults=faults).wait()
    run = lk.train(problem, lk.AsyncPS(learning_rate=0.1), cluster, budget, faults=faults).wait()
    data, model = problem.dataset, run.result()
    raw, labels = data.raw(data.x_test), data.y_test
    predicted = model.predict(raw)
    wrong = int((predicted != labels).argmax())
    first = max(0, wrong - 6)
    chosen = slice(first, first + 18)
    written = save(
        overview(run.trace, reference=reference.trace, arrays=(raw[chosen], labels[chosen], predicted[chosen])), path
    )
    if written.suffix == ".png":
        picture = Image.open(written).convert("RGB")
        picture = picture.quantize(192, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        picture.save(written, optimize=True)
    return written


if __name__ == "__main__":
    print(main(sys.argv[1] if len(sys.argv) > 1 else "docs/images/picture.png"))
