"""The table of docs/strategies/slow_worker.md: `python -m benchmarks.slow_worker_table` generates it.

It has a formula for each strategy, the result in virtual time, and the measurement on a cluster of processes. The last column is
kept unless `--measure` is given; the measurement takes ten minutes on an otherwise idle machine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

import labkit as lk
from labkit.strategies import STRATEGIES

from .slow_worker import PACE, THEORY, WORKERS, measured, simulated

PAGE = Path(__file__).parents[1] / "docs" / "strategies" / "slow_worker.md"
TABLE = re.compile(r"(<!-- begin table -->\n)(.*?)(\n<!-- end table -->)", re.DOTALL)
SECONDS = 6.0  # of each paced run


def slow_table(on_processes: Mapping[str, str]) -> str:
    """Return the table of the slow worker. `on_processes`: the last column, for each strategy."""
    lines = ["| strategy | theory | | virtual time | processes |", "|---|---|---|---|---|"]
    for name in STRATEGIES:
        words, share = THEORY[name]
        lines.append(f"| `{name}` | {words} | {share:.1%} | {simulated(name):.1%} | {on_processes.get(name, '')} |")
    return "\n".join(lines)


def table_of_page() -> str:
    """Return the table that the page has."""
    found = TABLE.search(PAGE.read_text())
    assert found is not None, f"{PAGE} has no table"
    return found[2]


def kept_column() -> dict[str, str]:
    """Return the last column of the page's table."""
    return dict(re.findall(r"^\| `([\w-]+)` \|.*\| ([^|]*) \|$", table_of_page(), re.MULTILINE))


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
@click.option(
    "--only", multiple=True, type=click.Choice(list(STRATEGIES)), help="Measure this strategy only; repeatable."
)
def main(measure: bool, only: tuple[str, ...]) -> None:
    """Write the table of docs/strategies/slow_worker.md."""
    names = only or (tuple(STRATEGIES) if measure else ())
    table = slow_table(kept_column() | (measured_column(names) if names else {}))
    PAGE.write_text(TABLE.sub(lambda found: found[1] + table + found[3], PAGE.read_text()))


if __name__ == "__main__":
    main()
