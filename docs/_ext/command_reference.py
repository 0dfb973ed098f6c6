"""The command line reference, from the commands."""

from __future__ import annotations

import re

import click

from docs._ext.markdown import escaped, table
from labkit.cli import main

__all__ = ["command_reference"]


def command_reference() -> str:
    """Return a section for every command of `labkit`."""
    group = click.Context(main, info_name="labkit", **main.context_settings)
    rows = [
        [f"[`labkit {name}`](#labkit-{name})", escaped(each.get_short_help_str(200))]
        for name, each in main.commands.items()
    ]
    parts = [table(["command", "what it does"], rows)]
    for name, command in main.commands.items():
        parts.append(_command(command, click.Context(command, info_name=name, parent=group)))
    return "\n\n".join(parts)


def _command(command: click.Command, context: click.Context) -> str:
    usage = " ".join(command.collect_usage_pieces(context))
    parts = [
        f"(labkit-{context.info_name})=\n## labkit {context.info_name}",
        f"```sh\n{context.command_path} {usage}\n```",
    ]
    parts += [escaped(" ".join(part.split())) for part in re.split(r"\n\s*\n", command.help or "")]
    sections: dict[str, list[list[str]]] = {}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and record[1] and "--help" not in parameter.opts:
            title = getattr(parameter, "section", "Options")
            sections.setdefault(title, []).append([f"`{record[0]}`", escaped(record[1])])
    for title, rows in sections.items():
        parts.append(f"**{title}**")
        parts.append(table(["option", "meaning"], rows))
    return "\n\n".join(parts)
