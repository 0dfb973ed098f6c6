"""The examples of README.md, CONTRIBUTING.md and docs/ run, and print what the documents show.

The blocks of a page run in their order, in one folder. The first word of a fence is the language; then it may have:

- `no-run`: the block needs other machines, a network or half an hour. Python is compiled, options of commands are checked.
- `slow`: the block starts processes or takes more than a few seconds; it belongs to the slow suites.
- `file=NAME`: the block is written to this file; a later block imports or runs it.

A `text` block directly after a Python block is what it prints; `...` stands for any text, as in doctest. Python blocks run as
programs of their own. Blocks of `sh` run in bash and must succeed; those with commands of labkit only run in this process.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import runpy
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import click
import pytest

from labkit.cli import main
from tests.command_line import invoke

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^`\n]*)\n(?P<code>.*?)^(?P=indent)```$", re.DOTALL | re.MULTILINE)
LANGUAGES = {"python", "sh", "text", "json", "toml", "yaml", "", "math"}
MARKS = {"no-run", "slow"}


@dataclass
class Block:
    """A fenced block of a page: language, marks (words after the language), code, the output that the page shows."""

    page: Path
    line: int
    language: str
    marks: set[str]
    code: str
    file: str = ""
    shown: str | None = field(default=None, repr=False)

    @property
    def runs(self) -> bool:
        return self.language in ("python", "sh") and "no-run" not in self.marks

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    text, found, end = page.read_text(), [], 0
    for match in FENCE.finditer(text):
        language, *marks = match["info"].split() or [""]
        code = re.sub(f"^{match['indent']}", "", match["code"], flags=re.MULTILINE)
        files = [mark.partition("=")[2] for mark in marks if mark.startswith("file=")]
        plain = {mark for mark in marks if not mark.startswith("file=")}
        if language == "text" and found and found[-1].language == "python" and not text[end : match.start()].strip():
            found[-1].shown = code
        else:
            line = text.count("\n", 0, match.start()) + 1
            found.append(Block(page, line, language, plain, code, *files))
        end = match.end()
    return found


BLOCKS = [block for page in PAGES for block in blocks_of(page)]
RUN = [page for page in PAGES if any(block.runs for block in blocks_of(page))]
PROCESSES = re.compile(r"DaskCluster|lk\.Lab|labkit (train|calibrate)|pytest")
# without README, see test_readme
SLOW = [page for page in RUN[1:] if any("slow" in block.marks for block in blocks_of(page))]


def layer(page: Path) -> pytest.MarkDecorator:
    """The layer of the slow examples of a page."""
    slow = "\n".join(block.code for block in blocks_of(page) if "slow" in block.marks)
    return pytest.mark.dask if PROCESSES.search(slow) else pytest.mark.simulated


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def run_here(block: Block, folder: Path) -> str:
    """Run a program in this process, and return what it printed."""
    script = folder / f"line_{block.line}.py"
    script.write_text(block.code)
    modules, path, printed = set(sys.modules), list(sys.path), io.StringIO()
    sys.path.insert(0, str(folder))
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            runpy.run_path(str(script), run_name="__main__")
    finally:
        sys.path[:] = path
        for module in set(sys.modules) - modules:
            if str(getattr(sys.modules[module], "__file__", "")).startswith(str(folder)):
                del sys.modules[module]
    return printed.getvalue()


def run_command(command: list[str], block: Block) -> str:
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=env)
    assert done.returncode == 0, f"{block.where} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout


def run(block: Block, folder: Path) -> None:
    if block.file:
        (folder / block.file).write_text(block.code)
        return
    if block.language == "sh":
        if re.match(r"(labkit (.*\\\n)*[^|<>&;$`\n]*\n)+\Z", block.code):
            for words in commands(block.code):
                done = invoke(*words, catch_exceptions=True)
                assert done.exit_code == 0, f"{block.where} ended with {done.exit_code}:\n{done.stdout}{done.stderr}"
        else:
            run_command(["bash", "-euo", "pipefail", "-c", block.code], block)
        return
    if "slow" in block.marks:  # processes import the script again, so it must be the main program
        script = folder / f"line_{block.line}.py"
        script.write_text(block.code)
        output = run_command([sys.executable, str(script)], block)
    else:
        output = run_here(block, folder)
    if block.shown is not None:
        same = doctest.OutputChecker().check_output(
            block.shown, output, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        )
        assert same, f"{block.where} shows\n{block.shown}\nand prints\n{output}"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder in which the blocks of a page run. Examples for a checkout find its tests there."""
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.simulated
@pytest.mark.parametrize("page", RUN, ids=name)
def test_the_examples_of_a_page_run(page, folder):
    for block in blocks_of(page):
        if block.runs and "slow" not in block.marks:
            run(block, folder)


@pytest.mark.slow
@pytest.mark.parametrize("page", [pytest.param(page, marks=layer(page), id=name(page)) for page in SLOW])
def test_the_slow_examples_of_a_page_run(page, folder):
    for block in blocks_of(page):
        if block.runs and ("slow" in block.marks or block.file):
            run(block, folder)


def test_blocks_have_known_languages_and_marks():
    assert len(BLOCKS) > 100
    violations = [
        f"{block.where}: {block.language} {' '.join(block.marks)}"
        for block in BLOCKS
        if not block.language.startswith("{")  # a directive of the site
        and not (block.language in LANGUAGES and block.marks <= MARKS)
    ]
    for page in PAGES:
        text = page.read_text()
        if len(re.findall(r"^ *```", text, re.MULTILINE)) != 2 * len(FENCE.findall(text)):
            violations.append(f"{name(page)}: a fence is not closed")
    assert not violations, "\n".join(violations)


def test_python_that_does_not_run_here_is_valid():
    blocks = [block for block in BLOCKS if block.language == "python" and not block.runs]
    assert blocks
    for block in blocks:
        compile(block.code, block.where, "exec")


def commands(code: str) -> list[list[str]]:
    """The words of all `labkit` commands in a block of `sh` or in `code` of a sentence."""
    joined = code.replace("\\\n", " ")
    lines = [line.split(" || ")[0] for line in joined.splitlines() if re.match(r"\s*labkit\s", line)]
    return [shlex.split(line, comments=True)[1:] for line in lines]


def test_commands_and_their_options_exist():
    used, violations = 0, []
    for page in PAGES:
        quoted = [code for code in re.findall(r"`(labkit [^`]+)`", page.read_text()) if "COMMAND" not in code]
        for words in commands("\n".join([*quoted, *(b.code for b in blocks_of(page) if b.language == "sh")])):
            if not words or words[0].startswith("-"):
                continue
            used += 1
            if (command := main.commands.get(words[0].rstrip(","))) is None:
                violations.append(f"{name(page)}: labkit {words[0]}")
                continue
            context = click.Context(command, parent=click.Context(main, **main.context_settings))
            known = {option for parameter in command.get_params(context) for option in parameter.opts}
            options = {word.partition("=")[0] for word in words[1:] if word.startswith("--") and len(word) > 2}
            if not options <= known | {"--help"}:
                violations.append(f"{name(page)}: labkit {' '.join(words)}")
    assert used > 50
    assert not violations, "\n".join(violations)
