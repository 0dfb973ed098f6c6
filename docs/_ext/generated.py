"""Inserts generated text into pages, writes the pages of strategies, and copies the lessons to where Sphinx reads them.

A page has a comment where generated text belongs: `<!-- generated: strategies -->`. Generated files are written only if their
text has changed, so that an unchanged page is not built again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from docs._ext.command_reference import command_reference
from docs._ext.data_sets import data_sets
from docs._ext.panel_terms import lab_terms, panel_list
from docs._ext.root_documents import root_document
from docs._ext.strategy_catalogue import strategy_list, strategy_pages

__all__ = ["PARTS", "copy_lessons", "insert", "remove_old_api", "setup", "write_strategies"]

DOCS = Path(__file__).parents[1]
LESSONS = DOCS.parent / "notebooks"
MARK = re.compile(r"^<!-- generated: ([\w. ]+) -->$", re.MULTILINE)

PARTS: dict[str, Callable[[], str]] = {
    **{name: partial(root_document, name) for name in ("CHANGELOG.md", "CONTRIBUTING.md", "DESIGN.md")},
    "commands": command_reference,
    "data sets": data_sets,
    "panels": panel_list,
    "strategies": strategy_list,
    "terms of the lab": lab_terms,
}


def insert(text: str) -> str:
    """Return the text of a page with its generated parts."""
    return MARK.sub(lambda found: PARTS[found[1]](), text)


def write_strategies(folder: Path = DOCS / "strategies" / "generated") -> None:
    """Write the page of every strategy, and remove pages of strategies that do not exist any more."""
    _write(folder, {f"{name}.md": page.encode() for name, page in strategy_pages().items()})


def copy_lessons(folder: Path = DOCS / "lessons") -> None:
    """Copy the lessons into the folder of the site."""
    _write(folder, {path.name: path.read_bytes() for path in sorted(LESSONS.glob("*.ipynb"))})


def remove_old_api(folder: Path = DOCS / "api") -> None:
    """Remove the pages of names that the API reference does not list any more; autosummary writes the others."""
    listed = set(re.findall(r"^   ([\w.]+)$", (DOCS / "api" / "index.md").read_text(), re.MULTILINE))
    for path in (folder / "generated").glob("labkit.*.rst"):
        if path.stem.removeprefix("labkit.") not in listed:
            path.unlink()


def _write(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir(exist_ok=True)
    endings = {Path(name).suffix for name in files}
    for old in folder.iterdir():
        if old.suffix in endings and old.name not in files and old.name != "index.md":
            old.unlink()
    for name, content in files.items():
        path = folder / name
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)


def _on_start(app: Any, config: Any) -> None:
    remove_old_api()
    write_strategies()
    copy_lessons()


def _on_read(app: Any, docname: str, source: list[str]) -> None:
    source[0] = insert(source[0])


def _outdated(app: Any, env: Any, added: set[str], changed: set[str], removed: set[str]) -> list[str]:
    """Return the pages with generated parts: they are always built again, because the code may have changed."""
    return [name for name in env.found_docs if name in env.all_docs and _marked(env, name)]


def _marked(env: Any, docname: str) -> bool:
    return bool(MARK.search(Path(env.doc2path(docname)).read_text()))


def setup(app: Any) -> dict[str, bool]:
    """Connect the events of Sphinx."""
    app.connect("config-inited", _on_start)
    app.connect("source-read", _on_read)
    app.connect("env-get-outdated", _outdated)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
