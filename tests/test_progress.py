"""Progress of a run, and the bar that `run.wait()` shows: with a recorded bar, a recorded console, and a simulated kernel."""

import io
import re
import sys
import threading
from types import SimpleNamespace

import pytest
from rich.console import Console

import labkit as lk
from labkit import progress
from labkit.progress import (
    Bar,
    NotebookBar,
    Progress,
    TaskProgress,
    TerminalBar,
    Wait,
    bar_for,
    bar_html,
    budget_limits,
)


class RecordedBar(Bar):
    """Records what is drawn."""

    def __init__(self):
        self.drawn, self.closed = [], False

    def draw(self, name, share, text):
        assert not self.closed
        self.drawn.append((name, share, text))

    def close(self):
        self.closed = True


class PacedEngine:
    """An engine whose time is a fake clock: a wait of x seconds takes exactly x seconds. It makes ten updates per second."""

    def __init__(self, budget, ends=10.0):
        self.run = lk.train("moons", lk.SyncPS(), lk.SimulatedCluster(workers=2, compute=0.1), budget)
        self.plan, self.trace, self.ends = self.run.plan, self.run.engine.trace, ends
        self.seconds, self.stopped_by, self.paused, self.interrupt, self.flushes = 0.0, None, False, None, 0

    def clock(self):
        return self.seconds

    def wait(self, timeout=None):
        if self.interrupt is not None and self.seconds >= self.interrupt:
            raise KeyboardInterrupt
        if timeout is None or self.seconds + timeout >= self.ends:
            self.seconds, self.stopped_by = self.ends, "seconds"
            return
        self.seconds += timeout
        raise TimeoutError

    def flush(self):
        self.flushes += 1
        if self.run.engine.seconds < self.seconds:
            self.run.advance(self.seconds - self.run.engine.seconds)


@pytest.fixture
def bar():
    return RecordedBar()


def waiting(engine, bar):
    return Wait(engine, lambda: bar, engine.clock)


BUDGET = lk.Budget(updates=200, seconds=100)


@pytest.mark.simulated
def test_the_share_is_that_of_the_nearest_limit():
    limits = {"updates": 100.0, "seconds": 10.0}
    assert Progress(20, 640, 1.0, 0.9, limits).share == 0.2
    assert Progress(20, 640, 5.0, 0.9, limits).share == 0.5
    assert Progress(300, 640, 5.0, 0.9, limits).share == 1.0
    assert Progress(20, 640, 1.0, 0.9, {**limits, "accuracy": 0.95}).share == 0.2  # accuracy does not grow evenly
    assert Progress(20, 640, 1.0, 0.475, {"accuracy": 0.95}).share == 0.5
    assert Progress(20, 640, 1.0, None, {"accuracy": 0.95}).share is None
    assert Progress(20, 640, 1.0, None, {}).share is None


@pytest.mark.simulated
def test_numbers_are_shown_with_their_limits():
    limits = {"updates": 1000.0, "samples": 5000.0, "seconds": 10.0, "accuracy": 0.955}
    made = Progress(20, 640, 2.0, 0.9, limits)
    texts = ["20 of 1,000 updates", "640 of 5,000 samples", "accuracy 90.0% of 95.5%", "2.0 of 10 s"]
    assert made.numbers == [*texts[:2], "10 updates/s", *texts[2:]]
    assert sorted(made.limited) == sorted(texts)
    assert Progress(0, 0, 0.0, None, {}).numbers == ["0 updates", "0.0 s"]


@pytest.mark.simulated
def test_progress_is_read_from_the_trace():
    run = lk.train("moons", lk.SyncPS(), lk.SimulatedCluster(workers=2, compute=0.1), lk.Budget(epochs=2)).advance(1.0)
    made = Progress.of(run.trace, budget_limits(run.plan))
    assert (made.updates, made.samples, made.seconds) == (10, 10 * 2 * 32, 1.0)
    assert made.limits == {"samples": 1600.0}
    assert made.share == 640 / 1600
    assert made.accuracy == run.summary()["accuracy"]


