"""Ask the model: what it predicts for drawn, chosen and given samples, at the displayed time, on all kinds of data."""

from __future__ import annotations

import contextlib
import re

import numpy as np
import pytest
from PIL import Image, ImageDraw

import labkit as lk
from labkit.lab.handwriting import drawn, inked_box
from labkit.lab.page import content
from tests.models.own_models import Linear

CLUSTER = lk.SimulatedCluster(workers=4)


def arc(x, y, across, down, begin, end):
    """Points of a part of an ellipse, angles in degrees."""
    angles = np.radians(np.linspace(begin, end, 24))
    return [*zip(x + across * np.cos(angles), y + down * np.sin(angles))]


# how a hand draws the digits, as lines through points of a unit square
DIGITS = (
    [arc(0.5, 0.5, 0.22, 0.35, -90, 270)],
    [[(0.38, 0.3), (0.52, 0.15), (0.52, 0.85)]],
    [[*arc(0.5, 0.33, 0.2, 0.18, -180, 40), (0.3, 0.85), (0.72, 0.85)]],
    [[*arc(0.48, 0.32, 0.2, 0.17, -160, 90), *arc(0.48, 0.67, 0.22, 0.19, -90, 160)]],
    [[(0.5, 0.15), (0.28, 0.6), (0.75, 0.6)], [(0.62, 0.35), (0.62, 0.85)]],
    [[(0.68, 0.15), (0.36, 0.15), (0.34, 0.45), *arc(0.48, 0.63, 0.22, 0.22, -120, 140)]],
    [[(0.6, 0.13), (0.42, 0.35), *arc(0.49, 0.65, 0.18, 0.2, -180, 180)]],
    [[(0.28, 0.15), (0.72, 0.15), (0.45, 0.85)], [(0.36, 0.5), (0.66, 0.5)]],
    [arc(0.5, 0.32, 0.17, 0.17, 90, 450), arc(0.5, 0.68, 0.2, 0.19, -90, 270)],
    [[*arc(0.5, 0.33, 0.18, 0.18, 0, 360), (0.68, 0.33), (0.62, 0.85)]],
)


def sent(strokes):
    """Strokes as the browser sends them."""
    return {"strokes": [np.ravel(stroke).tolist() for stroke in strokes]}


def open_lab(problem, strategy="sync-ps", updates=60, cluster=CLUSTER, **more):
    return lk.Lab(problem, strategy, cluster, lk.Budget(updates=updates), **more)


@pytest.fixture(scope="module")
def trained():
    """A lab whose run on the digits is over."""
    with open_lab("digits", lk.SyncPS(learning_rate=0.5), updates=400) as lab:
        yield lab.run().wait()


@pytest.fixture
def digits(trained):
    """The same lab, in its present, with a question."""
    trained.live().ask(0)
    return trained


# the drawing --------------------------------------------------------------------------------------------------------------


