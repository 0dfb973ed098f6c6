"""The stages of a start, with scripted processes and a scripted clock: slow is not lost, at any stage."""

from labkit.engines.dask.stages import ProcessStart, StartProgress, StartStage
from labkit.engines.dask.timeouts import SILENT_S

REQUESTED, ALIVE, IMPORTED, CONNECTED = list(StartStage)[:4]
BEFORE = {"alive": (11, False), "imported": (11, True)}  # {stage: (pid, whether the modules are imported)}


def test_the_progress_of_a_start_names_the_last_stage_that_was_reached():
    cases = {
        (): "0 of 3 processes requested",
        (REQUESTED, REQUESTED): "2 of 3 processes requested",
        (REQUESTED, ALIVE, ALIVE): "2 of 3 processes alive",
        (IMPORTED, ALIVE, ALIVE): "1 of 3 processes imported",
        (CONNECTED, CONNECTED, IMPORTED): "2 of 3 processes connected",
        (CONNECTED,) * 7: "3 of 3 processes connected",
    }
    found = {stages: StartProgress.of_processes(stages, 3) for stages in cases}
    assert {stages: str(progress) for stages, progress in found.items()} == cases
    assert [progress.up for progress in found.values()] == [0, 0, 0, 0, 2, 3]
    assert str(StartProgress(3, 3, StartStage.UP, 2, 6)) == "2 of 6 roles up"


def seconds(until, step=0.25):
    return (number * step for number in range(1, int(until / step) + 1))


def test_a_process_that_lives_may_be_slow_at_each_stage():
    """For an hour at each stage; it uses processor time every nine seconds."""
    start = ProcessStart()
    for i, (pid, imported) in enumerate([(None, False), *BEFORE.values()]):
        for now in seconds(3600):
            start.observe(pid, imported, now // 9, 3600 * i + now)
            assert start.problem(3600 * i + now) == ""
        assert start.stage == i


def test_a_process_without_a_sign_of_life_fails_at_each_stage_within_the_bound():
    for stage, (pid, imported) in BEFORE.items():
        start, failed = ProcessStart(), []
        for now in seconds(20):
            start.observe(pid, imported, "the same", now)
            if start.problem(now):
                failed.append((now, start.problem(now)))
        following = {"alive": "imported", "imported": "connected"}[stage]
        assert failed[0][1] == f"process 11: {stage}, not {following}, no sign of life for 10 s"
        assert SILENT_S < failed[0][0] <= SILENT_S + 1.0


def test_nothing_fails_while_the_client_has_no_core():
    start = ProcessStart()
    start.observe(11, False, "the same", 0.0)
    for number in range(1, 15):
        start.observe(11, False, "the same", 60.0 * number)
        assert start.problem(60.0 * number) == ""
