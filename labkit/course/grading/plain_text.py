"""Text of students for a page, a spreadsheet or a terminal: without characters that are not shown or change what is shown."""

from __future__ import annotations

import re
import unicodedata

_JOINERS = "\u200c\u200d"  # they belong to the spelling of words in Persian, Hindi and other languages
# categories: control and format characters (such as marks of direction), halves of pairs, separators of lines and paragraphs
_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
_ANSI = re.compile("\x1b\\[[0-?]*[ -/]*[@-~]")
_RESERVED = re.compile(r"(?i)(?:con|prn|aux|nul|com[0-9]|lpt[0-9])")  # names of devices on Windows
MAX_STEM_BYTES = 180  # of a file's name, which may have 255


def shown_text(text: str) -> str:
    """Return the text without control characters, except line ends and tabs, and without marks of direction."""
    text = _ANSI.sub("", text).replace("\r\n", "\n").replace("\r", "\n").replace("\u2028", "\n").replace("\u2029", "\n")
    kept = (letter if letter in "\n\t" + _JOINERS else _without_hidden(letter) for letter in text)
    return "".join(kept)


def _without_hidden(letter: str) -> str:
    category = unicodedata.category(letter)
    return "?" if category == "Cs" else "" if category in _HIDDEN else letter


def spreadsheet_cell(value: str) -> str:
    """Return a text that no spreadsheet evaluates, whichever character separates its columns.

    An apostrophe is put before each sign that begins a formula (also a full-width one), at the beginning of a line and after a
    semicolon, which separates columns in some languages. A cell that is `-` is not changed.
    """
    text = shown_text(value).replace("\t", " ")
    if text == "-":
        return text
    parts = re.split("([;\n])", text)
    return "".join(_no_formula(part) for part in parts)


def _no_formula(part: str) -> str:
    # normalized, because a spreadsheet takes full-width signs for signs, too
    begin = unicodedata.normalize("NFKC", part.lstrip(" \"'\u00a0")[:1])
    return f"'{part}" if begin.startswith(("=", "+", "-", "@", "\u2212")) else part


def file_stem(name: str) -> str:
    """Return the name of a file for a text: its letters and digits in any script, valid on every system; "" if it has none."""
    kept = "".join(letter if letter in "_-" or unicodedata.category(letter)[0] in "LNM" else " " for letter in name)
    stem = "_".join(unicodedata.normalize("NFC", kept).split()).strip("_")
    stem = stem.encode("utf-8", "ignore")[:MAX_STEM_BYTES].decode("utf-8", "ignore").strip("_")
    return f"{stem}_" if _RESERVED.fullmatch(stem) else stem
