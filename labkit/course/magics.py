"""Lines of IPython in a student's source: dropped where Python would refuse them, with a note.

Its law: a source that Python can parse is left as it is. Otherwise the line at which Python gave up is looked at; if it is
IPython's, it is replaced and Python tries again. So a `%` inside a string or an expression is never touched.
"""

from __future__ import annotations

import ast
import re

__all__ = ["without_magics"]

_LINE = re.compile(r"\s*(?:[%!?]|.*\?\??\s*$|[\w\s,.]+=\s*[%!])")
_OTHER_LANGUAGE = re.compile(r"\s*%%(?!time\b|timeit\b|capture\b|prun\b)\w+")


def without_magics(source: str) -> tuple[str, int]:
    """The source with IPython's lines out, and how many they were; line numbers stay."""
    if _OTHER_LANGUAGE.match(source):
        return "", source.count("\n") + 1  # `%%bash`, `%%html`: nothing in it is Python
    lines, dropped = source.split("\n"), 0
    while True:
        try:
            ast.parse("\n".join(lines))
        except SyntaxError as why:
            number = (why.lineno or 0) - 1
            if not (0 <= number < len(lines) and _LINE.match(lines[number])):
                return "\n".join(lines), dropped
            line = lines[number]
            lines[number] = line[: len(line) - len(line.lstrip())] + "pass"  # a block may have nothing else in it
            dropped += 1
        except (ValueError, RecursionError, MemoryError):
            return "\n".join(lines), dropped  # no Python at all: the sandbox says so
        else:
            return "\n".join(lines), dropped
