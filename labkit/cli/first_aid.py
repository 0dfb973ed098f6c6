"""`labkit doctor`: diagnostics. A line is ok, a warning with advice, or a problem that prevents labkit from working."""

from __future__ import annotations

import json

import click

from .group import FAILED

__all__ = ["doctor"]


@click.command(short_help="Check that labkit can work here.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of lines.")
def doctor(as_json: bool) -> None:
    """Check versions, CPUs, memory, ports, and how long a cluster takes to start and end.

    Exit code 0 means that labkit can work here.
    """
    from . import checks

    found = []
    for check in checks.CHECKS:
        for line in check():
            found.append(line)
            if not as_json:
                click.echo(str(line))
    usable = not any(line.state == checks.PROBLEM for line in found)
    if as_json:
        click.echo(json.dumps({"usable": usable, "checks": [vars(line) for line in found]}, allow_nan=False))
    else:
        warnings = sum(line.state == checks.WARNING for line in found)
        hint = f" ({warnings} {'warning' if warnings == 1 else 'warnings'})" if warnings else ""
        no = "labkit cannot work here yet: see the lines that say problem."
        click.echo(f"labkit can work here{hint}." if usable else no)
    if not usable:
        raise click.exceptions.Exit(FAILED)