@pytest.mark.simulated
def test_a_short_wait_shows_no_bar(bar):
    engine = PacedEngine(BUDGET, ends=0.4)
    with waiting(engine, bar) as wait:
        wait.wait()
    assert bar.drawn == []
    assert engine.flushes == 0  # a short wait does not touch the run


@pytest.mark.simulated
def test_a_bar_is_drawn_four_times_per_second_and_ends_with_the_final_state(bar):
    engine = PacedEngine(BUDGET)
    with waiting(engine, bar) as wait:
        wait.wait()
        drawn = len(bar.drawn)
    assert drawn == (10 - 0.5) / 0.25  # after 0.5 s, 0.75 s, ..., 9.75 s
    assert bar.closed
    name, share, text = bar.drawn[0]
    assert (name, share) == ("SyncPS", 5 / 200)
    assert text.startswith("2% · 5 of 200 updates · 10 updates/s · accuracy ")
    assert text.endswith("0.5 of 100 s")  # no estimate yet
    assert bar.drawn[2][2].startswith("5% · 19 s left · 10 of 200 updates")  # 190 of 200 updates, 10 per second
    assert bar.drawn[-1][2].startswith("50% · ended: seconds · 100 of 200 updates")


@pytest.mark.simulated
def test_with_a_target_accuracy_the_time_left_is_an_upper_limit(bar):
    with waiting(PacedEngine(lk.Budget(seconds=100, accuracy=1.0)), bar) as wait:
        wait.wait()
    assert bar.drawn[2][2].startswith("1% · at most 1 min 39 s left · 10 updates")


@pytest.mark.simulated
def test_a_paused_run_shows_no_time_left(bar):
    engine = PacedEngine(BUDGET)
    engine.paused = True
    with waiting(engine, bar) as wait, pytest.raises(TimeoutError):
        wait.wait(2.0)
    assert bar.drawn[2][2].startswith("5% · paused · 10 of 200 updates")


@pytest.mark.simulated
def test_a_slow_drawing_is_repeated_less_often():
    engine, times = PacedEngine(BUDGET), []

    class SlowBar(RecordedBar):
        def draw(self, name, share, text):
            times.append(engine.seconds)
            engine.seconds += 0.05

    with Wait(engine, SlowBar, engine.clock) as wait:
        wait.wait()
    assert times[1] - times[0] == pytest.approx(20 * 0.05 + 0.05)


@pytest.mark.simulated
@pytest.mark.parametrize("timeout", [0.0, 0.3, 0.5, 2.1])
def test_the_timeout_is_kept(bar, timeout):
    engine = PacedEngine(BUDGET)
    with waiting(engine, bar) as wait, pytest.raises(TimeoutError, match=f"after {timeout:g} s; it goes on"):
        wait.wait(timeout)
    assert engine.seconds == pytest.approx(timeout)
    assert "ended" not in "".join(text for *_, text in bar.drawn)


