"""`labkit strategies`: lists the strategies by family, and the options of one, from their declarations."""

from __future__ import annotations

from typing import Any

import click

__all__ = ["strategies"]


@click.command(short_help="List the strategies and their options.")
@click.option("--options", "name", metavar="NAME", help="Show the options of one strategy, for --set OPTION=VALUE.")
def strategies(name: str | None) -> None:
    """List the strategies: name, family, what it does. The first nine are to begin with, the rest go by family.

    With --options NAME: what can be set on one.
    """
    from ..options import options_of
    from ..strategies import FAMILIES, STRATEGIES, strategy_by_name

    if name is None:  # every line begins with a name, so that programs can parse the lines
        width, wide = max(map(len, STRATEGIES)), max(map(len, FAMILIES))
        for family, members in FAMILIES.items():
            for known, member in members.items():
                click.echo(f"{known:<{width}}  {family:<{wide}}  {member.summary}")
        return
    made = strategy_by_name(name)
    options = options_of(made)
    width = max(map(len, options))
    for option in options.values():
        click.echo(f"{option.name:<{width}}  {option_text(made, option)}")


def option_text(made: type, option: Any) -> str:
    """Default, limits, whether it can change during a run, and its help text."""
    from ..options import describe

    plain = isinstance(option.default, (int, float, str, bool, type(None)))
    default = option.default if plain else type(option.default).__name__.lower()
    limits = ", ".join(names_for(made, option)) if option.type is object else describe(option)
    live = "; live" if option.live else ""
    return f"{default}  ({limits or 'a name'}{live})" + (f"  {option.help}" if option.help else "")


def names_for(made: type, option: Any) -> list[str]:
    """Allowed texts of an option that takes an object by name: `step:EVERY:[FACTOR]`, without those that this strategy refuses
    (an all-reduce takes linear codecs only).
    """
    import dataclasses

    from ..errors import BadInput
    from ..options import options_of

    found = []
    for name, known in (option.names or {}).items():
        values = options_of(known).values()
        needed = [k for k in values if k.default is dataclasses.MISSING]
        if not needed:
            try:
                made(**{option.name: name})
            except BadInput:
                continue
        found.append(":".join([name, *(k.name.upper() if k in needed else f"[{k.name.upper()}]" for k in values)]))
    return found
