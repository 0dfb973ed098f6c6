"""How a command ends: a mistake in one sentence on standard error and exit code 2, a failed run in 1, Ctrl-C in 130.

Only errors that labkit raises on purpose are put into a sentence; anything else is a bug and keeps its traceback.
"""

from __future__ import annotations

from typing import Any

import click

from ..errors import BadInput, LabkitError, nearest

__all__ = ["FAILED", "INTERRUPTED", "MISUSED", "SentenceGroup"]

FAILED, MISUSED, INTERRUPTED = 1, 2, 130
MOST = 4000  # characters of a message


class SentenceGroup(click.Group):
    """A group of commands whose errors are sentences."""

    def invoke(self, ctx: click.Context) -> Any:
        """Carry out the command; translate what it raises."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            raise Refused(_bounded(error.format_message())) from None
        except LabkitError as error:
            raise (Refused if isinstance(error, BadInput) else click.ClickException)(_bounded(str(error))) from None
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            raise click.exceptions.Exit(INTERRUPTED) from None

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Refuse an unknown command with the nearest one."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise nearest("command", args[0], self.commands)
        return super().resolve_command(ctx, args)


def _bounded(sentence: str) -> str:
    """A message as it is; without its middle where what was typed makes it too long to read."""
    if len(sentence) <= MOST:
        return sentence
    return f"{sentence[: MOST // 2]}...{sentence[-MOST // 4 :]} ({len(sentence):,} characters)"


class Refused(click.ClickException):
    """A sentence and exit code 2."""

    exit_code = MISUSED
