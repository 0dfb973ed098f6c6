"""What a lab can tell: everything here only reads, at any time and from any thread."""

from __future__ import annotations

from pathlib import Path

from ..engines.dask import DaskCluster
from ..narrative import log_lines, sentence
from ..narrative.log import Log
from ..run import Run
from ..trace import Trace
from ..views import LabFigure, overview
from .settings import Settings
from .stories import STORIES
from .story import Story
from .tables import Runs
from .teller import Teller

__all__ = ["Reading"]


class Reading:
    """The part of a `Lab` that answers questions."""

    stage: Teller
    _story: Story | None

    @property
    def trace(self) -> Trace:
        """The record of the run that is on."""
        return self.stage.trace

    @property
    def latest(self) -> Run | None:
        """The run that is on; None before the first."""
        return self.stage.run

    @property
    def setup(self) -> Settings:
        """What the next run will be."""
        return self.stage.setup

    @property
    def cluster(self) -> DaskCluster:
        """The cluster of processes of this lab, started or not."""
        return self.stage.processes.cluster

    @property
    def runs(self) -> Runs:
        """The runs so far, as a table."""
        return Runs({"run": entry.number, **entry.row} for entry in list(self.stage.entries))

    @property
    def log(self) -> Log:
        """What happened up to the moment that is looked at, in words."""
        return Log(log_lines(self.trace, self.stage.moment()))

    @property
    def sentence(self) -> str:
        """What the pictures show, in words."""
        return sentence(self.trace, self.stage.moment(), self.stage.pinned)

    @property
    def question(self) -> str | None:
        """The question of the story, with its answers; None if it has none."""
        story = self.stage.story or self._story
        asked = story.question if story is not None else None
        return f"{asked.text} {' / '.join(asked.answers)}" if asked is not None else None

    @property
    def said(self) -> str | None:
        """The answer that was committed to; None if there is none yet."""
        story, said = self.stage.story or self._story, self.stage.said
        return story.question.answers[said] if said is not None and story is not None and story.question else None

    @property
    def traces(self) -> list[Trace]:
        """The records of the runs in the table, oldest first (of many runs, the last ones)."""
        return [entry.trace for entry in list(self.stage.entries) if entry.trace is not None]

    @staticmethod
    def stories() -> dict[str, str]:
        """{name: title} of the stories that `lk.Lab(story=...)` takes."""
        return {name: story.title for name, story in STORIES.items()}

    def export_csv(self, path: str | Path) -> Path:
        """Write the table of runs to a file."""
        return self.runs.to_csv(path)

    def snapshot(self) -> LabFigure:
        """A static figure of what is looked at: for reports, and for pages where widgets do not live."""
        return overview(self.trace, self.stage.moment(), self.stage.pinned)
