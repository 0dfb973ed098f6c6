"""Checks the links between the pages of a built site: files, and anchors in them."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["broken_links"]


class Page(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, text: str):
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if value and (name == "id" or (tag == "a" and name == "name")):
                self.anchors.add(value)
            elif value and name in ("href", "src") and tag != "base":
                self.links.add(value)


def broken_links(folder: Path) -> list[str]:
    """Return "page: link" for every relative link whose file or anchor does not exist in the site in `folder`."""
    # templates of the theme
    paths = [path.resolve() for path in sorted(folder.rglob("*.html")) if "_static" not in path.parts]
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in paths}
    broken = []
    for path, page in pages.items():
        if "_modules" in path.parts:  # back links of viewcode, which names a class by its first page
            continue
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            missing = not target.is_file() or (anchor and target in pages and anchor not in pages[target].anchors)
            if missing:
                broken.append(f"{path.relative_to(folder.resolve())}: {link}")
    return broken
