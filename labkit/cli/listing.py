"""`labkit strategies`: what there is to run, and each one's knobs, from their declarations."""

from __future__ import annotations

from typing import Any

import click

__all__ = ["strategies"]


@click.command(short_help="List the strategies and their knobs.")
@click.option("--knobs", "name", metavar="NAME", help="Show the knobs of one strategy, for --set KNOB=VALUE.")
def strategies(name: str | None) -> None:
    """List the strategies; with --knobs NAME, what can be set on one."""
    from ..knobs import knobs_of
    from ..strategies import STRATEGIES, strategy_by_name

    if name is None:
        width = max(map(len, STRATEGIES))
        for known, made in STRATEGIES.items():
            click.echo(f"{known:<{width}}  {made.summary}")
        return
    knobs = knobs_of(strategy_by_name(name))
    width = max(map(len, knobs))
    for knob in knobs.values():
        click.echo(f"{knob.name:<{width}}  {knob_text(knob)}")


def knob_text(knob: Any) -> str:
    """Default, limits, whether it can change during a run, and what it is for."""
    from ..knobs import describe

    plain = isinstance(knob.default, (int, float, str, bool, type(None)))
    default = knob.default if plain else type(knob.default).__name__.lower()
    limits = "a name" if knob.type is object else describe(knob)
    live = ", live" if knob.live else ""
    return f"{default}  ({limits}{live})" + (f"  {knob.help}" if knob.help else "")
