"""Dask's configuration is changed while processes of labkit's own start, and then it is as it was."""

import threading

import dask
import pytest

from labkit.engines.dask.cluster.settings import MALLOC, SharedContext, settings

OPTION = "labkit-test.value"


@pytest.fixture
def configured():
    with dask.config.set({OPTION: "the user's"}):
        yield SharedContext(lambda: dask.config.set({OPTION: "ours"}))


def value():
    return dask.config.get(OPTION)


def in_another_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def test_contexts_that_overlap_in_two_threads_restore_the_users_value(configured):
    with configured:
        in_another_thread(configured.__enter__)
    assert value() == "ours"  # the other thread is still in its context
    in_another_thread(lambda: configured.__exit__(None, None, None))
    assert value() == "the user's"


def test_a_nested_context_does_not_end_the_outer_one(configured):
    with configured:
        with configured:
            pass
        assert value() == "ours"
    assert value() == "the user's"


def test_values_are_restored_after_an_error(configured):
    with pytest.raises(ZeroDivisionError), configured:
        raise ZeroDivisionError
    assert value() == "the user's"


def test_values_are_applied_again_in_a_later_context(configured):
    for _ in range(2):
        with configured:
            assert value() == "ours"
        assert value() == "the user's"


def test_settings_of_own_processes_leave_no_trace():
    before = dask.config.get("distributed")
    with settings:
        assert dask.config.get("distributed.logging.distributed") == "error"
        assert dask.config.get("distributed.nanny.pre-spawn-environ").items() >= MALLOC.items()
    assert dask.config.get("distributed") == before
