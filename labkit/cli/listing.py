"""`labkit strategies`: lists the strategies by family, and the knobs of one, from their declarations."""

from __future__ import annotations

from typing import Any

import click

__all__ = ["strategies"]


@click.command(short_help="List the strategies and their knobs.")
@click.option("--knobs", "name", metavar="NAME", help="Show the knobs of one strategy, for --set OPTION=VALUE.")
def strategies(name: str | None) -> None:
    """List the strategies: name, family, what it does. The first nine are to begin with, the rest go by family.

    With --knobs NAME: what can be set on one.
    """
    from ..knobs import knobs_of
    from ..strategies import FAMILIES, STRATEGIES, strategy_by_name

    if name is None:  # every line begins with a name, so that programs can parse the lines
        width, wide = max(map(len, STRATEGIES)), max(map(len, FAMILIES))
        for family, members in FAMILIES.items():
            for known, member in members.items():
                click.echo(f"{known:<{width}}  {family:<{wide}}  {member.summary}")
        return
    made = strategy_by_name(name)
    knobs = knobs_of(made)
    width = max(map(len, knobs))
    for knob in knobs.values():
        click.echo(f"{knob.name:<{width}}  {knob_text(made, knob)}")


def knob_text(made: type, knob: Any) -> str:
    """Default, limits, whether it can change during a run, and its help text."""
    from ..knobs import describe

    plain = isinstance(knob.default, (int, float, str, bool, type(None)))
    default = knob.default if plain else type(knob.default).__name__.lower()
    limits = ", ".join(names_for(made, knob)) if knob.type is object else describe(knob)
    live = "; live" if knob.live else ""
    return f"{default}  ({limits or 'a name'}{live})" + (f"  {knob.help}" if knob.help else "")


def names_for(made: type, knob: Any) -> list[str]:
    """The allowed texts of a knob that takes an object by name: `step:EVERY:[FACTOR]`, without those that this strategy refuses
    (an all-reduce takes linear codecs only).
    """
    import dataclasses

    from ..errors import BadInput
    from ..knobs import knobs_of

    found = []
    for name, known in (knob.names or {}).items():
        values = knobs_of(known).values()
        needed = [k for k in values if k.default is dataclasses.MISSING]
        if not needed:
            try:
                made(**{knob.name: name})
            except BadInput:
                continue
        found.append(":".join([name, *(k.name.upper() if k in needed else f"[{k.name.upper()}]" for k in values)]))
    return found
