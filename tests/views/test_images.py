"""Every panel is unchanged: pictures of simulated runs are compared with stored ones (pytest-mpl).

A view is a pure function of (trace, time), and a simulated trace of its seed, so the same picture must come out, at the
end and after scrubbing back. A new panel is in this list as soon as it is in the registry; its pictures must then be
stored once. After an intended change, inspect the new pictures and store them:

    pytest tests/views/test_images.py --mpl-generate-path=tests/views/baseline
"""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib import ft2font
from matplotlib.testing.compare import calculate_rms
from PIL import Image

import labkit as lk
from labkit.views import PANELS, make_panel, overview, panel_figure

pytestmark = pytest.mark.sample(10)

BASELINE = Path(__file__).parent / "baseline"
STRICT, LENIENT = 2.0, 20.0  # root mean square, of 255; the same FreeType draws the same letters, another one up to 16
STORED_WITH = "2.14.3"  # FreeType, which comes with matplotlib; change it with the pictures
TOLERANCE = STRICT if ft2font.__freetype_version__ == STORED_WITH else LENIENT
PICTURE = {
    "baseline_dir": "baseline", "tolerance": TOLERANCE, "deterministic": True,
    "style": {"text.hinting": "no_hinting"},  # letters as they are meant: less depends on the version of FreeType
    "savefig_kwargs": {"dpi": 100, "facecolor": "white"},
}  # fmt: skip
TIMES = {"end": None, "back": 1.3}  # seconds
OVERVIEWS = [f"overview-{when}" for when in TIMES]
PANEL_PICTURES = [f"{name}-{when}" for name in PANELS for when in TIMES]

RANDOM = lk.distributions.LogNormal(0.1, 0.15)
DIGITS = lk.Problem("digits", hidden=(24,), seed=7, dtype="float64")
SLOWED = [lk.Slow("worker-2", 5, at=1.9)]


def run(strategy, problem=DIGITS, seconds=4.0, faults=SLOWED, **cluster):
    cluster = lk.SimulatedCluster(**{"workers": 4, "compute": RANDOM, **cluster})
    return lk.train(problem, strategy, cluster, lk.Budget(seconds=seconds), faults=faults).wait().trace


def too_far():
    """On a quadratic, the rate is changed from a stable to an unstable value."""
    cluster = lk.SimulatedCluster(workers=8, compute=lk.distributions.Deterministic(0.1))
    going = lk.train(lk.Problem("quadratic"), lk.AsyncPS(learning_rate=0.1), cluster, lk.Budget(seconds=4)).advance(2.0)
    going.set(learning_rate=0.3)
    return going.wait().trace


RUNS = {
    "async": lambda: run(lk.AsyncPS()),
    "wires": lambda: run(lk.AsyncPS(), latency=0.002, bandwidth=4e5),
    "ssp": lambda: run(lk.SSP(s=3)),
    "quadratic": too_far,
    "plane": lambda: run(lk.AsyncPS(), lk.Problem("moons", hidden=(16,), seed=7, dtype="float64")),
    "sync": lambda: run(lk.SyncPS()),
    "clicks": lambda: run(lk.SparsePS(), lk.Problem("clicks", seed=7), seconds=3.0),
}  # fmt: skip
SUITED = {  # a panel's subject -> its run; all others get the first run
    "topology": "wires", "links": "wires", "progress": "ssp", "stability": "quadratic", "decision_boundary": "plane",
    "hot_rows": "clicks", "noise_scale": "sync",
}  # fmt: skip
LANES = ("timeline", "gradient_flow")  # of a run with tasks
TIMELESS = {"hot_rows", "data_distribution"}  # a run has one such picture


@pytest.fixture(scope="module")
def trace_for():
    """The trace to draw a panel of; each is made once, when it is needed."""
    made = {}

    def get(panel):
        name = SUITED.get(panel, "async")
        if name not in made:
            made[name] = RUNS[name]()
        return made[name]

    return get


@pytest.fixture
def compared(request):
    """Without `--mpl` a picture is drawn but not compared: that must not count as a success."""
    options = request.config.option
    if not (getattr(options, "mpl", False) or getattr(options, "mpl_generate_path", None)):
        pytest.fail("pictures are compared with --mpl only (pyproject's addopts has it): nothing was compared.")


def at(picture):
    """(name, engine time) of a picture."""
    name, when = picture.rsplit("-", 1)
    return name, None if TIMES[when] is None else round(TIMES[when] * 1e9)


@pytest.mark.mpl_image_compare(**PICTURE)
@pytest.mark.parametrize("picture", PANEL_PICTURES)
def test_panel(compared, trace_for, picture):
    name, t = at(picture)
    return panel_figure(make_panel(name), trace_for(name), t)


@pytest.mark.mpl_image_compare(**PICTURE)
@pytest.mark.parametrize("name", LANES)
def test_lanes(compared, name):
    """In the middle of a backward pass in pieces; one worker is slower."""
    problem = lk.Problem("digits", hidden=(16, 16, 16), seed=7, dtype="float64")
    cluster = lk.SimulatedCluster(workers=4, compute=0.1, bandwidth=1e5, slow={"worker-2": 1.5})
    trace = lk.train(problem, lk.BucketedAllReduce(), cluster, lk.Budget(seconds=1)).wait().trace
    return panel_figure(make_panel(name), trace, 768_000_000)


@pytest.mark.mpl_image_compare(**PICTURE)
@pytest.mark.parametrize("picture", OVERVIEWS)
def test_overview(compared, trace_for, picture):
    name, t = at(picture)
    return overview(trace_for(name), t)


def test_no_picture_is_missing_and_none_is_left_over():
    wanted = {f"test_panel_{p}.png" for p in PANEL_PICTURES} | {f"test_overview_{p}.png" for p in OVERVIEWS}
    wanted |= {f"test_lanes_{name}.png" for name in LANES}
    assert {path.name for path in BASELINE.glob("*.png")} == wanted


@pytest.mark.parametrize("name", [name for name in (*PANELS, "overview") if name not in TIMELESS])
def test_the_tolerance_distinguishes_the_stored_times(name):
    kind = "overview" if name == "overview" else "panel"
    stored = (Image.open(BASELINE / f"test_{kind}_{name}-{when}.png").convert("RGB") for when in TIMES)
    end, back = (np.array(image, np.int16) for image in stored)
    assert calculate_rms(end, back) > STRICT


@pytest.mark.slow
def test_an_image_that_differs_is_a_failure(tmp_path):
    (tmp_path / "baseline").mkdir()
    for name, when, stored in itertools.product(("accuracy", "timeline"), TIMES, TIMES):
        if (when == stored) == (name == "accuracy"):  # the timeline's two pictures are exchanged
            wrong = tmp_path / "baseline" / f"test_panel_{name}-{when}.png"
            shutil.copy(BASELINE / f"test_panel_{name}-{stored}.png", wrong)
    copy = shutil.copy(__file__, tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rN", "--mpl", copy, "-k", "test_panel and (accuracy or timeline)"],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert "2 failed, 2 passed" in done.stdout, done.stdout
    assert done.stdout.count("RMS Value") == 2
