"""One notebook in JupyterLab in a browser, operated as by a user.

Cells are counted from 0, code and text alike. Methods wait for a state of the page or of the kernel, never for an amount of
time. A wait that fails is a failure of its test, whose report shows the state of every open notebook: `Notebook.state`.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import nbformat
from playwright.sync_api import BrowserContext, ConsoleMessage, Locator, Page
from playwright.sync_api import Error as PlaywrightError

from tests.browser.kernel import ask
from tests.browser.server import LabServer

LIMIT = 120.0  # seconds at most for any effect: only a broken test waits that long
HEIGHT = 1000  # pixels of the window
HARMLESS: tuple[str, ...] = ()  # known errors of JupyterLab, as regular expressions: none
CANVASES = ".labkit-lab canvas"  # the panels of labs
THEMES = {"dark": "JupyterLab Dark", "light": "JupyterLab Light"}

# Open a notebook in a tab that shows another document, and leave only the new one open.
OPEN = """async name => {
    const { commands, shell } = window.jupyterapp;
    const opened = await commands.execute("docmanager:open", { path: name });
    [...shell.widgets("main")].filter(widget => widget !== opened).forEach(widget => widget.dispose());
}"""
WHOLE = """async whole => {
    const { commands, restored, shell } = window.jupyterapp;
    await restored;
    await commands.execute("application:set-mode", { mode: whole ? "multiple-document" : "single-document" });
    whole ? shell.expandLeft() : shell.collapseLeft();
}"""
CLOSE = """name => [...window.jupyterapp.shell.widgets("main")].filter(widget => widget.context?.path === name)
    .forEach(widget => widget.dispose())"""
READY = """name => {
    const notebook = window.jupyterapp?.shell?.currentWidget, session = notebook?.sessionContext;
    return notebook?.context?.path === name
        && session?.isReady && session.session?.kernel?.connectionStatus === "connected"
        && document.querySelectorAll(".jp-Notebook .jp-Cell").length > 0;
}"""
KERNEL = "window.jupyterapp.shell.currentWidget.sessionContext.session.kernel"
CONTENT = "window.jupyterapp.shell.currentWidget.content"
CELLS = f"() => {CONTENT}.widgets.map(cell => cell.model.type)"
SELECTED = f"() => {CONTENT}.activeCellIndex"
OUTPUTS = f"i => {CONTENT}.widgets[i].model.outputs.toJSON()"
PROMPT = """(document.querySelectorAll(".jp-Notebook .jp-Cell")[i].querySelector(".jp-InputPrompt").innerText
    .replace(/[\\[\\]:\\s]/g, ""))"""
COMMAND = "async ([name, what]) => { await window.jupyterapp.commands.execute(name, what); }"
PICTURED = "([css, least]) => window.labkitMeasure.pictured(css, least)"
CAPTIONED = """([name, pattern]) => {
    const panel = document.querySelector(`.labkit-lab [data-panel="${name}"]`), box = panel.getBoundingClientRect();
    if (box.top < 0 || box.bottom > innerHeight) panel.scrollIntoView({ block: "center" });
    return new RegExp(pattern).test(panel.querySelector(".lk-caption").title);
}"""
FOCUSED = """() => { const it = document.activeElement;
    return it.getAttribute("aria-label") || it.innerText?.trim() || it.className || it.tagName; }"""
THREADS = """
import threading as _threading, psutil as _psutil
_spent = {t.id: t.user_time + t.system_time for t in _psutil.Process().threads()}
{t.name: _spent.get(t.native_id, 0.0) for t in _threading.enumerate()}
"""


# The kernel evaluates a condition itself, as often as `Run.wait_for` does on processes or more, and answers once.
HOLDS = """
import threading as _threading, time as _time
_end = _time.monotonic() + {limit}
while not (_value := bool({condition})) and _time.monotonic() < _end:
    _threading.Event().wait(0.03)
_value
"""
LABS = """
[(name, repr(getattr(lab.view(), "state", lab)), lab.view().problem, str(lab.log).splitlines()[-8:])
 for name, lab in list(globals().items()) if type(lab).__name__ == "Lab"]