def pillow(lines, pen, fine=64):
    """Shares of ink in 8 x 8 pixels of lines in pixels, on 4 x 4 cells each; `pen`: half the width, `fine`: dots of a pixel."""
    picture = Image.new("L", (8 * fine, 8 * fine))
    pencil = ImageDraw.Draw(picture)
    for line in lines:
        pencil.line([tuple(point) for point in fine * line], fill=1, width=round(2 * pen * fine), joint="curve")
        for x, y in line:
            pencil.ellipse([fine * (x - pen), fine * (y - pen), fine * (x + pen), fine * (y + pen)], fill=1)
    centres = np.array(picture)[fine // 8 :: fine // 4, fine // 8 :: fine // 4]
    return centres.reshape(8, 4, 8, 4).mean(axis=(1, 3))


@pytest.mark.parametrize("digit", range(10))
def test_a_drawing_is_what_pillow_draws_in_the_same_box(digit):
    pen, lines = 0.68, [np.array(stroke) for stroke in DIGITS[digit]]
    points = np.concatenate(lines)
    low, high = points.min(axis=0), points.max(axis=0)
    scale = min((6 - 2 * pen) / (high - low)[0], (8 - 2 * pen) / (high - low)[1])
    placed = [(line - (low + high) / 2) * scale + 4 for line in lines]
    found = drawn(lines, (8, 8), (0.0, 1.0, 8.0, 6.0))
    assert (pillow(placed, pen - 0.04) <= found).all()  # Pillow rounds to whole dots
    assert (found <= pillow(placed, pen + 0.04)).all()


def test_place_and_size_of_a_drawing_do_not_matter():
    three = [np.array(stroke) for stroke in DIGITS[3]]
    small = [0.5 * stroke + 0.1 for stroke in three]
    box = (0.0, 1.0, 8.0, 6.0)
    assert np.abs(drawn(three, (8, 8), box) - drawn(small, (8, 8), box)).max() <= 1 / 16
    assert drawn([], (8, 8), box).sum() == 0
    dot = drawn([np.array([[0.9, 0.1]])], (8, 8), box)
    assert 0.5 < dot.sum() < 2  # a dot stays one: pi 0.68^2 pixels


def test_drawings_have_the_numbers_of_the_training_data(digits):
    data = digits.settings.problem.dataset
    held_out, ink = data.raw(data.x_test), []
    for strokes in DIGITS:
        digits.inquiry.receive(sent(strokes))
        drawing = digits.inquiry.answer().sample
        assert drawing.shape == (64,)
        assert set(drawing) <= set(range(17))
        assert drawing.max() == 16
        ink.append(drawing.mean())
    assert np.mean(ink) == pytest.approx(held_out.mean(), rel=0.1)
    box = inked_box(held_out.reshape(-1, 8, 8) / 16)
    assert box == (0.0, 1.0, 8.0, 6.0)  # the columns at the sides are nearly empty


def test_most_drawn_digits_are_recognised(digits):
    said = []
    for strokes in DIGITS:
        digits.inquiry.receive(sent(strokes))
        said.append(digits.inquiry.answer().predicted)
    assert sum(answer == str(digit) for digit, answer in enumerate(said)) >= 8, said


def test_pictures_of_dark_ink_in_a_frame_and_in_colour_can_be_drawn():
    rng = np.random.default_rng(0)
    pictures = np.full((60, 12, 10, 3), 200.0)
    labels = np.arange(60) % 2
    for picture, label in zip(pictures, labels):
        picture[3:9, 4 + label : 6 + label] = rng.uniform(0, 20, size=3)
    with open_lab(lk.Problem(lk.from_arrays(pictures, labels))) as lab:
        lab.run().wait()
        lab.inquiry.receive(sent([[(0.5, 0.2), (0.5, 0.8)]]))
        answer = lab.inquiry.answer()
    picture = answer.sample.reshape(12, 10, 3)
    assert (picture[:3] == 200).all()  # ink is where it is in the data
    assert (picture[9:] == 200).all()
    assert picture.min() < 40
    assert (picture == picture[..., :1]).all()


# answers ------------------------------------------------------------------------------------------------------------------


def test_the_answer_is_that_of_the_predictor(digits):
    model, data = digits.latest.result(), digits.settings.problem.dataset
    raw = data.raw(data.x_test)
    for number in (0, 7, np.int64(358)):
        answer = digits.ask(number)
        assert np.array_equal(answer.values, model.predict_proba(raw[number])[0])
        assert answer.predicted == str(model.predict(raw[number])[0])
        assert (answer.truth, answer.held_out, answer.update) == (data.y_test[number], number, model.update)
        assert f"held-out sample {number + 1} of 359, class {data.y_test[number]}" in str(answer)
    shown = digits.ask(raw[5].reshape(8, 8))
    assert np.array_equal(shown.values, model.predict_proba(raw[5])[0])
    assert (shown.held_out, shown.truth) == (None, None)
    assert digits.view().model_answer is shown


def test_the_answer_follows_the_run_and_the_displayed_time():
    with open_lab("digits", updates=10_000) as lab:
        with pytest.raises(lk.BadInput, match=re.escape("ask: There is no model yet: press Run.")):
            lab.ask(3)
        run = lab.run().pause().latest
        found = []
        for _ in range(3):
            before = len(run.trace.column("evaluations", "update"))
            run.wait_for(lambda run, before=before: len(run.trace.column("evaluations", "update")) > before)
            found.append(lab.view().model_answer)
        assert [answer.update for answer in found] == sorted({answer.update for answer in found})
        assert not np.array_equal(found[0].values, found[2].values)
        assert found[2].update == run.result().update
        lab.seek(found[2].time / 2)
        earlier = lab.view().model_answer
        assert "are not kept, only the newest: of update" in earlier.problem
        assert (earlier.values, earlier.update) == (None, None)
        with pytest.raises(lk.BadInput, match="Back to live asks them"):
            lab.ask(3)
        assert lab.live().ask(3).update == found[2].update


def test_an_earlier_run_that_is_shown_again_answers_with_its_own_weights():
    with open_lab("digits", updates=20) as lab:
        first = lab.run().wait().ask(1)
        second = lab.set(learning_rate=0.9).run().wait().ask(1)
        assert not np.array_equal(first.values, second.values)
        lab.show_run(1)
        assert np.array_equal(lab.ask(1).values, first.values)


def test_nothing_is_computed_before_it_is_asked_and_after_it_is_closed(digits, monkeypatch):
    digits.inquiry.receive({"open": False})
    monkeypatch.setattr(type(digits.latest), "predictor", None)
    monkeypatch.setattr(type(digits.latest), "result", None)
    assert digits.view().model_answer is None
    assert content.ask(digits.view()) == {"open": False}


PROBLEMS = {
    "moons": "plane", "linear-regression": "values", "clicks": "values", "digits": "picture",
}  # fmt: skip


@pytest.mark.parametrize("data", PROBLEMS)
def test_each_data_set_has_a_sample_at_once_and_takes_one_of_the_user(data):
    with open_lab(data) as lab:
        answer = lab.run().wait().ask()
        model, dataset = lab.latest.result(), lab.settings.problem.dataset
        raw = dataset.raw(dataset.x_test)
        assert np.array_equal(answer.sample, raw[0])
        assert answer.inputs.kind == PROBLEMS[data]
        values = raw[3:6].mean(axis=0) if raw.dtype.kind == "f" else raw[3]
        own = lab.ask(values)
        outputs = model.predict_proba(values) if dataset.classes else model.predict(values[None])
        assert np.array_equal(own.values, np.ravel(outputs))
        section = content.ask(lab.view())
        assert section["bars"][0]["name"] == ("value" if dataset.classes is None else "0")
        assert section["kind"] == PROBLEMS[data]


def test_names_of_classes_features_and_targets_are_shown():
    x = np.random.default_rng(1).normal(size=(80, 3))
    named = lk.from_arrays(x, np.where(x[:, 0] > 0, "up", "down"))
    with open_lab(lk.Problem(named)) as lab:
        answer = lab.run().wait().ask(2)
        assert answer.names == ("down", "up")
        assert answer.right in ("class down", "class up")
        best = [bar for bar in content.ask(lab.view())["bars"] if bar["best"]]
        assert [bar["name"] for bar in best] == [answer.predicted]
    several = lk.from_arrays(x, x @ np.ones((3, 2)) * 50 + 1000)
    with open_lab(lk.Problem(several)) as lab:
        answer = lab.run().wait().ask(2)
        assert answer.names == ("value 1", "value 2")
        assert answer.predicted is None
        assert np.array_equal(answer.truth, several.raw_targets(several.y_test[2]))
        assert np.abs(answer.values - 1000).max() < 500  # in the unit of the source


def test_of_many_classes_the_most_probable_ones_are_shown():
    x = np.random.default_rng(2).normal(size=(400, 5))
    with open_lab(lk.Problem(lk.from_arrays(x, np.arange(400) % 40, classes=40)), updates=5) as lab:
        answer = lab.run().wait().ask(0)
        shown = [bar["share"] for bar in content.ask(lab.view())["bars"]]
    assert shown == sorted(answer.values, reverse=True)[:12]


def test_data_on_a_cluster_are_asked_by_their_values():
    da = pytest.importorskip("dask.array")
    x = np.random.default_rng(3).normal(size=(100, 3))
    data = lk.from_dask(
        da.from_array(x, chunks=(50, 3)), da.from_array((x[:, 0] > 0).astype(int), chunks=50), classes=2
    )
    with open_lab(lk.Problem(data)) as lab:
        lab.run().wait()
        with pytest.raises(lk.BadInput, match="none are in memory"):
            lab.ask(0)
        assert np.array_equal(lab.ask(x[0]).values, lab.latest.result().predict_proba(x[0])[0])
        lab.inquiry.receive({"open": True})
        assert content.ask(lab.view())["held_out"] == 0


# what has no answer -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("problem", "strategy", "said"),
    [
        (lk.Problem("digits", timing_only=True), lk.SyncPS(), "it is timing only"),
        (lk.Problem("linear-regression"), lk.SyncPS(learning_rate=10.0), "not finite: the training diverges"),
        (lk.Problem("digits", model=Linear(), dtype="float64"), lk.SyncPS(), "Linear.scores raised RuntimeError: no single"),
    ],
)  # fmt: skip
def test_without_an_answer_the_page_says_why(problem, strategy, said, monkeypatch):
    def scores(self, p, x):
        raise RuntimeError("no single samples")

    with open_lab(problem, strategy, updates=300) as lab:
        with contextlib.suppress(lk.LabkitError):  # the run that diverges
            lab.run().wait()
        monkeypatch.setattr(Linear, "scores", scores)
        lab.inquiry.receive({})
        section = content.ask(lab.view())
        assert said in section["problem"]
        assert section["bars"] == []
        with pytest.raises(lk.LabkitError, match=re.escape(said)):
            lab.ask(0)


