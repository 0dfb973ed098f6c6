"""Removes IPython syntax (magics, shell commands, help) from a submitted source, so that Python can parse it.

A source that is valid Python is not changed. In any other source, each line that begins a statement and is IPython
syntax (`%magic`, `!command`, `name?`, `x = !command`) is replaced by the statement `pass`, which keeps the line
numbers. Strings, brackets and continued lines are tracked, so that a `%` inside an expression is not changed. The time
is linear in the length of the source.
"""

from __future__ import annotations

import ast
import re

_OTHER_LANGUAGE = re.compile(r"\s*%%(?!time\b|timeit\b|capture\b|prun\b)\w+")
_TARGETS = re.compile(r"[\w\s,.]+")  # before `= !command`
_HELP = re.compile(r"%{0,2}[\w.*]+")  # before `?` or `??`
_TOKEN = re.compile(r"#|\\\n?|\"\"\"|'''|[\"'()\[\]{}\n]")


def without_magics(source: str) -> tuple[str, int]:
    """Return (the source without IPython syntax, the number of lines replaced). Line numbers do not change."""
    if _OTHER_LANGUAGE.match(source):
        return "", source.count("\n") + 1  # a cell in another language, such as `%%bash`
    try:
        ast.parse(source)
        return source, 0
    except SyntaxError:
        return _replaced(source)
    except (ValueError, RecursionError, MemoryError):
        return source, 0  # the student process reports the error


def _replaced(source: str) -> tuple[str, int]:
    """Replace every line that begins a statement and is IPython syntax by `pass` at its indentation."""
    kept: list[str] = []
    dropped = depth = 0
    continued, quote = False, ""  # whether the previous line ends in a backslash; the open triple quote
    for line in source.split("\n"):
        if not depth and not quote and not continued and _is_magic(line):
            kept.append(
                line[: len(line) - len(line.lstrip())] + "pass"
            )  # `pass`, because it may be the only line of a block
            dropped += 1
            continue
        kept.append(line)
        depth, quote, continued = _after(line, depth, quote)
    return "\n".join(kept), dropped


def _is_magic(line: str) -> bool:
    """Whether a line at which a statement begins is IPython syntax, which is never valid Python."""
    text = line.strip()
    if text[:1] in ("%", "!", "?"):
        return bool(text)
    if text.endswith("?"):
        return _HELP.fullmatch(text.rstrip("?").rstrip()) is not None
    targets, equals, value = text.partition("=")
    return bool(equals) and value.lstrip()[:1] in ("%", "!") and _TARGETS.fullmatch(targets) is not None


def _after(line: str, depth: int, quote: str) -> tuple[int, str, bool]:
    """Return (number of open brackets, open triple quote or "", whether the line ends in a backslash) after a line.

    depth, quote: the open brackets and the open triple quote before the line.
    """
    at, single = 0, ""
    while found := _TOKEN.search(line, at):
        token, at = found[0], found.end()
        if token.startswith("\\"):
            if at == len(line):
                return depth, quote, True
            at += 1  # an escaped character has no meaning
        elif quote or single:
            if token == (quote or single):
                quote = single = ""
            elif len(token) == 3 and token[0] == single:
                single, at = "", found.start() + 1  # the first quote ends the string
        elif token == "#":
            break
        elif len(token) == 3:
            quote = token
        elif token in "\"'":
            single = token
        else:
            depth = depth + 1 if token in "([{" else max(depth - 1, 0)
    return depth, quote, False
