"""The words of a run, where `live.py` looks for them. They are in `labkit.words`."""

from __future__ import annotations

from ..words import log_lines, numbers, sentence, state

__all__ = ["log_lines", "numbers", "sentence", "state"]