@pytest.mark.simulated
def test_ctrl_c_stops_the_run_and_the_bar_shows_that(monkeypatch, bar):
    run = lk.train("moons", lk.SyncPS(), lk.SimulatedCluster(workers=2, compute=0.1), lk.Budget(updates=10**9)).advance(
        1
    )
    monkeypatch.setattr(progress, "FIRST_S", 0.0)
    monkeypatch.setattr("labkit.run.bar_for", lambda progress: lambda: bar)
    wait, calls = type(run.engine).wait, []

    def interrupted(self, timeout=None):
        if self.stopped_by is None and timeout is not None:
            calls.append(timeout)
            if len(calls) == 3:
                raise KeyboardInterrupt
        return wait(self, timeout)

    monkeypatch.setattr(type(run.engine), "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run.wait()
    assert run.stopped_by == "interrupted"
    assert bar.closed
    assert " · ended: interrupted · " in bar.drawn[-1][2]


@pytest.mark.simulated
def test_the_bar_does_not_change_a_run(monkeypatch, bar):
    def parameters():
        cluster = lk.SimulatedCluster(workers=3, compute=lk.distributions.Exponential(0.1))
        run = lk.train("moons", lk.AsyncPS(), cluster, lk.Budget(updates=300))
        return run.wait().result().parameters.tobytes(), run.summary().to_dict()

    plain = parameters()
    monkeypatch.setattr(progress, "FIRST_S", 0.0)
    monkeypatch.setattr(progress, "INTERVAL_S", 0.002)
    monkeypatch.setattr(progress, "COST", 0)
    monkeypatch.setattr("labkit.run.bar_for", lambda progress: lambda: bar)
    assert parameters() == plain
    assert len(bar.drawn) > 1


@pytest.mark.simulated
def test_a_failed_run_closes_the_bar_and_raises(monkeypatch, bar):
    async def broken(self, ctx, model):
        await ctx.sleep(1.0)
        raise ValueError("a broken worker")

    monkeypatch.setattr(lk.AsyncPS, "worker", broken)
    monkeypatch.setattr(progress, "FIRST_S", 0.0)
    monkeypatch.setattr("labkit.run.bar_for", lambda progress: lambda: bar)
    run = lk.train("moons", lk.AsyncPS(), lk.SimulatedCluster(workers=2), lk.Budget(seconds=10))
    with pytest.raises(lk.RoleError, match="a broken worker"):
        run.wait()
    assert bar.closed or not bar.drawn


@pytest.mark.dask
def test_a_run_on_processes_with_a_bar(monkeypatch, bar):
    monkeypatch.setattr(progress, "FIRST_S", 0.0)
    monkeypatch.setattr("labkit.run.bar_for", lambda progress: lambda: bar)
    with lk.DaskCluster(workers=2, servers=1, pace=0.02) as cluster:
        run = lk.train("moons", lk.AsyncPS(), cluster, lk.Budget(updates=60)).wait()
    assert bar.closed
    assert bar.drawn[-1][1] == 1.0
    assert bar.drawn[-1][2].startswith(f"100% · ended: 60 updates done · {run.summary()['updates']} of 60 updates")


# which bar ------------------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self):
        return True


def kernel(monkeypatch, **content):
    """Make this process look like a Jupyter kernel that executes a request with this content."""
    shell = SimpleNamespace(kernel=SimpleNamespace(get_parent=lambda channel: {"content": content}))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))


