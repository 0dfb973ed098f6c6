"""The cost of a live figure: the same run in a notebook's kernel without a figure, and with a figure shown in a browser.

The browser is simulated (`front_end`). It acknowledges every frame at once, so the figure is drawn at its maximum rate.
The work of a real browser is not measured, because another process does this work, on the user's computer.
"""

from __future__ import annotations

import functools
import time

from .front_end import FrontEnd, open_kernel
from .rows import Benchmark, Row, Settings, Side, Values, alternate
from .run_rate import Window

OFF = "no figure"
RUN = "AsyncPS on Dask, 64-128-10, 2 workers"
EXTRA_S = 0.5  # seconds by which a run is longer than the window, so that the window's end is reported


def run(settings: Settings) -> list[Row]:
    """Measure watched and unwatched runs in turns, in one kernel with one cluster."""
    window = Window(settings.choose(1.0, 0.2), settings.choose(4.0, 0.5))
    with open_kernel() as front_end:
        front_end.run("from benchmarks.programs.watched import Bench; bench = Bench()")
        watched, plain = (functools.partial(_measure, front_end, window, on) for on in (True, False))
        rows = alternate(settings, "watching", [Side("live figure", watched), Side(OFF, plain)], baseline=OFF)
        front_end.run("bench.close()")
    return rows


def _measure(front_end: FrontEnd, window: Window, watched: bool) -> Values:
    whole = window.warm_up + window.duration + EXTRA_S
    before = len(front_end.frames)
    front_end.run(f"bench.begin({whole}, {watched})")
    began = time.monotonic()
    front_end.acknowledge_frames(whole)
    frames = (len(front_end.frames) - before) / (time.monotonic() - began)
    rate, cores = front_end.run(f"result = bench.end({window.warm_up}, {window.duration})", "result")
    if watched and not frames:
        raise RuntimeError("no frame was drawn: nothing was measured")
    values = {(RUN, "updates/s"): rate, ("the kernel's process", "cores"): cores}
    return {**values, ("frames shown", "frames/s"): frames} if watched else values


BENCHMARK = Benchmark("watching", "the cost of a live figure at its default rate", run)
