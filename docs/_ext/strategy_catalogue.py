"""The catalogue of strategies: a list, and one page for each strategy, from the classes and the docstrings of their modules."""

from __future__ import annotations

import inspect
import re
import sys
from collections import Counter
from pathlib import Path

from docs._ext.markdown import escaped, option_rows, plain_docstring, table
from labkit import Problem, SimulatedCluster
from labkit.options import options_of, write_option
from labkit.strategies import FAMILIES, STRATEGIES, Strategy

__all__ = ["own_options", "strategy_list", "strategy_pages"]

ROOT = Path(__file__).parents[2]
OFTEN = ("codec", "staleness_aware", "compensation")  # options of many strategies: last in lists


def papers(strategy: type) -> str:
    """Return the source of an algorithm: the last paragraph with a year in the docstring of its module."""
    module = inspect.getdoc(sys.modules[strategy.__module__]) or ""
    dated = [part for part in module.split("\n\n") if re.search(r"\b(19|20)\d\d\b", part)]
    return " ".join(dated[-1].split())


def own_options(strategy: type[Strategy]) -> list[str]:
    """Return the names of the options that not all strategies have; those of many strategies come last."""
    own = [name for name in options_of(strategy) if name not in options_of(Strategy)]
    return sorted(own, key=lambda name: name in OFTEN)


def strategy_list() -> str:
    """Return the list of all strategies by family: class, name, what it does, its own options."""
    lines = []
    for family, members in FAMILIES.items():
        rows = []
        for name, strategy in members.items():
            options = options_of(strategy)
            defaults = {each: options[each].default for each in own_options(strategy)}
            texts = [
                f"`{each}={None if value is None else write_option(options[each], value)}`"
                for each, value in defaults.items()
            ]
            page = f"[`{strategy.__name__}`](generated/{name}.md)"
            rows.append([page, f"`{name}`", escaped(strategy.summary), ", ".join(texts)])
        head = ["class", "name", "what it does", "its own options, with defaults"]
        lines += [f"### {family[0].upper()}{family[1:]}", table(head, rows)]
    return "\n\n".join(lines)


def strategy_pages() -> dict[str, str]:
    """Return {name: Markdown} with the page of every strategy."""
    return {name: strategy_page(name, strategy) for name, strategy in STRATEGIES.items()}


def strategy_page(name: str, strategy: type[Strategy]) -> str:
    """Return the page of one strategy."""
    module = sys.modules[strategy.__module__]
    *about, _ = re.split(r"\n\s*\n", inspect.getdoc(module) or "")
    options = options_of(strategy)
    common = options_of(Strategy)
    own = [*own_options(strategy), *(name for name in common if options[name] != common[name])]
    parts = [
        f"(strategy-{name})=\n# {strategy.__name__}",
        f"{escaped(strategy.summary[:1].upper() + strategy.summary[1:])}.",
        f"On the command line and in share texts: `{name}`. Class: {{class}}`labkit.{strategy.__name__}`. {_problem(strategy)}",
        "## Algorithm",
        plain_docstring("\n\n".join(about)),
        "## Options",
        _options(strategy, own) if own else "It has only the options of all strategies:",
        "All strategies have these options:" if own else "",
        _options(strategy, [name for name in common if name not in own]),
        "## Roles",
        table(["role", "with 4 workers", "what it does"], _roles(strategy)),
        f"Messages: {', '.join(f'`{message.__name__}`' for message in strategy.messages)}. {_mean_staleness(strategy)}",
        "## Source code",
        f'```{{literalinclude}} {_relative(module)}\n:language: python\n:start-at: "@dataclass"\n```',
        "## Papers",
        escaped(papers(strategy)),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _options(strategy: type[Strategy], names: list[str]) -> str:
    declared = options_of(strategy)
    return table(
        ["option", "default", "meaning", "allowed values"], option_rows(strategy, [declared[name] for name in names])
    )


def _problem(strategy: type[Strategy]) -> str:
    """Return what the default problem of the strategy is, if it is not the general one."""
    wanted = strategy.suggested_problem
    if not wanted:
        return ""
    given = ", ".join(f"{key}={value!r}" for key, value in wanted.items())
    return f"Without another problem, runs use `Problem({given})`."


def _roles(strategy: type[Strategy]) -> list[list[str]]:
    """Return a row for every kind of role in the layout with four workers: its number, and the summary of its method."""
    layout = strategy().layout(Problem(**strategy.suggested_problem), SimulatedCluster(workers=4))
    rows = []
    for kind, count in Counter(spec.kind for spec in layout.roles).items():
        about = inspect.getdoc(getattr(strategy, kind)) or ""
        rows.append([f"`{kind}`", str(count), escaped(" ".join(about.split("\n\n")[0].split()))])
    return rows


def _mean_staleness(strategy: type[Strategy]) -> str:
    """Return the theoretical mean staleness with four workers."""
    mean = strategy().mean_staleness(4)
    return "" if mean is None else f"Theoretical mean staleness with 4 workers and default options: {mean:g}."


def _relative(module: object) -> str:
    path = Path(inspect.getfile(module)).relative_to(ROOT)  # type: ignore[arg-type]
    return f"/../{path.as_posix()}"
