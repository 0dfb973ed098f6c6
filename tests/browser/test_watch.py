"""`run.watch()` in a real JupyterLab: the figure moves, buttons act, a tab can be closed and opened again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SIMULATED = """
import labkit as lk
slow = lk.SimulatedCluster(workers=3, compute=lk.distributions.Deterministic(0.1))
run = lk.train(lk.Problem("digits", hidden=(16,)), lk.AsyncPS(), slow, lk.Budget(seconds=600)).advance(0)
watch = run.watch(speed=1.0)
watch
"""
LABELS = "[...document.querySelectorAll('.jp-OutputArea button')].map(button => button.innerText)"


def labelled(word):
    """JavaScript: whether a button with this label exists."""
    return f"{LABELS}.some(label => label.includes('{word}'))"


@pytest.fixture(scope="module")
def shared(notebook):
    """A notebook with a cell for a run in virtual time that is watched at the speed of the clock."""
    return notebook([SIMULATED, "import threading\nthreading.Event().wait()"])


@pytest.fixture
def simulated(shared):
    """Such a run."""
    shared.run_and_wait(0)
    shared.await_panels(least=5)
    return shared


def test_a_simulated_run_moves(simulated):
    assert len(simulated.drawn) >= 5
    simulated.await_drawings(3)
    for panel in ("timeline", "staleness", "throughput"):
        simulated.await_drawings(1, f'[data-panel="{panel}"] canvas')
    simulated.screenshot("watch-simulated")


def test_pause_is_acknowledged_and_the_figure_stands_still(simulated):
    for before, after in [("Pause", "Resume"), ("Resume", "Pause"), ("Pause", "Resume")]:
        simulated.acknowledged(simulated.button(before).click, labelled(after))
    simulated.await_still("watch")  # the last pictures have been drawn
    at, drawn = simulated.kernel("run.trace.watermark()"), simulated.drawn
    simulated.await_still("watch")
    assert (simulated.kernel("run.trace.watermark()"), simulated.drawn) == (at, drawn)


def test_stop_acts_while_a_cell_runs(simulated):
    simulated.run(1)
    simulated.button("Stop").click()
    simulated.await_kernel("run.stopped_by == 'user'")
    assert simulated.prompt(1) == "*"
    simulated.interrupt()
    with pytest.raises(AssertionError, match="KeyboardInterrupt"):
        simulated.wait_idle(1)


def test_running_the_cell_again_leaves_one_watch_and_no_thread_more(simulated):
    threads = len(simulated.threads())
    for _ in range(2):
        simulated.run_and_wait(0)
        simulated.await_panels(least=5)
    assert simulated.lab().count() == 1
    mine = "[t for t in __import__('threading').enumerate() if t.name.startswith('labkit')]"
    simulated.await_kernel(f"len({mine}) == {threads}")


def test_a_closed_tab_ends_the_drawing_thread_and_a_saved_notebook_works_in_a_new_tab(simulated):
    simulated.save()
    simulated.close_tab()
    simulated.await_kernel("not [t for t in __import__('threading').enumerate() if t.name.startswith('labkit-page')]")
    simulated.reopen()
    simulated.await_panels(least=5)
    simulated.await_drawings(2)
    simulated.acknowledged(simulated.button("Pause").click, labelled("Resume"))


def test_the_figure_fits_the_page_at_every_width_and_in_both_themes(simulated):
    lab, over = simulated.lab(), {}
    for width in (940, 1280, 1600):
        simulated.resize(width)
        over[width] = lab.evaluate("it => it.scrollWidth - it.clientWidth")
        for shade in ("light", "dark") if simulated.shade == "light" else ("dark", "light"):
            simulated.theme(shade)
            simulated.screenshot(f"watch-{width}-{shade}")
    assert over == {940: 0, 1280: 0, 1600: 0}


def test_the_state_of_page_and_kernel_for_the_report_of_a_failure(simulated):
    simulated.page.evaluate("() => { console.error('for the report'); }")
    state = simulated.state("state")
    simulated.forgive()
    screenshot = re.search("screenshot: (.*)", state)
    assert Path(screenshot[1]).is_file()
    for part in ("last messages: ", "console: for the report", "watch: state 'running', problem ''"):
        assert part in state
