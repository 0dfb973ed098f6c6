"""Step times that were predicted, as bars: what of them is computing, latency, bytes; the formula beside each."""

from __future__ import annotations

from collections.abc import Sequence

from . import style
from .figures import LabFigure, blank, head

__all__ = ["bars"]
