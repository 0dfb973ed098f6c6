"""The command line, called in this process."""

import inspect

from click.testing import CliRunner, Result

from labkit.cli import main

# click before 8.2 writes standard error into `stdout`, unless it is told not to; later versions have no such parameter.
SEPARATED = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}


def invoke(*words: object, catch_exceptions: bool = False) -> Result:
    """`invoke("simulate", "--json")` -> a result with exit_code, stdout and stderr."""
    return CliRunner(**SEPARATED).invoke(main, [str(word) for word in words], catch_exceptions=catch_exceptions)
