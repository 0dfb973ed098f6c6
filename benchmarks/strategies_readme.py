"""The generated parts of labkit/strategies/README.md: `python -m benchmarks.strategies_readme` generates them.

The list is made from the classes and the docstrings of their modules. The table of the slow worker has a formula, the
result in virtual time, and the measurement on a cluster of processes. The last column is kept unless `--measure` is
given; the measurement takes ten minutes on an otherwise idle machine.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

import labkit as lk
from labkit.options import options_of, write_option
from labkit.strategies import FAMILIES, STRATEGIES, Strategy

from .slow_worker import PACE, THEORY, WORKERS, measured, simulated

__all__ = ["README", "list_section", "section", "slow_section", "with_section"]

README = Path(__file__).parents[1] / "labkit" / "strategies" / "README.md"
SECONDS = 6.0  # of each paced run
COMMON_OPTIONS = ("codec", "staleness_aware", "compensation")


def source(strategy: type) -> str:
    """Return the source of an algorithm: the last paragraph with a year in the docstring of its module."""
    module = inspect.getdoc(sys.modules[strategy.__module__]) or ""
    dated = [part for part in module.split("\n\n") if re.search(r"\b(19|20)\d\d\b", part)]
    return " ".join(dated[-1].split())


def own_options(strategy: type[Strategy]) -> str:
    """Return the options that not all strategies have, with their defaults, as `--set` takes them. Common options come last."""
    texts = []
    for option in sorted(options_of(strategy).values(), key=lambda option: option.name in COMMON_OPTIONS):
        if option.name not in options_of(Strategy) and option.name != "learning_rate":
            default = None if option.default is None else write_option(option, option.default)
            texts.append(f"`{option.name}={default}`")
    return ", ".join(texts)


def list_section() -> str:
    """Return the list of all strategies by family: name, page, one line of description, options, source."""
    lines = []
    for family, members in FAMILIES.items():
        lines += [
            f"**{family[0].upper()}{family[1:]}**",
            "",
            "| name | page | what it does | its own options | source |",
            "|---|---|---|---|---|",
        ]
        for name, strategy in members.items():
            file = Path(inspect.getfile(strategy)).name
            page = f"[`{strategy.__name__}`]({file})"
            lines.append(f"| `{name}` | {page} | {strategy.summary} | {own_options(strategy)} | {source(strategy)} |")
        lines.append("")
    return "\n".join(lines).strip()


def slow_section(on_processes: Mapping[str, str]) -> str:
    """Return the table of the slow worker. `on_processes`: the last column, for each strategy."""
    lines = ["| strategy | theory | | virtual time | processes |", "|---|---|---|---|---|"]
    for name in STRATEGIES:
        words, share = THEORY[name]
        lines.append(f"| `{name}` | {words} | {share:.1%} | {simulated(name):.1%} | {on_processes.get(name, '')} |")
    return "\n".join(lines)


def section(name: str) -> str:
    """Return the text between the marks of this part of the README."""
    found = re.search(rf"<!-- begin {name} -->\n(.*?)\n<!-- end {name} -->", README.read_text(), re.DOTALL)
    assert found is not None, f"README.md has no part {name!r}"
    return found[1]


def with_section(text: str, name: str, inner: str) -> str:
    """Return the README with this part replaced."""
    marks = rf"(<!-- begin {name} -->\n).*?(\n<!-- end {name} -->)"
    return re.sub(marks, lambda m: m[1] + inner + m[2], text, flags=re.DOTALL)


def kept_column() -> dict[str, str]:
    """Return the last column in the present README."""
    rows = re.findall(r"^\| `([\w-]+)` \|.*\| ([^|]*) \|$", section("slow worker"), re.MULTILINE)
    return dict(rows)


def measured_column(names: Sequence[str]) -> dict[str, str]:
    """Measure the last column for these strategies."""
    found = {}
    with lk.DaskCluster(workers=WORKERS, pace=PACE) as cluster:
        for name in names:
            found[name] = f"{measured(name, cluster, SECONDS):.1%}"
            click.echo(f"{name}: {found[name]}")
    return found


@click.command()
@click.option("--measure", is_flag=True, help="Run every strategy on processes, twice, and fill in the last column.")
@click.option("--only", multiple=True, type=click.Choice(list(STRATEGIES)), help="Measure this strategy only; repeatable.")
def main(measure: bool, only: tuple[str, ...]) -> None:
    """Write the generated parts of labkit/strategies/README.md."""
    names = only or (tuple(STRATEGIES) if measure else ())
    column = kept_column() | (measured_column(names) if names else {})
    text = with_section(README.read_text(), "list", list_section())
    README.write_text(with_section(text, "slow worker", slow_section(column)))


if __name__ == "__main__":
    main()
