"""The page of a lab: widgets, a style sheet, and the thread that draws."""

from __future__ import annotations

from .page import Page

__all__ = ["Page"]
