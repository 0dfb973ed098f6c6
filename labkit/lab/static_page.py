"""The output of labs and guesses without a kernel: HTML that nbconvert, GitHub and nbviewer show.

A widget and its HTML are two outputs of one cell. Both in one output would be simpler, but then every renewal of the HTML makes
JupyterLab create the view of the widget again, which flickers and loses focus and full screen. While a browser shows the live
widget, the script of the widget hides the HTML (see `page/page.js` and `guess.js`).
"""

from __future__ import annotations

import base64
import html
import io
from typing import Any

from ..narrative.numbers import numbers
from ..narrative.sentence import sentence
from ..trace import Trace
from ..views import overview, style

DPI = 1.25 * style.DPI
COLOURS = 96  # of the picture, so that it takes about 60 kB


class StaticOutput:
    """The HTML below the widget `model_id`, and the same as text for a terminal. If several cells display it, all are renewed.

    `name`: part of the class of the HTML, by which the script of the widget finds it. It is the same each time the notebook is
    executed, so that stored outputs can be compared.
    """

    def __init__(self, model_id: str | None, name: str):
        self._id, self._name = model_id, name
        self._handle: Any = None

    @property
    def displayed(self) -> bool:
        """Whether a cell has displayed it."""
        return self._handle is not None

    def show(self, content: str, text: str) -> None:
        """Display the HTML below the widget."""
        from IPython.display import display

        self._handle = display(self._data(content, text), raw=True, display_id=f"labkit-{self._id}")

    def renew(self, content: str, text: str, closed: bool = False) -> None:
        """Replace the HTML where it is displayed, if anywhere. `closed`: the widget is closed, and its script hides the HTML no
        longer.
        """
        if self._handle is not None:
            self._handle.update(
                {"text/html": content, "text/plain": text} if closed else self._data(content, text), raw=True
            )

    def _data(self, content: str, text: str) -> dict[str, str]:
        return {"text/html": f'<div class="labkit-static-{self._name}">{content}</div>', "text/plain": text}


def static_page(trace: Trace, t: int, reference: Trace | None, state: str, picture: bool = True) -> str:
    """Return HTML of the state at `t` (ns): the panels as a picture (about a second of processor time), sentence and numbers.
    `state`: a few words on why the page is static.
    """
    words = sentence(trace, t, reference)
    values = "".join(
        f'<span style="margin-right: 14px">{html.escape(name)} <b>{html.escape(value)}</b></span>'
        for name, value in numbers(trace, t)
    )
    return (
        '<div style="max-width: 1180px; font: 13px/1.5 system-ui, sans-serif">'
        f'<div style="padding: 4px 0"><b>labkit lab</b> &middot; {html.escape(state)}</div>'
        f'<div style="padding: 2px 0 6px">{html.escape(words)}</div>'
        f"{_picture(trace, t, reference, words) if picture else ''}<div>{values}</div></div>"
    )


def _picture(trace: Trace, t: int, reference: Trace | None, words: str) -> str:
    """The panels as an element `img`. `words`: its alternative text."""
    from PIL import Image

    drawn, reduced = io.BytesIO(), io.BytesIO()
    overview(trace, t, reference).savefig(drawn, format="png", dpi=DPI, facecolor=style.PAPER)
    image = Image.open(drawn).convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    image.save(reduced, format="png", optimize=True)
    source = base64.b64encode(reduced.getvalue()).decode()
    css = "width: 100%; max-width: 940px"
    return f'<img alt="{html.escape(words, quote=True)}" style="{css}" src="data:image/png;base64,{source}">'
