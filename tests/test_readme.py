"""The README's code is run as it stands there, and does what the text around it says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def output(block, tmp_path):
    script = tmp_path / "example.py"
    script.write_text(block)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.dask
@pytest.mark.slow
def test_ten_lines(tmp_path):
    text = output(BLOCKS[0], tmp_path)
    assert "AsyncPS, 4 workers, 1 server, dask, seed 0" in text
    assert "stopped by     accuracy" in text
    assert "closes" in text
    shown = re.search(r"prints, on a machine.*?```\n(.*?)```", README, re.DOTALL)
    assert [line.split()[0] for line in shown[1].splitlines()] == [line.split()[0] for line in text.splitlines()]


def test_the_advice(tmp_path):
    text = output(BLOCKS[1], tmp_path)
    assert {"RingAllReduce", "SyncPS", "AsyncPS"} <= set(re.findall(r"\w+", text))


def test_a_strategy_of_ones_own(tmp_path):
    text = output(BLOCKS[2], tmp_path)
    assert re.search(r"updates +200 in", text)
    assert re.search(r"396 computed = 200 applied \+ 196 dropped \(late\) \+ 0 in flight; closes", text)


def test_no_placeholder_is_left_over():
    assert re.findall(r"@\w+@", README) == []


def test_commands_exist():
    from labkit.cli import main

    named = set(re.findall(r"^labkit (\w+)", README, re.MULTILINE))
    assert named >= {"train", "simulate", "compare", "strategies", "doctor"}
    assert named <= set(main.commands)
