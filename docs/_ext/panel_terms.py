"""The explanations of the lab's page: panels, and the numbers of the summary."""

from __future__ import annotations

from docs._ext.markdown import escaped, table
from labkit.lab.glossary import TERMS
from labkit.views import PANELS

__all__ = ["lab_terms", "panel_list"]


def panel_list() -> str:
    """Return the table of all panels: name, method of `run.plot`, what it shows."""
    rows = []
    for name in PANELS:
        about = TERMS[name.replace("_", " ")]
        rows.append(
            [f"[{name.replace('_', ' ')}](#panel-{name.replace('_', '-')})", f"`run.plot.{name}()`", escaped(about)]
        )
    return table(["panel", "as a figure", "what it shows"], rows)


def lab_terms() -> str:
    """Return the table of the other terms on the lab's page."""
    panels = {name.replace("_", " ") for name in PANELS}
    rows = [[term, escaped(about)] for term, about in TERMS.items() if term not in panels]
    return table(["term", "meaning"], rows)
