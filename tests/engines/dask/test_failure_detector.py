"""Heartbeats distinguish slow from dead processes; a process lost before a run begins is started again. No process is used."""

import pytest

from labkit import BadInput, ClusterError
from labkit.engines.dask.client.start import start_with_retries
from labkit.engines.dask.client.supervisor import LostWhileStarting
from labkit.engines.dask.failure_detector import FailureDetector
from labkit.engines.dask.timeouts import REPORT_S
from labkit.trace.events import Note


def watching(*names, absence=2.0):
    detector = FailureDetector(absence)
    detector.watch(names, 0.0)
    return detector


def test_only_processes_without_heartbeats_are_suspected():
    detector = watching("slow", "dead")
    for now in range(1, 100):
        detector.consult(now)
        detector.sign("slow", now)
        assert detector.silent(10.0, now) == ([] if now <= 10 else ["dead"])


def test_only_changing_progress_values_count_as_heartbeats():
    detector = watching("works", "hangs")
    for now in range(30):
        detector.consult(now)
        detector.progress("works", now // 5, now)
        detector.progress("hangs", 7, now)
    assert detector.silent(10.0, 29.0) == ["hangs"]


def test_a_first_progress_value_is_no_heartbeat():
    detector = watching("one")
    detector.progress("one", 3, 9.0)
    assert detector.silent(10.0, 11.0) == ["one"]


def test_the_detector_suspects_no_process_after_its_own_absence():
    detector = watching("one")
    detector.consult(1.0)
    detector.consult(60.0)
    assert detector.silent(10.0, 60.0) == []
    for now in range(61, 72):
        detector.consult(now)
    assert detector.silent(10.0, 71.0) == ["one"]


def test_watching_a_process_again_is_no_heartbeat():
    detector = watching("one", "two")
    detector.watch(["one"], 8.0)
    detector.forget("two")
    assert detector.silent(5.0, 9.0) == ["one"]


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class Run:
    def __init__(self):
        self.said = []

    def event(self, kind, text):
        self.said.append((kind, text))


def attempts(clock, *results):
    """An attempt that raises or returns the `results` in turn, the last one repeatedly, each after a second."""
    left = list(results)

    def attempt():
        clock.now += 1.0
        result = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(result, Exception):
            raise result
        return result

    return attempt


def test_a_start_without_losses_needs_one_attempt():
    clock, run = Clock(), Run()
    assert start_with_retries(attempts(clock, run), clock, clock.sleep) is run
    assert (clock.now, run.said) == (1.0, [])


@pytest.mark.parametrize("error", [BadInput("too few"), ClusterError("no")])
def test_other_errors_are_not_retried(error):
    clock = Clock()
    with pytest.raises(type(error), match=str(error)):
        start_with_retries(attempts(clock, error), clock, clock.sleep)
    assert clock.now == 1.0


def test_a_start_is_repeated_after_a_loss_also_while_workers_are_missing_and_the_trace_records_it():
    clock, run = Clock(), Run()
    lost = LostWhileStarting("The process of server-0 ended while the run was starting.")
    assert (
        start_with_retries(attempts(clock, lost, BadInput("has 5"), BadInput("has 5"), run), clock, clock.sleep) is run
    )
    assert run.said == [(Note, f"{lost} The start was retried.")]


@pytest.mark.parametrize("then", [LostWhileStarting("It ended."), BadInput("The cluster has 5 Dask workers.")])
def test_a_loss_that_cannot_be_repaired_is_reported_in_time(then):
    clock = Clock()
    with pytest.raises(ClusterError, match="server-0 ended") as caught:
        start_with_retries(attempts(clock, LostWhileStarting("server-0 ended."), then), clock, clock.sleep)
    assert not isinstance(caught.value, LostWhileStarting)
    assert str(then) in str(caught.value)
    assert clock.now <= 1.0 + REPORT_S + 2.0
