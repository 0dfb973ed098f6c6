"""The page of a lab: what a browser shows of it. Widgets, one style sheet, one thread that draws."""

from __future__ import annotations

from .page import Page

__all__ = ["Page"]
