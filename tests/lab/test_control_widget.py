"""Controls of a lab as ipywidgets: bound in both directions. `set_state` is what a message of the browser calls."""

from __future__ import annotations

import ipywidgets
import pytest

import labkit as lk


@pytest.fixture
def lab():
    one = lk.Lab(controls=()).set(engine="simulated", seconds=1, workers=3)
    yield one
    one.close()


def labels(widget):
    """The labels of a widget with choices, and the chosen one."""
    return list(widget.options), widget.options[widget.index]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("strategy", ipywidgets.Dropdown), ("workers", ipywidgets.SelectionSlider), ("learning_rate", ipywidgets.HBox),
        ("staleness_aware", ipywidgets.Checkbox), ("seed", ipywidgets.Text),
    ],
)  # fmt: skip
def test_each_kind_of_setting_has_a_widget(lab, name, kind):
    assert isinstance(lab.control(name), kind)


def test_a_choice_changes_the_setting(lab):
    strategy, workers, aware, seed = map(lab.control, ("strategy", "workers", "staleness_aware", "seed"))
    workers.set_state({"index": list(workers.options).index("8")})
    aware.set_state({"value": True})
    seed.set_state({"value": " 11 "})
    strategy.set_state({"index": list(strategy.options).index("SSP")})
    assert [lab.settings.value(name) for name in ("workers", "seed")] == [8, 11]
    assert type(lab.settings.strategy) is lk.SSP
    strategy.set_state({"index": list(strategy.options).index("AsyncPS")})
    assert labels(strategy)[1] == "AsyncPS"


def test_a_changed_setting_changes_the_widget(lab):
    workers, accuracy, seed, rate = map(lab.control, ("workers", "accuracy", "seed", "learning_rate"))
    lab.set(workers=7, accuracy=0.95, seed=5, learning_rate=0.25)
    assert labels(workers)[0][5:8] == ["6", "7", "8"]  # 7 is not offered otherwise
    assert labels(workers)[1] == "7"
    assert labels(accuracy)[1] == "95%"
    assert seed.value == "5"
    slider, text = rate.children
    assert (slider.value, text.value) == (pytest.approx(0.25), "0.25")
    lab.undo()
    assert labels(workers)[1] == "3"
    lab.play("slow-worker")
    assert labels(workers)[1] == str(lab.settings.value("workers"))


def test_a_number_is_chosen_with_a_slider_or_typed(lab):
    slider, text = lab.control("learning_rate").children
    slider.set_state({"value": 0.0316227766})
    assert (lab.settings.value("learning_rate"), text.value) == (0.0316, "0.0316")
    text.set_state({"value": "5e-4"})  # below the range of the slider, and allowed
    assert lab.settings.value("learning_rate") == 0.0005
    assert (slider.value, text.value) == (slider.base**slider.min, "0.0005")


@pytest.mark.parametrize("typed", ["-5", "1e99", "fast"])
def test_a_value_that_is_not_allowed_is_refused_with_a_message(lab, typed):
    slider, text = lab.control("learning_rate").children
    before = lab.settings.value("learning_rate")
    text.set_state({"value": typed})
    assert lab.settings.value("learning_rate") == before
    assert text.value == str(before)
    assert "learning_rate" in lab.view().problem
    text.set_state({"value": "0.2"})
    assert lab.view().problem == ""
    assert slider.value == pytest.approx(0.2)


def test_a_live_setting_affects_the_present_run(lab):
    _, text = lab.control("learning_rate").children
    lab.set(seconds=30).run().pause()
    text.set_state({"value": "0.2"})
    lab.stop()
    assert lab.latest.engine.roles["worker-0"].strategy.learning_rate == 0.2


def test_two_widgets_of_a_setting_show_the_same_value(lab):
    one, two = lab.control("workers"), lab.control("workers")
    one.set_state({"index": list(one.options).index("16")})
    assert labels(one) == labels(two)
    assert labels(two)[1] == "16"


def test_a_widget_is_disabled_while_its_setting_has_no_effect_and_after_the_end(lab):
    lab.set(strategy="ssp", s=4)
    bound = lab.control("s")
    assert not bound.disabled
    lab.set(strategy="async-ps")
    assert bound.disabled
    lab.set(strategy="ssp", s=2)
    assert not bound.disabled
    assert labels(bound)[1] == "2"
    lab.close()
    assert bound.disabled
    with pytest.raises(lk.BadInput, match="closed"):
        lab.control("workers")


def test_names_without_a_control_are_refused(lab):
    with pytest.raises(lk.BadInput, match="workers"):
        lab.control("workres")
    with pytest.raises(lk.BadInput, match="updates=") as refused:
        lab.control("updates")
    assert "no control" in str(refused.value)
    lab.set(strategy="async-ps")
    with pytest.raises(lk.BadInput):
        lab.control("s")
