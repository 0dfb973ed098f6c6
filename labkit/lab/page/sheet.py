"""What a browser needs before it shows a lab: the style sheet, the shapes of the pictures, and one script.

JupyterLab reads keys from whatever has the focus in a notebook: `a` on a button of the lab would insert a cell, `d d`
would delete the cell with the lab. The script keeps keys without a modifier inside the lab, so that arrows move menus
and letters do nothing. Where scripts are forbidden it does not run, and nothing else is lost.
"""

from __future__ import annotations

from importlib import resources

__all__ = ["ROOT", "sheet"]

ROOT = "labkit-lab"  # the class of the widget that holds a lab

_DOT = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
_GUARD = (
    f"this.closest('.{ROOT}').addEventListener('keydown',e=>{{"
    "if(e.ctrlKey||e.metaKey||e.altKey||e.shiftKey)return;e.stopPropagation();"
    "if(e.key===' '&&e.target.closest('.noUi-handle'))e.preventDefault()})"
)


def sheet(shapes: dict[str, tuple[int, int]]) -> str:
    """The text of the HTML widget that carries all this. `shapes`: {selector: (width, height)} of pictures, so that their
    room is there before they are and nothing jumps.
    """
    style = (resources.files(__package__) / "style.css").read_text(encoding="utf-8")
    rooms = [f".{ROOT}.{name} img {{ aspect-ratio: {wide} / {high}; }}" for name, (wide, high) in shapes.items()]
    script = f'<img alt="" src="{_DOT}" style="display:none" onload="{_GUARD}">'
    return f"<style>{style}{' '.join(rooms)}</style>{script}"
