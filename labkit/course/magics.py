"""Lines of IPython in a student's source, replaced where Python would refuse them.

A source that Python can parse is left as it is. Otherwise one pass over its lines replaces each line that begins a
statement and can only be IPython's (`%magic`, `!command`, `name?`, `x = !command`) by `pass`, so line numbers stay. The
pass knows strings, brackets and continued lines: a `%` inside an expression is not touched. One parse and one pass:
the time is linear in the length of the source.
"""

from __future__ import annotations

import ast
import re

__all__ = ["without_magics"]

_OTHER_LANGUAGE = re.compile(r"\s*%%(?!time\b|timeit\b|capture\b|prun\b)\w+")
_TARGETS = re.compile(r"[\w\s,.]+")  # what stands before `= !command`
_HELP = re.compile(r"%{0,2}[\w.*]+")  # what stands before `?` or `??`
_TOKEN = re.compile(r"#|\\\n?|\"\"\"|'''|[\"'()\[\]{}\n]")


def without_magics(source: str) -> tuple[str, int]:
    """The source with IPython's lines out, and how many they were; line numbers stay."""
    if _OTHER_LANGUAGE.match(source):
        return "", source.count("\n") + 1  # `%%bash`, `%%html`: nothing in it is Python
    try:
        ast.parse(source)
        return source, 0
    except SyntaxError:
        return _replaced(source)
    except (ValueError, RecursionError, MemoryError):
        return source, 0  # no Python at all: the process that runs it says so


def _replaced(source: str) -> tuple[str, int]:
    """One pass: every line that begins a statement and is IPython's becomes `pass` at its indentation."""
    kept: list[str] = []
    dropped = depth = 0
    continued, quote = False, ""  # whether the line before ends in a backslash; the triple quotes that are open
    for line in source.split("\n"):
        if not depth and not quote and not continued and _is_magic(line):
            kept.append(line[: len(line) - len(line.lstrip())] + "pass")  # a block may have nothing else in it
            dropped += 1
            continue
        kept.append(line)
        depth, quote, continued = _after(line, depth, quote)
    return "\n".join(kept), dropped


def _is_magic(line: str) -> bool:
    """Whether a line at which a statement begins is IPython's; no such line is Python."""
    text = line.strip()
    if text[:1] in ("%", "!", "?"):
        return bool(text)
    if text.endswith("?"):
        return _HELP.fullmatch(text.rstrip("?").rstrip()) is not None
    targets, equals, value = text.partition("=")
    return bool(equals) and value.lstrip()[:1] in ("%", "!") and _TARGETS.fullmatch(targets) is not None


def _after(line: str, depth: int, quote: str) -> tuple[int, str, bool]:
    """(brackets open, triple quotes open, whether it is continued) after a line that began with these."""
    at, single = 0, ""
    while found := _TOKEN.search(line, at):
        token, at = found[0], found.end()
        if token.startswith("\\"):
            if at == len(line):
                return depth, quote, True
            at += 1  # what is escaped opens and closes nothing
        elif quote or single:
            if token == (quote or single):
                quote = single = ""
            elif len(token) == 3 and token[0] == single:
                single, at = "", found.start() + 1  # the end of one string, and what follows
        elif token == "#":
            break
        elif len(token) == 3:
            quote = token
        elif token in "\"'":
            single = token
        else:
            depth = depth + 1 if token in "([{" else max(depth - 1, 0)
    return depth, quote, False
