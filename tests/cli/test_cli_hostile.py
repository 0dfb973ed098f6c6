"""Every option of the commands is given hostile texts: an exit code and a sentence, never a traceback."""

import click
import pytest
from click.testing import CliRunner

from labkit.cli import main

TEXTS = {
    "1e999": "1e999", "nan": "nan", "inf": "-inf", "huge": "9" * 5000, "empty": "", "blank": " ", "long": "x" * 100_000,
    "long number": "1" * 100_000, "long path": "x/" * 40_000, "unicode": "\u0661\U0001f600\u202e", "surrogate": "\udcff",
    "a folder": "/", "colons": "::::", "equals": "=====", "minus": "-1", "zero": "0", "braces": "{0} %s\n\x1b[2J",
}  # fmt: skip
SMALL = ["--dataset", "moons", "--hidden", "2", "--timing-only", "--updates", "2", "--workers", "2"]
COMMANDS = {"simulate": SMALL, "compare": ["async-ps", "sync-ps", "--engine", "simulated", *SMALL], "strategies": []}
COMMANDS["train"] = ["--engine", "simulated", *SMALL]
CASES = [
    (command, option.opts[0])
    for command in COMMANDS
    for option in main.commands[command].params
    if isinstance(option, click.Option) and not option.is_flag
]


def ends_in_a_sentence(words):
    """None, or a description of what is wrong with the command's exit."""
    result = CliRunner().invoke(main, words)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return f"{type(result.exception).__name__}: {str(result.exception)[:100]}"
    if result.exit_code not in (0, 1, 2):
        return f"exit code {result.exit_code}"
    refused = result.exit_code == 2
    said = any(line.startswith("Error: ") for line in result.stderr.splitlines())
    if "Traceback" in result.stderr or len(result.stderr) > 5000 or (refused and not said):
        return f"standard error of {len(result.stderr):,} characters: {result.stderr[:100]}"
    return None


def check(command, option):
    wrong = {label: ends_in_a_sentence([command, *COMMANDS[command], f"{option}={text}"]) for label, text in TEXTS.items()}
    assert {label: what for label, what in wrong.items() if what is not None} == {}


@pytest.mark.sample(8)
@pytest.mark.parametrize("option", [option for command, option in CASES if command == "simulate"])
def test_simulate(option, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check("simulate", option)


@pytest.mark.slow
@pytest.mark.parametrize(("command", "option"), [case for case in CASES if case[0] != "simulate"])
def test_the_other_commands(command, option, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check(command, option)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_hostile_word_in_place_of_a_command_or_a_strategy(text):
    assert ends_in_a_sentence([text]) is None
    assert ends_in_a_sentence(["compare", text, text]) is None
