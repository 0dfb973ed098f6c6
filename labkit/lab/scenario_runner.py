"""Scenario runner: plays the steps of a scenario on a session, with a question that is answered before the result is
shown.
"""

from __future__ import annotations

from collections.abc import Callable

from ..errors import BadInput
from .scenarios.scenario import Question, Scenario
from .session import Session
from .settings import Settings


class ScenarioRunner:
    """The runner of the scenarios of a lab.

    `chosen`: the scenario that `start` plays; None for a single run with the settings of the session. `step`: the number
    of the step that is played; -1 if no scenario is played. `asked`: whether the question is shown. `answer`: the number
    of the given answer; None before an answer. `watched()`: whether a browser shows the page. If so, the run is paused
    while the question waits for its answer; a program without a browser is not held up.

    Only one thread may call the methods, as for the session, except `commit`, which only sets values.
    """

    def __init__(
        self, session: Session, chosen: Scenario | None = None, watched: Callable[[], bool] = lambda: False
    ):  # fmt: skip
        self.session, self.chosen, self._watched = session, chosen, watched
        self._playing: Scenario | None = None
        self.step = -1
        self.asked = False
        self.answer: int | None = None

    @property
    def scenario(self) -> Scenario | None:
        """The scenario that is played, or the chosen scenario if none is played."""
        return self._playing or self.chosen

    @property
    def question(self) -> Question | None:
        return self.scenario.question if self.scenario is not None else None

    # commands ---------------------------------------------------------------------------------------------------------

    def choose(self, scenario: Scenario | None) -> None:
        """Set the scenario that `start` plays. None: leave the present scenario; the displayed run continues."""
        self.chosen = scenario
        if scenario is None:
            self._leave()

    def start(self) -> None:
        """Play the chosen scenario from its first step. If none is chosen, start a run with the settings of the session."""
        if self.chosen is None:
            self.session.start()
            return
        self.session.end()
        self._playing, self.step, self.answer, self.asked = self.chosen, -1, None, False
        self.session.unpin()
        self._next_step()

    def commit(self, answer: int | str) -> None:
        """Answer the question. `answer`: the number of the answer, or its text. Raises `BadInput` if it is unknown or a
        second answer.
        """
        question = self.question
        answers = question.answers if question is not None else ()
        if isinstance(answer, str) and answer not in answers:
            allowed = "the answers are " + ", ".join(answers) if answers else "no question is asked"
            raise BadInput(f"answer {answer!r}: {allowed}.")
        if not answers:
            raise BadInput("No question is asked.")
        number = answers.index(answer) if isinstance(answer, str) else answer
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < len(answers):
            raise BadInput(f"answer {number!r}: the answers are 0 to {len(answers) - 1}.")
        if self.answer is not None:
            raise BadInput(f"The question is already answered: {answers[self.answer]}.")
        self._playing = self.scenario
        self.answer, self.asked = number, True

    def show_result(self) -> None:
        """Play the steps after the question."""
        self.session.end()
        self.step = 0
        self._next_step()

    def stop(self) -> None:
        """Stop the active run, and leave the scenario."""
        self.session.end()
        self._leave()

    def reset(self) -> None:
        """Stop the displayed run, prepare the same run again, and leave the scenario."""
        self.session.reset()
        self._leave()

    def show_run(self, number: int) -> None:
        """Show a run of the table, and leave the scenario."""
        self.session.show_run(number)
        self._leave()

    def abort(self) -> None:
        """Stop advancing, and leave the scenario, because `advance` raised an error."""
        self.session.playback.halt()
        self._leave()

    # advancing ------------------------------------------------------------------------------------------------------

    def advance(self) -> float | None:
        """Do the work that is due now. Return the seconds until there may be more work, or None if idle."""
        session = self.session
        if session.advance():
            self._step_over()
        waits = self._playing is not None and self._playing.question is not None and not self.asked and self.step == 0
        if waits and not session.displayed.previewing and session.displayed.run is not None:
            self.asked = session.displayed.run.engine.seconds >= self._playing.asks_at  # type: ignore[union-attr]
            if self.asked and self._watched():
                session.playback.hold()
        return session.next_advance()

    def finish(self) -> None:
        """Advance a simulated run by one slice, as fast as possible."""
        self.session.playback.finish()

    def _step_over(self) -> None:
        """Start the next step after the run of a step has ended, unless a question waits for its answer."""
        scenario, run = self._playing, self.session.displayed.run
        if scenario is None or run is None or run.stopped_by in ("user", "error", "interrupted"):
            return
        if scenario.question is not None and self.answer is None:
            self.asked = True
        elif self.step + 1 < len(scenario.steps):
            if scenario.steps[self.step].pin:
                self.session.pin()
            self._next_step()

    def settings_of(self, scenario: Scenario, step: int) -> Settings:
        """Return the settings of one step: the session's engine, speed and own objects, the scenario's settings, the step's."""
        now = self.session.next_run.settings
        default = Settings(own=now.own).changed(engine=now.cluster.engine, speed=now.speed)
        return default.changed(**{**scenario.settings, **scenario.steps[step].settings})

    def _next_step(self) -> None:
        assert self._playing is not None
        step = self.step + 1
        self.session.prepare(self.settings_of(self._playing, step))
        self.session.start(commands=self._playing.steps[step].faults)
        self.step = step  # set last, so that the previous step is shown until the next one has started

    def _leave(self) -> None:
        self._playing, self.step, self.asked, self.answer = None, -1, False, None
