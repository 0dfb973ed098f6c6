"""Tests wait for events: none sleeps, and none asserts how much wall time has passed."""

import ast
from pathlib import Path

TESTS = Path(__file__).parent
CLOCKS = ("time.time()", "time.monotonic()", "time.perf_counter()", "monotonic()", "perf_counter()")


def test_no_test_sleeps_or_asserts_the_wall_time():
    files, found = sorted(TESTS.rglob("*.py")), []
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("time.sleep", "sleep"):
                found.append(f"{file.relative_to(TESTS)}:{node.lineno}: {ast.unparse(node)}")
            elif isinstance(node, ast.Assert) and any(clock in ast.unparse(node.test) for clock in CLOCKS):
                found.append(f"{file.relative_to(TESTS)}:{node.lineno}: {ast.unparse(node)}")
    assert len(files) > 200
    assert not found, "\n".join(found)
