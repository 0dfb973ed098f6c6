"""Tests wait for events: none sleeps, and none asserts how much wall time has passed."""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent
CLOCK = re.compile(r"\b(time|monotonic|perf_counter)(_ns)?\(\)")


def test_no_test_sleeps_or_asserts_the_wall_time():
    files, found, checked = sorted(TESTS.rglob("*.py")), [], 0
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Assert):
                checked += 1
                bad = CLOCK.search(ast.unparse(node.test))
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                bad = ast.unparse(node.value.func) in ("sleep", "time.sleep")
            else:
                continue
            if bad:
                found.append(f"{file.relative_to(TESTS)}:{node.lineno}: {ast.unparse(node)}")
    assert len(files) > 200
    assert checked > 5000
    assert not found, "\n".join(found)
