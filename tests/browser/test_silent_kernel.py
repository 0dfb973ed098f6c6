"""What the page says while the kernel is silent, as on a busy machine: the age of its pictures, and what was pressed.

The kernel is suspended. All tests use one lab in virtual time.
"""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager

import pytest

from tests.browser.cells import SIMULATED

AGES = "[...document.querySelectorAll('.labkit-lab .lk-age')].map(it => it.innerText)"


@pytest.fixture(scope="module")
def page(notebook):
    opened = notebook([SIMULATED], size=(1366, 768), whole=True)
    opened.run_and_wait(0)
    opened.await_panels(least=5)
    return opened


@contextmanager
def silent(page):
    """While the kernel is suspended, with a moving run and all panels drawn in their present size."""
    page.lab().locator(".lk-live").wait_for()
    page.await_layout()
    kernel = page.kernel("__import__('os').getpid()")
    os.kill(kernel, signal.SIGSTOP)
    try:
        yield
    except BaseException:
        page.screenshot("failed-while-silent")  # the kernel continues before the report is made
        raise
    finally:
        os.kill(kernel, signal.SIGCONT)


def await_ages(page, condition):
    page.await_page(f"() => {condition.format(AGES)}")


def test_panels_say_how_old_they_are_and_that_they_wait_for_a_new_size(page):
    await_ages(page, "{0}.every(text => !text)")
    with silent(page):
        await_ages(page, r"{0}.every(text => /^\d+ s old$/.test(text))")
        page.screenshot("old-panels")
        page.resize(1000, 768, drawn=False)
        await_ages(page, "{0}.some(text => text === 'waiting')")
        page.screenshot("waiting-panels")
    await_ages(page, "{0}.every(text => !text)")
    page.await_layout()


def test_a_press_is_shown_before_the_kernel_has_answered(page):
    page.role("w2").click()
    with silent(page):
        page.button("Kill").click()
        page.role("w2").filter(has_text="w2 stopping").wait_for()
        page.screenshot("stopping")
    page.role("w2").filter(has_text="w2 killed").wait_for()