def test_what_does_not_fit_the_data_is_refused_and_changes_nothing(digits):
    before = digits.ask(4)
    for sample, said in (
        (359, "is 0 to 358"), (-1, "is 0 to 358"), ([1.0, 2.0], "a sample of digits has 64 numbers"), ("x", "real numbers"),
        (True, "has 64 numbers"), (np.full(64, np.nan), "not finite"), (None, "real numbers"),
    ):  # fmt: skip
        with pytest.raises(lk.BadInput, match=re.escape(said)):
            digits.ask(sample)
    assert digits.view().model_answer is before


def test_a_closed_lab_answers_nothing():
    lab = open_lab("moons").run().wait()
    lab.ask(0)
    lab.close()
    assert lab.view().model_answer is None
    with pytest.raises(lk.BadInput, match="closed"):
        lab.ask(0)


# the browser --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def browser(browsers):
    """A lab with a paused run on the moons, and its browser."""
    lab = open_lab("moons", updates=1000).run().pause()
    lab.latest.wait_for(lambda run: len(run.trace.column("evaluations", "update")) > 0)
    (found,) = (each for each in browsers.values() if "toolbar" in each.state)
    yield lab, found
    lab.close()


def test_a_question_of_the_browser_is_answered_at_once(browser):
    lab, page = browser
    assert page.state["ask"] == {"open": False}
    page.send_to_kernel(do="ask", number=1, given={"open": True})
    assert (page.state["ask"]["kind"], page.state["ask"]["number"]) == ("plane", 0)
    page.send_to_kernel(do="ask", number=2, given={"values": [0.25, 0.5]})
    section = page.state["ask"]
    expected = lab.latest.result().predict_proba([[0.25, 0.5]])[0]
    assert [bar["share"] for bar in section["bars"]] == expected.tolist()
    assert (section["values"], section["number"], section["title"]) == ([0.25, 0.5], None, "your sample")
    assert len(section["points"]) == len(section["labels"]) == 200
    page.send_to_kernel(do="ask", number=3, given={"open": False})
    assert page.state["ask"] == {"open": False}
    assert [answer["number"] for answer, _ in page.take("answer")] == [1, 2, 3]


