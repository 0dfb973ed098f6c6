"""Guesses: committed once, before the result is known; they do not block the lab, and none is lost."""

from __future__ import annotations

import json
import math
import random
import threading

import numpy as np
import pytest

import labkit as lk
from labkit.lab.guess import Guess

SHARES = {"80%": 0.8, "50%": 0.5, "20%": 0.2}


@pytest.fixture
def ask(browsers):
    """Makes guesses, and removes them at the end."""
    made = []

    def make(*what):
        made.append(lk.Guess(*(what or ("How much is left?", SHARES))))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def browser(browsers):
    """The browser of the only guess of a test."""

    def of():
        (found,) = (each for each in browsers.values() if "question" in each.state)
        return found

    return of


def states(browser):
    """{text of an answer: its state} in the browser."""
    return {answer["text"]: answer["state"] for answer in browser.state["answers"]}


# committing -----------------------------------------------------------------------------------------------------------


def test_a_press_commits_and_a_second_one_does_nothing(ask, browser):
    guess, shown = ask(), browser()
    assert guess.committed is None
    assert shown.state["accepts"]
    shown.send_to_kernel(do="commit", answer=1)
    assert guess.committed == "50%"
    assert shown.state["status"] == "You guessed 50%. Now measure."
    assert "committed once" in shown.state["note"]
    assert not shown.state["accepts"]
    shown.send_to_kernel(do="commit", answer=2)
    assert guess.committed == "50%"
    assert states(shown) == {"80%": "", "50%": "given", "20%": ""}


@pytest.mark.parametrize(
    "message", [{}, {"do": "commit"}, {"do": "commit", "answer": 3}, {"do": "commit", "answer": None}]
)
def test_a_malformed_message_does_nothing(ask, browser, message, caplog):
    guess = ask()
    browser().send_to_kernel(**message)
    assert guess.committed is None
    assert not caplog.records
    browser().send_to_kernel(do="commit", answer=0)
    assert guess.committed == "80%"


@pytest.mark.parametrize("answer", ["20%", 2, np.int64(2)])
def test_commit_has_the_effect_of_a_click(ask, answer):
    guess = ask()
    assert guess.commit(answer) is guess
    assert guess.committed == "20%"
    guess.commit(answer)
    with pytest.raises(lk.BadInput, match="You guessed '20%' already, not '80%'"):
        guess.commit("80%")
    assert guess.committed == "20%"


@pytest.mark.parametrize("answer", ["90%", 3, -1, True, None, 0.5, ["20%"]])
def test_an_unknown_answer_is_refused_and_the_answers_are_named(ask, answer):
    guess = ask()
    with pytest.raises(lk.BadInput, match="'80%', '50%', '20%'"):
        guess.commit(answer)
    assert guess.committed is None


