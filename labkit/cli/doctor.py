"""`labkit doctor`: diagnostics. Each line is ok, a warning with advice, or a problem that prevents labkit from working."""

from __future__ import annotations

import json

import click

from .command_group import FAILED


@click.command(short_help="Check that labkit can work here.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of lines.")
def doctor(as_json: bool) -> None:
    """Check versions, CPUs, memory, ports, and the time that a cluster takes to start and stop.

    Exit code 0 means that labkit can work here.
    """

    from . import doctor_checks

    found = []
    for check in doctor_checks.CHECKS:
        for line in check():
            found.append(line)
            if not as_json:
                click.echo(str(line))
    usable = not any(line.state == doctor_checks.PROBLEM for line in found)
    if as_json:
        click.echo(json.dumps({"usable": usable, "checks": [vars(line) for line in found]}, allow_nan=False))
    else:
        warnings = sum(line.state == doctor_checks.WARNING for line in found)
        count = f" ({warnings} {'warning' if warnings == 1 else 'warnings'})" if warnings else ""
        unusable = "labkit cannot work here yet: see the lines that begin with 'problem'."
        click.echo(f"labkit can work here{count}." if usable else unusable)
    if not usable:
        raise click.exceptions.Exit(FAILED)
