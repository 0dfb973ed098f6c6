"""A stage on which stories are told: act after act, with a question that is committed to before the answer is seen."""

from __future__ import annotations

from typing import Any

from ..errors import BadInput
from .settings import Settings
from .stage import Stage
from .story import Story

__all__ = ["Teller"]


class Teller(Stage):
    """`act`: the number of the act that is played, -1 for none. `asked`: the question is to be shown. `said`: the answer
    that was committed to.
    """

    def __init__(self, *arguments: Any, **more: Any):
        super().__init__(*arguments, **more)
        self.story: Story | None = None
        self.act = -1
        self.said: int | None = None
        self.asked = False

    def tell(self, story: Story) -> None:
        """Play a story from its first act."""
        self.end()
        self.story, self.act, self.said, self.asked, self.pinned = story, -1, None, False, None
        self._next_act()

    def quiet(self) -> None:
        """Leave the story; what is on stays on."""
        self.story, self.act, self.asked, self.said = None, -1, False, None

    def commit(self, number: int) -> None:
        """Commit to an answer; the first one counts. It only sets a value, so it is seen at once."""
        question = self.story.question if self.story is not None else None
        if question is None:
            raise BadInput("No question has been asked.")
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < len(question.answers):
            raise BadInput(f"answer {number!r}: the answers are 0 to {len(question.answers) - 1}.")
        if self.said is not None:
            raise BadInput(f"You have said {question.answers[self.said]} already.")
        self.said, self.asked = number, True

    def show_truth(self) -> None:
        """The acts that show what is true, after the answer."""
        self.end()
        self.act = 0
        self._next_act()

    def settings_of(self, story: Story, act: int) -> Settings:
        """The setup of one act: the person's engine, the story's settings, the act's."""
        plain = Settings().changed(engine=self.setup.cluster.engine, speed=self.setup.speed)
        return plain.changed(**{**story.settings, **story.acts[act].settings})

    def stop(self) -> None:
        """End the run that goes on, and with it the story."""
        super().stop()
        self.quiet()

    def reset(self) -> None:
        """Back to the beginning, without the story."""
        super().reset()
        self.quiet()

    def show(self, number: int) -> None:
        """Look at a run of the table; a story ends with that."""
        super().show(number)
        self.quiet()

    def over(self) -> None:
        """An act is over: pin it, and go on with the next; a question that nobody has answered holds the story."""
        story, run = self.story, self.run
        if story is None or run is None or run.stopped_by in ("user", "error", "interrupted"):
            return
        if story.question is not None and self.said is None:
            self.asked = True
        elif self.act + 1 < len(story.acts):
            if story.acts[self.act].pin:
                self.pin()
            self._next_act()

    def tick(self) -> float | None:
        """See `Stage.tick`; and ask when it is time."""
        pause = super().tick()
        story = self.story
        waits = story is not None and story.question is not None and not self.asked and self.act == 0
        if waits and self.bridging is None and self.run is not None and self.run.engine.seconds >= story.asks_at:  # type: ignore[union-attr]
            self.asked = True
        return pause

    def _next_act(self) -> None:
        assert self.story is not None
        act = self.act + 1
        self.setup = self.settings_of(self.story, act)
        self.begin(self.setup, self.story.acts[act].faults)
        self.act = act  # not before: what is seen until then is the act before
