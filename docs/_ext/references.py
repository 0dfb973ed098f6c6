"""References in docstrings, and what pages need besides.

- Single backticks in docstrings: a link if the text is a public name, else code.
- Pictures of cells: their size on the page is their size at 100 dots per inch.
- Rows of the glossary: `{term}` refers to them.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import re
import struct
import typing
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.util.docutils import SphinxRole

import labkit

__all__ = ["CodeOrReference", "readable_signature", "setup"]

NAME = re.compile(r"(?:lk\.)?([A-Za-z_]\w*(?:\.\w+)*)(?:\(.*\))?")
DPI = 100


class CodeOrReference(SphinxRole):
    """The default role of reStructuredText: a reference to a public name if there is one, else code."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        code = nodes.literal(self.rawtext, self.text, classes=["xref", "py", "py-obj"])
        found = NAME.fullmatch(self.text)
        if found is None:
            return [nodes.literal(self.rawtext, self.text)], []
        reference = addnodes.pending_xref(
            self.rawtext, code, refdomain="py", reftype="obj", reftarget=found[1], refexplicit=False, optional=True
        )
        reference["refdoc"] = self.env.docname
        reference["py:module"] = "labkit"
        reference["py:class"] = self.env.ref_context.get("py:class")
        return [reference], []


def without_target(app: Any, env: Any, node: Any, content: nodes.Node) -> nodes.Node | None:
    """Return the text of a reference without a link, if the reference is optional, or names an internal class of labkit.

    Signatures contain internal classes; a class that does not exist is an error.
    """
    target = str(node.get("reftarget", ""))
    if node.get("refdomain") == "py" and not node.get("optional"):
        for module in ("labkit", *(f"labkit.{name}" for name in labkit.MODULES)):
            if target in importlib.import_module(module).__all__:
                domain, full = env.get_domain("py"), f"{module}.{target}"
                return (
                    domain.resolve_xref(env, node["refdoc"], app.builder, node["reftype"], full, node, content)
                    or content
                )
    return content if node.get("optional") or _exists(target) else None


def _exists(target: str) -> bool:
    """Return whether labkit or `typing` defines this name. The module of a name that only type checkers import is not known."""
    module, _, name = target.rpartition(".")
    return (not module or module.startswith("labkit.")) and (name in _defined() or hasattr(typing, name))


@functools.cache
def _defined() -> frozenset[str]:
    """Return the names of all classes and types at the top of modules of labkit."""
    sources = Path(labkit.__file__).parent.rglob("*.py")
    definition = re.compile(r"^ *(?:class )?([A-Z]\w*)\b[^,\n]*[:=]", re.MULTILINE)
    return frozenset(name for path in sources for name in definition.findall(path.read_text()))


def readable_signature(signature: str, documented: Any) -> str:
    """Return a signature in which fields that are converted accept both types (`Converted[A, B]` is `A | B`), and in which the
    defaults that dataclasses make anew are written as values.
    """
    if dataclasses.is_dataclass(documented):
        for field in dataclasses.fields(documented):
            if callable(field.default_factory) and field.init:
                signature = signature.replace("<factory>", repr(field.default_factory()), 1)
    signature = re.sub(r", _\w+(?:: [^,()]*)?(?= = ) = \w+(?=[,)])", "", signature)  # arguments of labkit itself
    while found := re.search(r"~?[\w.]*\bAnnotated\[", signature):
        depth, comma = 1, 0
        for at in range(found.end(), len(signature)):  # `depth` brackets are open
            depth += {"[": 1, "]": -1}.get(signature[at], 0)
            comma = at if signature[at] == "," and depth == 1 else comma
            if depth == 0:
                break
        both = f"{signature[found.end() : comma]} | {signature[comma + 1 : at].strip()}"
        signature = signature[: found.start()] + both + signature[at + 1 :]
    return signature


def on_signature(app: Any, what: str, name: str, documented: Any, options: Any, signature: str, result: str) -> Any:
    """Make the signature of a class readable. An instance is what a class returns."""
    return (readable_signature(signature, documented), None) if what == "class" and signature else None


def set_sizes(app: Any, doctree: nodes.document) -> None:
    """Give pictures that cells have made the width that they have in a notebook."""
    for image in doctree.findall(nodes.image):
        path = Path(app.srcdir, image["uri"])
        if "width" not in image and "jupyter_execute" in image["uri"] and path.suffix == ".png":
            data = path.read_bytes()
            width = struct.unpack(">I", data[16:20])[0]
            at = data.find(b"pHYs")
            dpi = struct.unpack(">I", data[at + 4 : at + 8])[0] * 0.0254 if at > 0 else DPI
            image["width"] = f"{round(width * DPI / dpi)}px"


def note_terms(app: Any, doctree: nodes.document) -> None:
    """Make every row of the glossary's table a target of `{term}`."""
    if app.env.docname != "glossary":
        return
    domain = app.env.get_domain("std")
    for row in doctree.findall(nodes.row):
        first = row[0]
        if isinstance(row.parent, nodes.tbody):
            term = first.astext()
            anchor = nodes.make_id(f"term-{term}")
            first["ids"].append(anchor)
            domain._note_term(term, anchor, location=row)


def setup(app: Any) -> dict[str, bool]:
    """Connect the events of Sphinx."""
    app.add_role("labkit-code", CodeOrReference())
    app.connect("missing-reference", without_target)
    app.connect("autodoc-process-signature", on_signature)
    app.connect("doctree-read", set_sizes)
    app.connect("doctree-read", note_terms)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
