"""The style sheet of a page, the sizes of its panels, and one script.

JupyterLab handles keys wherever the focus is in a notebook: `a` on a button of the lab would insert a cell, `d d` would delete
the cell with the lab. The script stops the propagation of keys without a modifier at the lab's element, so that arrows move
menus and letters do nothing. If scripts are not allowed it does not run, and everything else works.
"""

from __future__ import annotations

from importlib import resources

__all__ = ["ROOT", "stylesheet"]

ROOT = "labkit-lab"  # the class of the widget that holds a lab

_DOT = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
_GUARD = (
    f"this.closest('.{ROOT}').addEventListener('keydown',e=>{{"
    "if(e.ctrlKey||e.metaKey||e.altKey||e.shiftKey)return;e.stopPropagation();"
    "if(e.key===' '&&e.target.closest('.noUi-handle'))e.preventDefault()})"
)


def stylesheet(shapes: dict[str, tuple[int, int]]) -> str:
    """The text of the HTML widget. `shapes`: {selector: (width, height) in pixels} of panels, so that their space is reserved
    before they are drawn and the layout does not shift.
    """
    style = (resources.files(__package__) / "style.css").read_text(encoding="utf-8")
    rooms = [f".{ROOT}.{name} img {{ aspect-ratio: {wide} / {high}; }}" for name, (wide, high) in shapes.items()]
    script = f'<img alt="" src="{_DOT}" style="display:none" onload="{_GUARD}">'
    return f"<style>{style}{' '.join(rooms)}</style>{script}"