def test_of_many_concurrent_commits_one_counts(ask):
    guess, received = ask(), []

    def commit(k):
        try:
            received.append(guess.commit(k).committed)
        except lk.BadInput:
            received.append(None)

    threads = [threading.Thread(target=commit, args=(k % 3,)) for k in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(received) == 12
    assert {answer for answer in received if answer} == {guess.committed}


@pytest.mark.parametrize(
    "what",
    [
        ("",), ("Why?",), ("Why?", "so"), ("Why?", "so", "so"), ("Why?", "so", 3), ("Why?", {}), ("Why?", {"a": 1}),
        ("Why?", {"a": 1, "b": "x"}), ("Why?", {"a": 1, "b": math.nan}), ("Why?", {"a": 1, "b": True}), (3, "a", "b"),
        ("Why?", {"a": 1, "b": 2}, "c"), ("Why?", "a", ""),
    ],
)  # fmt: skip
def test_invalid_questions_and_answers_are_refused(what):
    with pytest.raises(lk.BadInput):
        lk.Guess(*what)


# revealing ------------------------------------------------------------------------------------------------------------


def test_reveal_shows_the_guess_and_the_result(ask, browser):
    guess = ask().commit("50%")
    shown = browser()
    seen = guess.reveal(0.212, "All wait for the slowest.")
    assert (seen.committed, seen.answer, seen.right) == ("50%", "20%", False)
    assert seen.verdict == "Wrong: you guessed 50%; measured: 21.2% (nearest: 20%)."
    assert repr(seen) == f"How much is left?\n{seen.verdict}\nAll wait for the slowest."
    assert shown.state["status"] == seen.verdict
    assert states(shown) == {"80%": "", "50%": "wrong", "20%": "right"}
    assert ask().commit("20%").reveal(0.2).verdict == "Right: you guessed 20%; measured: 20%."


@pytest.mark.parametrize(
    ("answers", "shown"),
    [
        ({"0.1 s": 0.1, "0.4 s": 0.4}, "0.183 s (nearest: 0.1 s)"),
        ({"100 ms": 0.1, "0.4 s": 0.4}, "0.183 (nearest: 100 ms)"),
        ({"about 0.1 s": 0.1, "about 0.4 s": 0.4}, "0.183 (nearest: about 0.1 s)"),
    ],
)
def test_the_measured_value_has_the_unit_of_the_answers(answers, shown):
    assert lk.Guess("How long?", answers).reveal(0.183).verdict == f"No guess was made. Measured: {shown}."


def test_reveal_without_a_guess_returns_at_once_with_a_text(ask, browser):
    guess = ask()
    seen = guess.reveal(0.21)
    assert seen.right is None
    assert seen.verdict == "No guess was made. Measured: 21% (nearest: 20%)."
    assert not browser().state["accepts"]
    browser().send_to_kernel(do="commit", answer=0)
    assert guess.committed is None
    with pytest.raises(lk.BadInput, match="too late"):
        guess.commit("20%")


def test_the_nearest_number_is_the_true_one():
    rng = random.Random(7)
    for _ in range(50):
        values = [rng.choice((0.01, 1, 100)) * rng.uniform(0.5, 5) for _ in range(4)]
        measured = rng.choice((0.01, 1, 100)) * rng.uniform(0.5, 5)
        guess = Guess("How many?", {f"answer {k}": value for k, value in enumerate(values)})
        ratios = [max(value / measured, measured / value) for value in values]
        assert guess.reveal(measured).answer == f"answer {ratios.index(min(ratios))}"
        guess.close()


@pytest.mark.parametrize(("measured", "answer"), [(-0.4, "none"), (0.6, "one"), (1.49, "one"), (40, "two")])
def test_answers_that_are_not_positive_are_compared_by_difference(ask, measured, answer):
    assert ask("How many?", {"none": 0, "one": 1, "two": 2}).reveal(measured).answer == answer


def test_the_nearest_answer_is_found_on_a_ratio_scale(ask):
    """The distance is measured on a ratio scale: 3 is nearer to 1 than to 6 by difference, but 3 times 1 and half of 6."""
    assert ask("How many?", {"1": 1, "6": 6}).reveal(3).answer == "6"


@pytest.mark.parametrize(
    ("measured", "shown"), [(7, "7"), (7.0, "7"), (6.98, "6.98"), (12345, "12,345"), (np.float64(0.2145), "0.214"), (-3, "−3")]
)  # fmt: skip
def test_numbers_are_shown_with_few_digits(ask, measured, shown):
    assert ask("How many?", {"few": -1, "many": 10}).reveal(measured).shown == shown


@pytest.mark.parametrize("measured", ["20%", None, True, math.nan, math.inf, 1j])
def test_numbers_want_a_number(ask, measured):
    with pytest.raises(lk.BadInput, match="give the number"):
        ask().reveal(measured)


@pytest.mark.parametrize("measured", ["the mean", 0, None])
def test_the_result_of_a_text_question_must_be_an_answer(ask, measured):
    guess = ask("Who sets the pace?", "the fastest", "the slowest").commit(1)
    with pytest.raises(lk.BadInput, match="'the fastest', 'the slowest'"):
        guess.reveal(measured)
    assert guess.reveal("the slowest").right


# storage and display --------------------------------------------------------------------------------------------------


def test_the_record_survives_revealing_again(ask):
    guess = ask().commit("50%")
    empty = {"question": "How much is left?", "answers": ["80%", "50%", "20%"], "committed": "50%"}
    assert guess.record() == {**empty, "measured": None, "right": None}
    guess.reveal(np.float32(0.25))
    assert guess.record() == {**empty, "measured": 0.25, "right": False}
    guess.reveal(0.45)
    assert guess.record() == {**empty, "measured": 0.45, "right": True}
    assert json.loads(json.dumps(guess.record())) == guess.record()


def test_running_its_cell_again_makes_a_new_one(ask):
    first = ask().commit("50%")
    again = ask()
    assert again.committed is None
    again.commit("20%")
    assert first.committed == "50%"


def test_texts_are_escaped_in_html_and_not_in_the_widget(ask, browser):
    guess = ask("Is a < b?", "yes & always", "no")
    assert browser().state["question"] == "Is a < b?"
    assert list(states(browser())) == ["yes & always", "no"]
    assert repr(guess) == "Is a < b?\n  yes & always | no\nNo guess yet."
    shown = guess.commit("yes & always").reveal("no", "Look: <b>.")._repr_html_()
    assert "Is a &lt; b?" in shown
    assert "yes &amp; always" in shown
    assert "Look: &lt;b&gt;." in shown


def test_colours_come_from_the_page(ask, browser):
    shown = ask().reveal(0.2)._repr_html_()
    assert "var(--jp-content-font-color1" in shown
    assert "color: #" not in shown.replace("background-color", "")
    assert "var(--jp-" in browser().state["_css"]


def test_a_guess_starts_no_thread(ask):
    before = threading.active_count()
    ask().commit(0).reveal(0.3)
    assert threading.active_count() == before


def test_closing_keeps_the_guess(ask):
    guess = ask().commit("50%")
    guess.close()
    guess.close()
    assert guess.reveal(0.5).right
    assert guess.record()["committed"] == "50%"


@pytest.mark.slow
def test_a_kernel_without_a_browser_gets_through(tmp_path):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    cells = ["import labkit as lk\nguess = lk.Guess('Is it?', 'yes', 'no')\nguess", "guess.reveal('yes')"]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
    nbclient.NotebookClient(book, timeout=None, resources={"metadata": {"path": str(tmp_path)}}).execute()
    first, second = (cell.outputs[-1]["data"] for cell in book.cells)
    assert first["text/plain"].startswith("Is it?")
    assert second["text/plain"] == "Is it?\nNo guess was made. Measured: yes."