"""


def write(path: Path, cells: Sequence[str]) -> None:
    """A notebook of these code cells."""
    kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    sources = [nbformat.v4.new_code_cell(cell.strip()) for cell in cells]
    nbformat.write(nbformat.v4.new_notebook(cells=sources, metadata={"kernelspec": kernel}), path)


class Notebook:
    """The notebook file `name` of `server`, open and connected to its kernel, in the tab of the notebook before it, which is
    replaced; its kernel continues. A tab of its own costs five times the processor time.

    `size`: of the window, in CSS pixels. `whole`: JupyterLab with its side bar, as `jupyter lab` opens it; else the notebook
    alone. `page` is Playwright's page, for other operations; `shade`: its present theme, "light" or "dark".
    """

    page: Page

    def __init__(
        self, server: LabServer, context: BrowserContext, name: str, pictures: Path, size: tuple[int, int] = (1280, HEIGHT),
        whole: bool = False,
    ):  # fmt: skip
        self.server, self.name, self.size, self.whole = server, name, size, whole
        self._context, self._pictures = context, pictures
        self._messages: list[str] = []
        self.shade = "light"
        self.reopen()

    # the tab ----------------------------------------------------------------------------------------------------------

    def reopen(self) -> Notebook:
        """Open this notebook, in a new tab if there is none, and with the same kernel if it still runs."""
        tab = next((page for page in self._context.pages if page.url.startswith(self.server.url)), None)
        self.page = tab or self._context.new_page()
        self.page.set_default_timeout(1000 * LIMIT)
        self.page.on("console", self._record_message)
        self.page.on("pageerror", self._record_error)
        if tab is None:
            self.page.goto(f"{self.server.url}lab/tree/{self.name}?reset&token={self.server.token}")
        else:
            self.page.evaluate(OPEN, self.name)
        self.await_page(READY, arg=self.name)
        self.page.evaluate(WHOLE, self.whole)
        self.page.evaluate(f"() => window.labkitMeasure.listen({KERNEL})")
        self.resize(*self.size, drawn=False)
        return self

    def close_tab(self) -> None:
        """Close the tab without saving; the kernel continues."""
        self.page.close()

    def close(self) -> None:
        """Close the notebook and end its kernel. The next notebook is light again. Idempotent."""
        if not self.page.is_closed():
            self.theme("light")
            self.page.evaluate(CLOSE, self.name)
            self.page.remove_listener("console", self._record_message)
            self.page.remove_listener("pageerror", self._record_error)
        self.server.shut_down(self.name)

    def save(self) -> None:
        """Write the file, with its outputs: widgets are restored in a new tab only if this was done."""
        self.command("docmanager:save")

    def resize(self, width: int, height: int = HEIGHT, ratio: float = 1, drawn: bool = True) -> None:
        """Make the window so many CSS pixels large, on a screen with `ratio` device pixels per CSS pixel.

        `drawn`: wait until the panels are drawn in their new sizes.
        """
        self.size = width, height
        self.page.set_viewport_size({"width": width, "height": height})
        session = self._context.new_cdp_session(self.page)
        for high in (
            height + 1,
            height,
        ):  # the page is not told of a change of only the ratio, as it is with a real screen
            screen = {"width": width, "height": high, "deviceScaleFactor": ratio, "mobile": False}
            session.send("Emulation.setDeviceMetricsOverride", screen)
        self.await_page("r => window.devicePixelRatio === r", arg=ratio)
        self.page.evaluate("() => window.labkitMeasure.laidOut()")
        if drawn:
            self.await_layout()

    def theme(self, shade: str) -> None:
        """`"dark"` or `"light"`: JupyterLab's own two themes."""
        if shade != self.shade:
            self.command("apputils:change-theme", theme=THEMES[shade])
            here = f'body[data-jp-theme-light="{str(shade == "light").lower()}"]'
            self.page.wait_for_selector(here, state="attached")
            self.shade = shade
            self.await_layout()

    def command(self, name: str, **arguments: Any) -> None:
        """Run a command of JupyterLab by its name, and wait for it."""
        self.page.evaluate(COMMAND, [name, arguments])

    def screenshot(self, name: str, of: Locator | None = None) -> Path:
        """A picture of the window, or of one part, as `name`.png in the folder of pictures."""
        path = self._pictures / f"{name}.png"
        (of or self.page).screenshot(path=path)
        return path

    # cells ------------------------------------------------------------------------------------------------------------

    @property
    def cells(self) -> list[str]:
        """The kinds of the cells that the notebook has now: code, markdown or raw."""
        return list(self.page.evaluate(CELLS))

    @property
    def selected(self) -> int:
        """The cell that JupyterLab has selected."""
        return int(self.page.evaluate(SELECTED))

    def cell(self, index: int) -> Locator:
        """Cell `index`."""
        return self.page.locator(".jp-Notebook .jp-Cell").nth(index)

    def output(self, index: int) -> Locator:
        """The displayed output of cell `index`."""
        return self.cell(index).locator(".jp-OutputArea")

    def outputs(self, index: int) -> list[dict[str, Any]]:
        """The outputs of cell `index`, in the notebook file format."""
        return list(self.page.evaluate(OUTPUTS, index))

    def prompt(self, index: int) -> str:
        """The prompt of the cell: "" never run, "*" running or waiting, else its number."""
        return self.cell(index).locator(".jp-InputPrompt").inner_text().strip("[]: \n")

    def run(self, index: int) -> None:
        """Click into the cell and press Shift+Enter; returns when JupyterLab has accepted it."""
        before = self.prompt(index)
        self.cell(index).locator(".cm-content").click()
        self.page.keyboard.press("Shift+Enter")
        self.await_page(f"([i, before]) => !['', before].includes({PROMPT})", arg=[index, before])

    def wait_idle(self, index: int) -> None:
        """Until the cell has ended; AssertionError if with an error."""
        self.await_page(f"([i]) => /^\\d+$/.test({PROMPT})", arg=[index])
        for output in self.outputs(index):
            assert output["output_type"] != "error", f"cell {index}: {output['ename']}: {output['evalue']}"

    def clear(self, index: int) -> None:
        """Remove the outputs of a cell."""
        self.page.evaluate(f"i => {CONTENT}.widgets[i].model.clearExecution()", index)

    def run_and_wait(self, *indices: int) -> None:
        """Run these cells, one after another."""
        for index in indices:
            self.run(index)
            self.wait_idle(index)

    # labs -------------------------------------------------------------------------------------------------------------

    def lab(self, cell: int = 0) -> Locator:
        """The lab below a cell."""
        return self.output(cell).locator(".labkit-lab")

    def button(self, name: str, cell: int = 0) -> Locator:
        """The first button in the output of a cell whose name begins so."""
        return self.output(cell).get_by_role("button", name=re.compile(f"^{re.escape(name)}")).first

    def role(self, name: str, cell: int = 0) -> Locator:
        """The button of a role in the lab below a cell."""
        return self.lab(cell).get_by_role("radio", name=re.compile(f"^{name}\\b"))

    def panel(self, name: str, cell: int = 0) -> Locator:
        """A panel of the lab below a cell."""
        return self.lab(cell).locator(f'[data-panel="{name}"]')

    def text(self, cell: int = 0) -> str:
        """All texts of the lab below a cell."""
        return self.lab(cell).inner_text()

    # keys -------------------------------------------------------------------------------------------------------------

    def press(self, *keys: str) -> None:
        """Press these keys, one after another, in the focused element: "Tab", "Shift+Tab", "Enter", "ArrowLeft", "a"."""
        for key in keys:
            self.page.keyboard.press(key)

    @property
    def focused(self) -> str:
        """The control that has the focus: its label, else its text, else its class."""
        return str(self.page.evaluate(FOCUSED))

    # the kernel -------------------------------------------------------------------------------------------------------

    @property
    def kernel_id(self) -> str:
        """Of the kernel that this notebook has now."""
        session = self.server.session_of(self.name)
        assert session is not None, f"{self.name} has no kernel"
        return str(session["kernel"]["id"])

    def kernel(self, code: str, number: str = "") -> Any:
        """Run `code` in the kernel, also while a cell runs; the value of its last line. See `kernel.ask`."""
        return ask(self.server.connection(self.kernel_id), code, number)

    def threads(self, prefix: str = "labkit") -> dict[str, float]:
        """The kernel's threads whose names begin so, and the processor time (seconds) that each has taken."""
        return {name: spent for name, spent in self.kernel(THREADS).items() if name.startswith(prefix)}

    def await_kernel(self, condition: str) -> None:
        """Until this expression is true in the kernel, also while a cell runs."""
        holds = self.kernel(HOLDS.format(limit=LIMIT, condition=condition))
        assert holds, f"not within {LIMIT:g} s in the kernel of {self.name}: {condition}"

    def interrupt(self) -> None:
        """Interrupt the kernel."""
        self.server.request("POST", f"api/kernels/{self.kernel_id}/interrupt")

    # display and errors -----------------------------------------------------------------------------------------------

    def _record_message(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "assert"):
            self._messages.append(f"console: {message.text}")

    def _record_error(self, error: PlaywrightError) -> None:
        self._messages.append(f"page: {error}")

    @property
    def errors(self) -> list[str]:
        """Errors in the browser's console since the notebook was first opened, or since `forgive()`."""
        return [text for text in self._messages if not any(re.search(harmless, text) for harmless in HARMLESS)]

    def forgive(self) -> None:
        """Clear the errors so far, which the test has caused deliberately."""
        self._messages.clear()

    def await_page(self, condition: str, arg: Any = None, every: int = 50) -> None:
        """Until this JavaScript is true: an expression, or a function of `arg`. It is evaluated every so many milliseconds: for
        every frame, it would cost the browser a tenth of a core.
        """
        self.page.wait_for_function(condition, arg=arg, polling=every)

    def await_panels(self, selector: str = CANVASES, least: int = 1) -> None:
        """Until at least so many visible canvases match `selector`, and none of them is blank."""
        self.await_page(PICTURED, arg=[selector, least], every=200)  # reads all pixels

    @property
    def drawn(self) -> list[int]:
        """How often each canvas of the labs was drawn so far, in the order of the page."""
        return list(self.page.evaluate("css => window.labkitMeasure.drawn(css)", CANVASES))

    def await_layout(self) -> None:
        """Until the labs have the layout of the present window, and their panels in view were drawn in their present size."""
        self.page.evaluate("() => window.labkitMeasure.laidOut()")
        self.await_page("() => window.labkitMeasure.sized()")

    def await_still(self, lab: str = "lab") -> None:
        """Until this lab has drawn its last picture, and the page has received it."""
        self.await_kernel(f"not {lab}.drawing")
        number = uuid.uuid4().hex
        # all that the kernel has sent comes before the message that it has completed this request
        self.kernel("0", number)
        self.await_page("id => window.labkitMeasure.heard.has(id)", arg=number)

    def await_answer(self, kind: str, act: Callable[[], Any]) -> None:
        """Until the question of this kind that `act` makes the page ask was answered."""
        before = self.page.evaluate("kind => window.labkitMeasure.asked[kind] ?? 0", kind)
        act()
        asked = "([kind, before]) => window.labkitMeasure.asked[kind] > before && !window.labkitMeasure.open.size"
        self.await_page(asked, arg=[kind, before])

    def await_caption(self, panel: str, pattern: str) -> None:
        """Until the caption of a panel matches. The panel is brought into view, again if JupyterLab scrolls away from it: what is
        out of view is not drawn.
        """
        self.await_page(CAPTIONED, arg=[panel, pattern])

    def await_drawings(self, least: int, selector: str = CANVASES) -> None:
        """Until one of the canvases that match `selector` was drawn so many times more."""
        before = self.page.evaluate("css => window.labkitMeasure.most(css)", selector)
        condition = "([css, count]) => window.labkitMeasure.most(css) >= count"
        self.await_page(condition, arg=[selector, before + least])

    def acknowledged(self, click: Callable[[], Any], condition: str, seconds: float = LIMIT) -> float:
        """Milliseconds from the press that `click` makes until the frame in which `condition` holds.

        `condition` is a JavaScript expression over the page that is false before, or will be in a moment: the kernel may
        be ahead of the page. An error if it does not become true.
        """
        self.await_page(f"() => !({condition})")
        self.page.evaluate(f"s => window.labkitMeasure.expect(() => Boolean({condition}), 1000 * s)", seconds)
        click()
        return float(self.page.evaluate("() => window.labkitMeasure.answer()"))

    def state(self, name: str) -> str:
        """What page and kernel look like now, for the report of a failure; with a screenshot of this name."""
        lines = [f"notebook {self.name}"]
        if not self.page.is_closed():
            with contextlib.suppress(PlaywrightError):
                lines.append(f"screenshot: {self.screenshot(name)}")
            with contextlib.suppress(PlaywrightError):
                lines.append(f"last messages: {self.page.evaluate('() => window.labkitMeasure.last')}")
        lines.append(f"errors in the browser: {self.errors}")
        try:
            lines += [f"{lab}: state {state}, problem {why!r}, log {log}" for lab, state, why, log in self.kernel(LABS)]
        except Exception as error:  # the kernel has ended, say
            lines.append(f"kernel: {type(error).__name__}: {error}")
        return "\n".join(lines)
