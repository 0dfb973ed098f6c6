"""Tables of calls that must be refused, each with a pattern of its message: all that are wrong are listed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import labkit as lk


def check_refused(cases: Iterable[tuple[Callable[[], object], str]]) -> None:
    """Assert that every call raises `BadInput` with a message that the pattern matches anywhere."""
    wrong, count = [], 0
    for count, (call, pattern) in enumerate(cases, 1):
        try:
            wrong.append(f"case {count}, {pattern!r}: not refused, returned {call()!r:.200}")
        except lk.BadInput as error:
            if not re.search(pattern, str(error)):
                wrong.append(f"case {count}, {pattern!r}: {error}")
        except Exception as error:
            wrong.append(f"case {count}, {pattern!r}: {error!r}")
    assert count, "no case"
    assert not wrong, "\n".join(wrong)
