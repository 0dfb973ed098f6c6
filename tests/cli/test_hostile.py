"""Hostile values for every option of the run commands: an exit code and an error message, no traceback."""

import click
import pytest

from labkit.cli import main
from tests.command_line import invoke

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


def exit_problem(words):
    """None, or a description of what is wrong with the command's exit."""
    result = invoke(*words, catch_exceptions=True)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return f"{type(result.exception).__name__}: {str(result.exception)[:100]}"
    if result.exit_code not in (0, 1, 2):
        return f"exit code {result.exit_code}"
    usage_error = result.exit_code == 2
    has_message = any(line.startswith("Error: ") for line in result.stderr.splitlines())
    if "Traceback" in result.stderr or len(result.stderr) > 5000 or (usage_error and not has_message):
        return f"standard error of {len(result.stderr):,} characters: {result.stderr[:100]}"
    return None


def check_hostile_values(command, option):
    wrong = {label: exit_problem([command, *COMMANDS[command], f"{option}={text}"]) for label, text in TEXTS.items()}
    assert {label: what for label, what in wrong.items() if what is not None} == {}


@pytest.mark.sample(8)
@pytest.mark.parametrize("option", [option for command, option in CASES if command == "simulate"])
def test_simulate_reports_hostile_option_values(option, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_hostile_values("simulate", option)


@pytest.mark.slow
@pytest.mark.sample(slow=12)  # the options are those of `simulate`
@pytest.mark.parametrize(("command", "option"), [case for case in CASES if case[0] != "simulate"])
def test_other_commands_report_hostile_option_values(command, option, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_hostile_values(command, option)


def test_hostile_command_and_strategy_names_are_reported():
    for text in TEXTS.values():
        assert exit_problem([text]) is None, text
        assert exit_problem(["compare", text, text]) is None, text
