"""The feedback page of one student: HTML with scores and hints.

All texts are escaped, and free of control characters and marks of direction. Data that only the instructor may see
(`TestScore.detail`, the ids of tests) are not used.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from html import escape

from .lms import Student
from .plain_text import file_stem, shown_text
from .scores import QuestionScore, Result, format_points

_STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:44em;margin:2em auto;padding:0 1em;color:#222;background:#fff}
table{border-collapse:collapse;width:100%}th,td{text-align:left;vertical-align:top;padding:.4em .8em .4em 0;
border-bottom:1px solid #ccc}pre{white-space:pre-wrap;background:#f4f4f4;padding:.6em}.no{color:#a00}
@media (prefers-color-scheme:dark){body{color:#ddd;background:#111}pre{background:#222}.no{color:#f88}}"""


def page(result: Result, title: str) -> str:
    parts = [f"<h1>{_html(title)}</h1>", f"<p>{_html(result.student.name)}</p>"]
    if result.problem:
        parts.append(f'<p class="no">Nothing could be graded: {_html(result.problem)}.</p>')
    else:
        parts.append(f"<p><b>{format_points(result.earned)} of {format_points(result.points)} points</b></p>")
        rows = "".join(_row(score) for score in result.questions if score.tests)
        parts.append(f"<table><tr><th>Question<th>Points<th>Result</tr>{rows}</table>")
    for score in result.questions:
        parts.extend(_by_hand(score, bool(result.problem)))
    if result.notes:
        parts.append(f"<h2>Notes</h2><ul>{''.join(f'<li>{_html(note)}</li>' for note in result.notes)}</ul>")
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{_html(title)}</title>'
    return f'<!doctype html>\n<html lang="en"><head>{head}<style>{_STYLE}</style></head>\n<body>{"".join(parts)}</body></html>\n'


def _row(score: QuestionScore) -> str:
    found = (
        "all checks passed"
        if score.ok
        else "<br>".join(f'<span class="no">{_html(hint)}</span>' for hint in score.hints)
    )
    note = "<br>(graded with correct answers to the questions before it)" if score.with_reference else ""
    points = f"{format_points(score.earned)} of {format_points(score.points)}"
    return f"<tr><td>{_html(score.question)}<td>{points}<td>{found}{note}</tr>"


def _by_hand(score: QuestionScore, failed: bool) -> list[str]:
    """Return the HTML of the text answers, which are graded by hand."""
    if not score.answers or failed:
        return []
    texts = "".join(
        f"<pre>{_html(text)}</pre>" if text else "<p>There is no answer.</p>" for text in score.answers.values()
    )
    return [f"<h2>{_html(score.question)}: graded by hand, {format_points(score.by_hand)} points</h2>{texts}"]


def file_names(students: Sequence[Student]) -> list[str]:
    """Return a file name for each student: the name in its own script, and the id. The names are valid on every system and all
    different, also where upper and lower case are the same.
    """
    names: list[str] = []
    taken: set[str] = set()
    tried: dict[str, int] = {}
    for student in students:
        stem = file_stem("_".join(filter(None, (student.name, student.id)))) or "student"
        again = tried.get(_same(stem), 1)  # the first number to try, so that thousands of equal names take linear time
        name = f"{stem}.html" if again == 1 else f"{stem}-{again}.html"
        while _same(name) in taken:
            again += 1
            name = f"{stem}-{again}.html"
        tried[_same(stem)] = again + 1
        taken.add(_same(name))
        names.append(name)
    return names


def _same(name: str) -> str:
    """Return what is equal for names that a file system may take for the same."""
    return unicodedata.normalize("NFKC", name).casefold()


def _html(text: str) -> str:
    """Return the text without markup, control characters and marks of direction."""
    return escape(shown_text(text))
