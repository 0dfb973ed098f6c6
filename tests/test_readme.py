"""README.md: short, without placeholders, and true. `test_documents.py` runs its examples."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_documents import blocks_of

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


@pytest.mark.dask
@pytest.mark.slow
def test_the_ten_lines_print_the_lines_that_are_shown(tmp_path):
    (block,) = [block for block in blocks_of(ROOT / "README.md") if block.language == "python"]
    script = tmp_path / "example.py"
    script.write_text(block.code)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=180, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "AsyncPS, 4 workers, 1 server, dask, seed 0" in done.stdout
    assert "stopped by     accuracy" in done.stdout
    assert "closes" in done.stdout
    (shown,) = [block for block in blocks_of(ROOT / "README.md") if block.language == "text"]
    assert [line.split()[0] for line in shown.code.splitlines()] == [
        line.split()[0] for line in done.stdout.splitlines()
    ]


def test_it_has_at_most_two_screens_of_text():
    assert len(README.splitlines()) <= 130


def test_it_has_the_two_commands():
    commands = [block.code.strip() for block in blocks_of(ROOT / "README.md") if block.language == "sh"]
    assert commands == [
        "python3 -m venv .venv && . .venv/bin/activate && pip install -e . && labkit lab",
        'python3 -m venv .venv && . .venv/bin/activate && pip install -e ".[test]" && pytest -n auto',
    ]


def test_it_names_every_strategy():
    from labkit.strategies import STRATEGIES

    assert {strategy.__name__ for strategy in STRATEGIES.values()} <= set(re.findall(r"\w+", README))


def test_it_links_every_guide():
    guides = {path.name for path in (ROOT / "docs" / "guides").glob("*.md")} - {"index.md", "contributing.md"}
    assert guides <= {link.rpartition("/")[2] for link in re.findall(r"\]\((docs/guides/[^)#]+)", README)}
