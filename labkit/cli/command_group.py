"""The command group. Exit codes: 2 for a user's mistake (one sentence on standard error), 1 for a failed run, 130 for Ctrl-C.

Only errors of labkit (`LabkitError`) and of click are printed as a sentence. Any other exception is a bug and is shown
with its traceback.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from ..errors import BadInput, LabkitError, close_name, nearest, shown

FAILED, USAGE_ERROR, INTERRUPTED = 1, 2, 130
MAX_MESSAGE_CHARS = 4000  # characters of a message


class WholeNumber(click.IntRange):
    """`click.IntRange`, which is called "integer" in messages."""

    name = "integer"


class CommandGroup(click.Group):
    """A group of commands that prints errors as sentences."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments before the command; without arguments print the help."""
        if not args:
            return super().parse_args(ctx, args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            raise UsageFailure(_truncated(usage_message(error, ctx, self))) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            raise UsageFailure(_truncated(usage_message(error, ctx, self))) from None
        except LabkitError as error:
            raise (UsageFailure if isinstance(error, BadInput) else click.ClickException)(
                _truncated(str(error))
            ) from None
        except KeyboardInterrupt as interrupt:  # its notes say what is kept
            click.echo(" ".join(["Interrupted.", *getattr(interrupt, "__notes__", ())]), err=True)
            raise click.exceptions.Exit(INTERRUPTED) from None

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Look up the command. The error for an unknown command suggests the nearest command."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise nearest("command", args[0], self.commands)
        return super().resolve_command(ctx, args)


def usage_message(error: click.UsageError, ctx: click.Context, group: click.Group) -> str:
    """Return the message for an error in the command line: what is wrong and what is allowed, in one or two sentences. `error`
    is of `group` or of one of its commands.
    """
    here = error.ctx or ctx
    name = ctx.invoked_subcommand
    # some errors of click have no context
    command = here.command if error.ctx else group.commands.get(name or "", group)
    if isinstance(error, click.NoSuchOption):
        return _no_such_option(error.option_name, command, ctx, group)
    if isinstance(error, click.BadOptionUsage):
        return _value_error(error.option_name, command, ctx)
    if isinstance(error, click.MissingParameter):
        return f"{_as_typed(error.param)} is missing; the shortest form is {_usage(here)}."
    if isinstance(error, click.BadParameter) and error.param is not None:
        allowed = _allowed(error.param.type)
        return f"{_as_typed(error.param)}: {error.message.rstrip('.')}." + (f" Allowed: {allowed}." if allowed else "")
    if command is group:
        return f"A command is missing after {ctx.command_path}; allowed: {', '.join(sorted(group.commands))}."
    return f"{error.message.rstrip('.')}. Allowed: {_usage(here, '[OPTIONS]')}; --help lists the options."


def _no_such_option(given: str, command: click.Command, ctx: click.Context, group: click.Group) -> str:
    """Return the message for an unknown option: the commands that have it, or the nearest option of `command`."""
    program, own = ctx.command_path, _options(command, ctx)
    everywhere = {name: _options(other, ctx) for name, other in sorted(group.commands.items())}
    owners = [name for name, options in everywhere.items() if given in options]
    if command is group:
        if owners:
            belongs = f"{given} is an option of {', '.join(owners)} and is written after the command"
            return f"{belongs}, as in: {program} {owners[0]} {given}."
        near = _suggestion(given, {name for options in everywhere.values() for name in options})
        before = f"Options before the command: {', '.join(own)}; other options are written after it"
        return f"{program} has no option {shown(given)}.{near} {before} ({program} COMMAND --help lists them)."
    if given in _options(group, ctx):
        return f"{given} is written before the command, as in: {program} {given}."
    near = _suggestion(given, own)
    if owners and not near:
        near = f" It is an option of {', '.join(owners)}."
    forwarded = [param.metavar for param in command.params if param.type is click.UNPROCESSED and param.metavar]
    return f"{program} {command.name} has no option {shown(given)}.{near} Options: {', '.join([*own, *forwarded])}."


def _suggestion(given: str, options: Iterable[str]) -> str:
    """Return a suggestion of the option nearest to `given`, compared without dashes; "" if none is near."""
    known = {option.lstrip("-"): option for option in options}
    close = close_name(given.lstrip("-"), known)
    return f" Did you mean {known[close]!r}?" if close else ""


def _value_error(name: str, command: click.Command, ctx: click.Context) -> str:
    """Return the message for an option without its value, or with an unexpected value."""
    for param in _params(command, ctx):
        if name in param.opts and not param.is_flag:
            return f"{name} needs a value after it, as in: {name} {_metavar(param)}."
    return f"{shown(name)} takes no value; write it without one, or leave it out."


def _usage(ctx: click.Context, *more: str) -> str:
    """Return the command with its required arguments, in backquotes."""
    needed = [_as_typed(param) for param in ctx.command.params if param.required or isinstance(param, click.Argument)]
    return " ".join([f"`{ctx.command_path}", *needed, *more]) + "`"


def _as_typed(param: click.Parameter | None) -> str:
    """Return an option with its metavar, or an argument, as it is typed."""
    if isinstance(param, click.Option):
        return param.opts[0] if param.is_flag else f"{param.opts[0]} {_metavar(param)}"
    if param is None:
        return "an argument"
    return param.metavar or (param.name or "").upper() + ("..." if param.nargs != 1 else "")


def _metavar(param: click.Parameter) -> str:
    if isinstance(param.type, click.Choice):
        return "|".join(map(str, param.type.choices))
    return param.metavar or param.type.name.upper()


def _allowed(kind: click.ParamType) -> str:
    """Return the allowed values of a number; "" if the message of the type contains them."""
    if isinstance(kind, click.IntRange):
        most = f" to {kind.max}" if kind.max is not None else " upwards"
        return f"a whole number from {kind.min}{most}" if kind.min is not None else "a whole number"
    if isinstance(kind, type(click.INT)):
        return "a whole number"
    return "a number" if isinstance(kind, type(click.FLOAT)) else ""


def _params(command: click.Command, ctx: click.Context) -> list[click.Option]:
    """Return a command's options, including `--help`. `ctx`: the context of the group, whose settings commands inherit."""
    own = ctx if command is ctx.command else click.Context(command, parent=ctx)
    return [param for param in command.get_params(own) if isinstance(param, click.Option)]


def _options(command: click.Command, ctx: click.Context) -> list[str]:
    """Return all spellings of a command's options, long spellings first."""
    found = {name for param in _params(command, ctx) for name in param.opts}
    return sorted(found, key=lambda name: (not name.startswith("--"), name))


def _truncated(message: str) -> str:
    """Return the message, shortened in the middle if user input makes it too long."""
    if len(message) <= MAX_MESSAGE_CHARS:
        return message
    return f"{message[: MAX_MESSAGE_CHARS // 2]}...{message[-MAX_MESSAGE_CHARS // 4 :]} ({len(message):,} characters)"


class UsageFailure(click.ClickException):
    """A usage error: prints one sentence and exits with code 2."""

    exit_code = USAGE_ERROR