@pytest.mark.parametrize(
    "given",
    [
        None, 3, "x", [], {"sample": "x"}, {"sample": 10**9}, {"sample": None}, {"values": 3}, {"values": ["x"]}, {"values": []},
        {"values": [1e999, 0]}, {"strokes": 3}, {"strokes": [[1]]}, {"strokes": [[[1, 2]]]}, {"strokes": [[0.1, 0.2]]},
        {"strokes": [["x", "y"]]}, {"ink": [1.0, 0.0]}, {"ink": "x"},
    ],
)  # fmt: skip
def test_a_malformed_question_is_answered_and_changes_nothing(browser, caplog, given):
    _, page = browser
    page.send_to_kernel(do="ask", number=1, given={"values": [0.25, 0.5]})
    before = page.state["ask"]
    page.send_to_kernel(do="ask", number=2, given=given)
    page.send_to_kernel(do="ask", number=3)
    page.send_to_kernel(do="ask", number=4, given={})
    assert page.state["ask"] == before
    assert [answer["number"] for answer, _ in page.take("answer")] == [1, 2, 3, 4]
    assert not caplog.records  # where ipywidgets reports an exception


def test_strokes_that_no_pen_draws_are_refused(digits):
    for stroke in ([0.1, float("inf")], [0.5] * 300_000):
        with pytest.raises(ValueError, match="no pen has drawn"):
            digits.inquiry.receive({"strokes": [stroke]})
    digits.inquiry.receive({"strokes": []})
    assert digits.inquiry.answer().sample.sum() == 0
    digits.inquiry.receive({"ink": [1.0, *[0.0] * 63]})
    assert digits.inquiry.answer().sample.tolist() == [16.0, *[0.0] * 63]
