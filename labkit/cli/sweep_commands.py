"""`labkit sweep`: many runs with different settings and seeds, and their results as a table, a figure and files."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from .command_group import INTERRUPTED
from .options import RunCommand, check_file, given_options, run_specs
from .run_commands import json_option

if TYPE_CHECKING:
    from ..spec import RunSpec
    from ..sweeps import Sweep

__all__ = ["sweep"]

MAX_RUNS = 100_000


@click.command(cls=RunCommand, short_help="Run many settings and seeds, and compare them.")
@click.argument("names", metavar="STRATEGY ...", nargs=-1)
@click.option(
    "--vary", "varied", metavar="OPTION=VALUE,...", multiple=True,
    help="Run with each of these values, as --vary workers=1,2,4,8 or --vary learning_rate=0.05,0.1; repeatable.",
)  # fmt: skip
@click.option("--seeds", metavar="N", type=int, default=5, help="Number of seeds of each setting, from --seed on (default 5).")
@click.option(
    "--engine", metavar="NAME", default="simulated",
    help="simulated: in virtual time, in parallel; dask: real processes, one run after the other (default simulated).",
)  # fmt: skip
@click.option("--client", metavar="ADDRESS", help="A Dask scheduler whose workers execute the simulated runs.")
@click.option("--out", metavar="FILE.jsonl", help="Keep every result in this file. An interrupted sweep continues from it.")
@click.option("--csv", metavar="FILE.csv", help="A table with one line per run.")
@click.option("--parquet", metavar="FILE.parquet", help="The same as Parquet (needs pandas and pyarrow).")
@click.option("--figure", metavar="FILE.png", help="Time to accuracy, efficiency, staleness, speed against accuracy.")
@json_option
def sweep(
    names: tuple[str, ...], varied: tuple[str, ...], seeds: int, engine: str, client: str | None, as_json: bool, **options: Any
) -> None:
    """Run strategies with different settings and seeds, and show medians over the seeds.

    \b
    labkit sweep async-ps sync-ps --vary workers=1,2,4,8 --compute exponential:0.01 --updates 500 --figure sweep.png
    """
    from ..errors import BadInput
    from ..spec import make_cluster
    from ..sweeps import Setting, execute

    files = {name: options.get(name) for name in ("out", "csv", "parquet", "figure")}
    for name, file in files.items():
        if file is not None:
            check_file(name, file)
    if not names:
        raise BadInput("sweep takes at least one strategy, as in: labkit sweep async-ps sync-ps --vary workers=1,2,4.")
    specs = [made for spec in run_specs(names, engine, given_options(options)) for made in _varied(spec, varied, len(names) > 1)]
    if len(specs) * max(seeds, 1) > MAX_RUNS:
        raise BadInput(f"These are {len(specs) * seeds:,} runs, and a sweep has at most {MAX_RUNS:,}.")
    for spec in specs:
        spec.check()
    with make_cluster(specs[0].cluster) as cluster:
        settings = [Setting(spec.problem, spec.strategy, cluster.with_spec(spec.cluster), spec.budget) for spec in specs]
        try:
            found = execute(settings, seeds, client, path=files["out"], on_result=_progress())
        except KeyboardInterrupt:
            kept = f" The finished runs are in {files['out']}; the same command continues." if files["out"] else ""
            click.echo(f"\nInterrupted.{kept}", err=True)
            raise click.exceptions.Exit(INTERRUPTED) from None
    _write(found, files)
    _show(found, as_json)


def _varied(spec: RunSpec, texts: Sequence[str], several: bool) -> list[RunSpec]:
    """Return the specification with every combination of the values in `--vary`.

    If there are several strategies, an option of strategies is varied for those that have it. Raises `BadInput` if an option
    or a value is not allowed.
    """
    from ..errors import BadInput
    from ..options import options_of
    from ..strategies import STRATEGIES

    values: dict[str, list[str]] = {}
    for text in texts:
        name, equals, rest = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not rest.strip():
            raise BadInput(f"--vary {text}: give an option and its values, as --vary workers=1,2,4.")
        whole = name in ("hidden", "slow", "options")  # a list is one value of these
        values.setdefault(name, []).extend([rest] if whole else [value.strip() for value in rest.split(",")])
    of_strategies = {name for strategy in STRATEGIES.values() for name in options_of(strategy)}
    known = spec.options()
    mine = {name: v for name, v in values.items() if name in known or not (several and name in of_strategies)}
    return [
        spec.changed(**{name: spec.read(name, value) for name, value in zip(mine, chosen)})
        for chosen in itertools.product(*mine.values())
    ]


def _progress() -> Callable[[int, int, Mapping[str, Any]], None] | None:
    """Return a function that updates a progress bar on standard error; None if standard error is not a terminal."""
    if not sys.stderr.isatty():
        return None

    def show(done: int, total: int, row: Mapping[str, Any]) -> None:
        bar = "━" * (30 * done // total)
        failed = f" · {row['strategy']} failed: {row['error']}" if row["error"] else ""
        click.echo(f"\r{bar:<30} {done:,} of {total:,} runs{failed}", nl=bool(failed) or done == total, err=True)

    return show


def _write(found: Sweep, files: Mapping[str, str | None]) -> None:
    """Write the requested files."""
    if files["csv"]:
        found.to_csv(files["csv"])
    if files["parquet"]:
        found.to_parquet(files["parquet"])
    if files["figure"]:
        from ..views import save

        save(found.plot.overview(), files["figure"])


def _show(found: Sweep, as_json: bool) -> None:
    """Print the medians as a table, or all runs as one JSON object."""
    if as_json:
        click.echo(json.dumps({"runs": [dict(row) for row in found.rows]}, allow_nan=False))
    click.echo(str(found.table()), err=as_json)
    for row in found.rows:
        if row["error"]:
            click.echo(f"Error: {row['strategy']}, seed {row['seed']}: {row['error']}", err=True)
