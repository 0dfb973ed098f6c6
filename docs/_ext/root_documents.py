"""Documents of the repository's top folder as pages of the site: their links to other files lead to pages."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["ROOT_PAGES", "page_of", "root_document"]

ROOT = Path(__file__).parents[2]
ROOT_PAGES = {
    "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "guides/contributing.md", "DESIGN.md": "design.md",
    "README.md": "index.md",
}  # fmt: skip
LINK = re.compile(r"\[([^\]\[]*(?:\[[^\]]*\][^\]\[]*)*)\]\(([^()\s]+)\)")


def root_document(name: str) -> str:
    """Return a document in which links to files of the repository lead to pages. A file without a page is named, not linked."""
    return LINK.sub(lambda found: _relinked(found[1], found[2]), (ROOT / name).read_text())


def _relinked(label: str, target: str) -> str:
    if target.startswith(("#", "http:", "https:", "mailto:")):
        return f"[{label}]({target})"
    page = page_of(target)
    return label if page is None else f"[{label}](/{page})"


def page_of(target: str) -> str | None:
    """Return the page (with anchor) of a file that is named relative to the top folder; None if it has none."""
    path, mark, anchor = target.partition("#")
    page = ROOT_PAGES.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
    if page is not None and page.endswith("/"):
        page += "index.md"
    return None if page is None else page + mark + anchor
