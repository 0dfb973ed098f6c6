"""The README's code runs unchanged, and does what the surrounding text describes."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def block(words):
    """The only block that contains these words."""
    (found,) = [block for block in BLOCKS if words in block]
    return found


def output(code, tmp_path):
    script = tmp_path / "example.py"
    script.write_text(code)
    command = [sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.dask
@pytest.mark.slow
def test_ten_lines(tmp_path):
    text = output(block("DaskCluster(workers=4"), tmp_path)
    assert "AsyncPS, 4 workers, 1 server, dask, seed 0" in text
    assert "stopped by     accuracy" in text
    assert "closes" in text
    shown = re.search(r"prints, on a machine.*?```\n(.*?)```", README, re.DOTALL)
    assert [line.split()[0] for line in shown[1].splitlines()] == [line.split()[0] for line in text.splitlines()]


def test_the_advice_of_the_readme_lists_the_strategies(tmp_path):
    text = output(block("lk.advise"), tmp_path)
    assert {"RingAllReduce", "SyncPS", "AsyncPS"} <= set(re.findall(r"\w+", text))


def test_the_user_defined_strategy_of_the_readme_runs(tmp_path):
    text = output(block("EverySecond"), tmp_path)
    assert re.search(r"updates +200 in", text)
    assert re.search(r"396 computed = 200 applied \+ 196 dropped \(late\) \+ 0 in flight; closes", text)


def test_the_lab_without_a_browser(tmp_path):
    text = output(block("lk.Lab("), tmp_path)
    assert "SSP" in text
    assert "you slowed w2 x5" in text
    assert (tmp_path / "runs.csv").read_text().count("\n") == 2
    code = text.splitlines()[-1]
    assert code.startswith("strategy=ssp&")
    from labkit.lab.share_text import read_share_text

    assert read_share_text(code, ("done",))[0].cluster.workers == 8


def test_machines_are_lost_and_nothing_else(tmp_path):
    text = output(block("lk.Kill("), tmp_path)
    for reported in ("w1 was killed", "s0 was killed"):
        assert reported in text, text
    book = ast.literal_eval(text.splitlines()[-1])
    assert book.pop("closes") is True
    dropped, computed = book.pop("dropped"), book.pop("computed")
    assert computed == sum(book.values()) + sum(dropped.values())


def test_every_block_is_run():
    assert len(BLOCKS) == 5  # those that need machines are marked `no-run`


def test_no_placeholder_is_left_over():
    assert re.findall(r"@\w+@", README) == []


def test_commands_exist():
    from labkit.cli import main

    named = set(re.findall(r"^labkit (\w+)", README, re.MULTILINE))
    assert named >= {"train", "simulate", "compare", "strategies", "doctor"}
    assert named <= set(main.commands)
