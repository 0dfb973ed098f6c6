"""`labkit strategies`: lists the strategies by family, or the options of one strategy, from their declarations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ..options import Option


@click.command(short_help="List the strategies and their options.")
@click.argument("name", required=False)
def strategies(name: str | None) -> None:
    """List the strategies: name, family, what it does. The first nine are introductory, the others are ordered by family.

    With NAME: the options of that strategy, for --set OPTION=VALUE.
    """
    from ..options import options_of
    from ..strategies import FAMILIES, STRATEGIES, strategy_by_name

    if name is None:  # every line begins with a name, so that programs can parse the lines
        width, wide = max(map(len, STRATEGIES)), max(map(len, FAMILIES))
        for family, members in FAMILIES.items():
            for known, member in members.items():
                click.echo(f"{known:<{width}}  {family:<{wide}}  {member.summary}")
        return
    cls = strategy_by_name(name)
    options = options_of(cls)
    width = max(map(len, options))
    for option in options.values():
        click.echo(f"{option.name:<{width}}  {option_text(cls, option)}")


def option_text(cls: type, option: Option) -> str:
    """Return an option's default, its limits, whether it can change during a run ("live"), and its help text."""
    from ..options import describe

    plain = isinstance(option.default, (int, float, str, bool, type(None)))
    default = option.default if plain else type(option.default).__name__.lower()
    limits = ", ".join(names_for(cls, option)) if option.type is object else describe(option)
    live = "; live" if option.live else ""
    return f"{default}  ({limits or 'a name'}{live})" + (f"  {option.help}" if option.help else "")


def names_for(cls: type, option: Option) -> list[str]:
    """Return the allowed texts of an option that takes an object by name, such as `step:EVERY:[FACTOR]`.

    Names for which the strategy raises `BadInput` are left out (for example, an all-reduce allows linear codecs only).
    """
    import dataclasses

    from ..errors import BadInput
    from ..options import options_of

    found = []
    for name, known in (option.names or {}).items():
        values = options_of(known).values()
        required = [parameter for parameter in values if parameter.default is dataclasses.MISSING]
        if not required:
            try:
                cls(**{option.name: name})
            except BadInput:
                continue
        found.append(":".join([name, *(p.name.upper() if p in required else f"[{p.name.upper()}]" for p in values)]))
    return found