def test_a_bar_is_shown_in_terminals_only(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert bar_for(None) is None
    assert bar_for(True) is TerminalBar
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert bar_for(None) is TerminalBar
    assert bar_for(False) is None
    monkeypatch.setattr(sys, "stderr", None)  # as with pythonw
    assert bar_for(None) is None


def test_a_bar_is_shown_in_notebooks_that_a_person_uses(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    kernel(monkeypatch, allow_stdin=True)
    assert bar_for(None) is NotebookBar
    assert bar_for(False) is None
    kernel(monkeypatch, allow_stdin=False)  # nbconvert, nbval, papermill
    assert bar_for(None) is None
    assert bar_for(True) is NotebookBar


def test_other_threads_show_no_bar(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    found = []
    thread = threading.Thread(target=lambda: found.extend([bar_for(None), bar_for(True)]))
    thread.start()
    thread.join()
    assert found == [None, TerminalBar]


@pytest.mark.simulated
def test_wait_checks_its_argument():
    run = lk.train("moons", lk.SyncPS(), lk.SimulatedCluster(workers=2), lk.Budget(updates=1))
    with pytest.raises(lk.BadInput, match="progress='yes' is not allowed"):
        run.wait(progress="yes")
    assert run.wait(progress=False).done


# bars -----------------------------------------------------------------------------------------------------------------


def test_a_terminal_shows_name_bar_and_numbers_on_one_line():
    file = Terminal()
    bar = TerminalBar(Console(file=file, force_terminal=True, width=80, color_system=None, legacy_windows=False))
    bar.draw("AsyncPS", 0.25, "25% · [50] of 200 updates")
    bar.draw("AsyncPS", 1.0, "100% · 200 of 200 updates · ended")
    bar.close()
    lines = [
        line.rstrip() for line in re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", file.getvalue())) if line
    ]
    assert all(len(line) <= 80 for line in lines)
    assert any("AsyncPS" in line and "25% · [50] of 200 updates" in line and "━" in line for line in lines)
    assert lines[-1].endswith("100% · 200 of 200 updates · ended")
    assert file.getvalue().rstrip("\x1b[?25h").endswith("\n")  # what is printed next is on its own line


def test_a_file_contains_only_the_final_state():
    file = io.StringIO()
    bar = TerminalBar(Console(file=file, width=80))
    for share in (0.25, 0.5, 1.0):
        bar.draw("AsyncPS", share, f"{share:.0%}")
    bar.close()
    assert [line.split()[-1] for line in file.getvalue().splitlines() if line.strip()] == ["100%"]


def test_a_notebook_has_one_output_that_is_updated(monkeypatch):
    shown, updated = [], []

    def display(data, **options):
        shown.append((data, options))
        return SimpleNamespace(update=lambda data, **options: updated.append((data, options)))

    monkeypatch.setattr("IPython.display.display", display)
    bar = NotebookBar()
    for share in (0.25, 0.5, 1.0):
        bar.draw("<Async>", share, f"{share:.0%}")
    bar.close()
    ((first, options),) = shown
    assert options == {"raw": True, "display_id": True}
    assert first["text/plain"] == "<Async>: 25%"
    assert [data["text/plain"] for data, _ in updated] == ["<Async>: 50%", "<Async>: 100%"]
    assert set(first) == {"text/plain", "text/html"}  # no widget


def test_the_bar_of_a_notebook_is_escaped_and_has_no_colors_of_its_own():
    text = bar_html("<Async>", 0.25, "a & b")
    assert "&lt;Async&gt;" in text
    assert "a &amp; b" in text
    assert "width: 25%" in text
    assert "width: 0%" in bar_html("x", None, "")
    assert not re.search("#[0-9a-f]{3}|rgb", text)


def test_remaining_times_are_rounded_up():
    shown = []
    for seconds in (0.6, 59.5, 60, 3599, 3600, 7322):  # for the first of two tasks, and as many for the other
        now, bar = [0.0], RecordedBar()
        with TaskProgress("sweep", "run", 2, bar=lambda bar=bar: bar, clock=lambda now=now: now[0]) as tasks:
            now[0] = seconds
            tasks.finish()
        shown.append(bar.drawn[0][2].rpartition(" · ")[2])
    assert shown == [
        "1 s left", "1 min 0 s left", "1 min 0 s left", "59 min 59 s left", "1 h 0 min left", "2 h 2 min left",
    ]  # fmt: skip


# tasks ----------------------------------------------------------------------------------------------------------------


def test_tasks_are_counted_with_the_remaining_time(bar):
    now = [0.0]
    with TaskProgress("sweep", "run", 10, 2, bar=lambda: bar, clock=lambda: now[0]) as tasks:
        tasks.draw()
        tasks.finish()
        assert not bar.drawn  # the first half second
        now[0] = 2.0
        tasks.finish()
        assert bar.drawn[-1] == ("sweep", 0.4, "40% · 4 of 10 runs · 6 s left")  # 1 s per task
        now[0] = 2.1
        tasks.finish(failed=True)
        assert len(bar.drawn) == 1  # too early
        now[0] = 3.0
        tasks.draw()
        # 0.7 s per task, 0.9 s of which have passed
        assert bar.drawn[-1][2] == "50% · 5 of 10 runs · 3 s left · 1 failed"
        for _ in range(5):
            tasks.finish()
    assert bar.drawn[-1] == ("sweep", 1.0, "100% · 10 of 10 runs · 1 failed")
    assert bar.closed


def test_without_a_bar_tasks_draw_nothing():
    with TaskProgress("sweep", "run", 1, bar=None) as tasks:
        tasks.finish()
        tasks.draw()
