"""The stories of the lab: each is one effect, seen in about 20 seconds, with the law that says how large it must be.

A story is a value (`labkit.lab.story`); its law stands above it, and `tests/lab/test_lab_stories.py` holds it to that. The
first one opens the start notebook, the next six are what the lab is about, the rest is for whoever has become curious.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ...errors import nearest
from ..story import Story
from .losses import SERVER_DIES, WORKER_DIES
from .models import BUBBLE, SKEWED_DATA
from .staleness import RUNAWAY, STALE_AND_FAST, STALENESS
from .waiting import BACKUP_WORKERS, CHANCE, FIRST_MINUTE, SLOW_WORKER
from .wires import FEWER_BYTES, FULL_WIRE, LOCAL_STEPS, SPARSE

__all__ = ["STORIES", "story_by_name"]

STORIES: Mapping[str, Story] = MappingProxyType({
    story.name: story
    for story in (
        FIRST_MINUTE,
        SLOW_WORKER, STALENESS, STALE_AND_FAST, RUNAWAY, FULL_WIRE, BUBBLE,
        WORKER_DIES, SERVER_DIES,
        CHANCE, BACKUP_WORKERS, SPARSE, SKEWED_DATA, LOCAL_STEPS, FEWER_BYTES,
    )
})  # fmt: skip


def story_by_name(name: str) -> Story:
    """The story of this name; `BadInput` names the nearest one and lists them all."""
    if name not in STORIES:
        raise nearest("story", name, STORIES)
    return STORIES[name]
