"""Captions name colours: each must be among the colours that the browser draws, in both themes."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import rgb_to_hsv, to_rgb

import labkit as lk
from labkit.lab.page import page
from labkit.views import PANELS, bare_figure, make_panel
from labkit.views.display_list import DisplayList

DRAWING = Path(page.__file__).with_name("drawing.js")
PAPER = {"light": "#ffffff", "dark": "#111111"}
HUES = {"red": 0, "orange": 28, "green": 147, "blue": 224, "violet": 261}  # degrees
THEMED = re.compile(r"\b(pale|dark|light|white|black|bright)", re.IGNORECASE)  # true in one theme only
NAMED = re.compile(r"\b(faint|strong|thin|red|orange|green|blue|violet|grey)\b(?: bar)?(?: = |: )(\w+)")


def run_of(strategy, data="digits", hidden=(16, 16), **cluster):
    how = lk.SimulatedCluster(workers=4, compute=lk.distributions.Deterministic(0.1), **cluster)
    return lk.train(lk.Problem(data, hidden=hidden), strategy, how, lk.Budget(seconds=3)).wait().trace


RUNS = {
    "straggler": lambda: run_of(lk.AsyncPS(), slow={"worker-2": 5}),
    "pipeline": lambda: run_of(lk.Pipeline(micro_batches=1), hidden=(16, 16, 16)),
    "links": lambda: run_of(lk.SyncPS(), bandwidth=1e6),
    "ring": lambda: run_of(lk.RingAllReduce(), data="moons", hidden=(8,)),
    "buckets": lambda: run_of(lk.BucketedAllReduce(), hidden=(16, 16, 16), bandwidth=1e5),
}


@pytest.fixture(scope="module")
def drawn(context):
    """`drawn(colours, theme)`: the colours that the browser draws for those of display lists."""
    tab = context.new_page()
    tab.add_script_tag(content=re.sub(r"^export ", "", DRAWING.read_text(), flags=re.MULTILINE))

    def themed(colours, theme):
        return tab.evaluate("([all, dark]) => all.map(one => dark ? darkColour(one) : one)", [colours, theme == "dark"])

    yield themed
    tab.close()


def shapes(panel):
    """The parts of the panel's picture: (points, fill, edge, width of the edge) of each."""
    width, height = panel.size
    recorded = DisplayList(width, height).add(panel.axes.get_children())
    found = []
    for one in recorded.instructions:
        if one["do"] in ("shapes", "curve", "markers"):
            at = one["at"]
            for i, count in enumerate(one["n"] if one["do"] == "shapes" else [len(one["codes"])]):
                style = [
                    each[i % len(each)] if isinstance(each, list) and each else each or ""
                    for each in (one["fill"], one["edge"], one["width"])
                ]
                found.append((recorded.points[at : at + count], *style))
                at += count
    return found


def contrast(colour, theme):
    """How much a colour differs from the page: the distance in RGB, with its opacity."""
    return np.abs(np.subtract(to_rgb(colour[:7]), to_rgb(PAPER[theme]))).sum() * int(colour[7:9] or "ff", 16)


def names_of(colour):
    hue, saturation, _ = rgb_to_hsv(to_rgb(colour[:7]))
    if saturation < 0.21:
        return "grey"
    return min(HUES, key=lambda name: abs((360 * hue - HUES[name] + 180) % 360 - 180))


def size_of(points, axis):
    return points[:, axis].max() - points[:, axis].min()


def check(panel, word, meaning, parts, theme):
    """Raise AssertionError if the picture contradicts `word = meaning`. `parts`: as `shapes`, in the colours of the theme."""
    if (word, meaning) == ("faint", "hidden"):  # of the boxes of communication, those of exposed ones have no edge
        boxes = [part for part in parts if part[1] and len(part[0]) >= 4 and names_of(part[1]) == "violet"]
        boxes = [part for part in boxes if part[1][7:9] in ("", "ff")]  # in progress: neither
        own, others = ([contrast(box[1], theme) for box in boxes if bool(box[2]) == edged] for edged in (True, False))
        assert max(own) < min(others), (own, others)
    elif word in ("faint", "strong"):
        boxes = [part for part in parts if part[1] and len(part[0]) >= 4 and names_of(part[1]) == "blue"]
        if meaning in ("forward", "backward"):  # in each stage, a backward pass takes twice as long as a forward pass
            spans, mine = [box for box in boxes if box[2]], []
            for row in {box[0][:, 1].min() for box in spans}:
                stage = {i: size_of(box[0], 0) for i, box in enumerate(spans) if box[0][:, 1].min() == row}
                middle = (min(stage.values()) + max(stage.values())) / 2
                mine += [spans[i] for i, wide in stage.items() if (wide > middle) == (meaning == "backward")]
        else:  # the bar of what is received is above that of what is sent
            order = sorted(boxes, key=lambda box: box[0][:, 1].min())
            spans, mine = order, order[meaning != "in" :: 2]
        others = [contrast(box[1], theme) for box in spans if not any(box is one for one in mine)]
        own = [contrast(box[1], theme) for box in mine]
        assert min(own) > max(others) if word == "strong" else max(own) < min(others), (own, others)
    elif word == "thin":
        lines = [
            part[3] for part in parts if part[2] and not part[1] and names_of(part[2]) == "blue" and len(part[0]) > 9
        ]
        assert sorted(lines)[0] < sorted(lines)[-1] / 1.5
    else:
        assert word in {names_of(colour) for part in parts for colour in part[1:3] if colour}


@pytest.mark.parametrize("kind", RUNS)
def test_colours_that_captions_name_are_those_that_are_drawn(kind, drawn):
    record, named, wrong = RUNS[kind](), set(), []
    for name in PANELS:
        panel = make_panel(name)
        bare_figure(panel)
        panel.update(record)
        panel.axes.apply_aspect()
        caption = panel.caption(record)
        wrong += [f"{name}: {caption}" for _ in THEMED.findall(caption)]
        light = shapes(panel)
        for theme in PAPER:
            colours = [drawn([c for c in part[1:3] if c], theme) for part in light]
            parts = [
                (points, *((found.pop(0) if c else "") for c in (fill, edge)), width)
                for (points, fill, edge, width), found in zip(light, colours)
            ]
            for word, meaning in NAMED.findall(caption):
                named.add((name, word))
                try:
                    check(panel, word, meaning, parts, theme)
                except AssertionError as error:
                    wrong.append(f"{name}, {theme}: {word} = {meaning}. {error}")
    assert wrong == []
    assert {("timeline", "green"), ("topology", "blue")} & named
