"""`labkit sweep`: many runs with different settings and seeds, and their results as a table, a figure and files."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from .command_group import FAILED
from .options import RunCommand, check_file, given_options, run_specs
from .run_commands import json_option

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..forecasts.sweeps import Sweep
    from ..spec import RunSpec

MAX_RUNS = 100_000


@click.command(cls=RunCommand, without=["faults"], short_help="Run many settings and seeds, and compare them.")
@click.argument("names", metavar="STRATEGY ...", nargs=-1)
@click.option(
    "--vary", "varied", metavar="OPTION=VALUE,...", multiple=True,
    help="Run with each of these values, as --vary workers=1,2,4,8 or --vary learning_rate=0.05,0.1; repeatable.",
)  # fmt: skip
@click.option(
    "--seeds", metavar="N", type=int, default=5, help="Number of seeds of each setting, from --seed on (default 5)."
)
@click.option(
    "--engine", metavar="NAME", default="simulated",
    help="simulated: in virtual time, in parallel; dask: real processes, one run after the other (default simulated).",
)  # fmt: skip
@click.option("--client", metavar="ADDRESS", help="A Dask scheduler whose workers execute the simulated runs.")
@click.option(
    "--out", metavar="FILE.jsonl", help="Keep every result in this file, from which an interrupted sweep continues."
)
@click.option("--csv", metavar="FILE.csv", help="A table with one line per run.")
@click.option("--parquet", metavar="FILE.parquet", help="The same as Parquet (needs pandas and pyarrow).")
@click.option("--figure", metavar="FILE.png", help="Time to accuracy, efficiency, staleness, speed against accuracy.")
@json_option
def sweep(
    names: tuple[str, ...],
    varied: tuple[str, ...],
    seeds: int,
    engine: str,
    client: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Run strategies with different settings and seeds, and show medians over the seeds. Exit code 1: runs failed.

    \b
    labkit sweep async-ps sync-ps --vary workers=1,2,4,8 --compute exponential:0.01 --updates 500 --figure sweep.png
    """
    from ..errors import BadInput
    from ..forecasts.sweeps import Setting, execute
    from ..spec import make_cluster

    files = result_files(options)
    if not names:
        raise BadInput("sweep takes at least one strategy, as in: labkit sweep async-ps sync-ps --vary workers=1,2,4.")
    specs = [
        made
        for spec in run_specs(names, engine, given_options(options))
        for made in _varied(spec, varied, len(names) > 1)
    ]
    if len(specs) * max(seeds, 1) > MAX_RUNS:
        raise BadInput(f"These are {len(specs) * seeds:,} runs, and a sweep has at most {MAX_RUNS:,}.")
    for spec in specs:
        spec.check()
    with make_cluster(specs[0].cluster) as cluster:
        settings = [
            Setting(spec.problem, spec.strategy, cluster.with_spec(spec.cluster), spec.budget) for spec in specs
        ]
        found = execute(settings, seeds, client, path=files["out"])
    show(found, str(found.table()), {}, as_json)
    write(found, files, found.plot.overview)
    fail_if_any_failed(found)


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


def result_files(options: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the files that were given. Raises `BadInput`, before anything runs, if a file cannot be written."""
    from ..forecasts.sweeps import check_parquet

    files = {name: options.get(name) for name in ("out", "csv", "parquet", "figure")}
    for name, file in files.items():
        if file is not None:
            check_file(name, file)
    if files["parquet"] is not None:
        check_parquet()
    return files


def write(found: Sweep, files: Mapping[str, str | None], draw: Callable[[], Figure]) -> None:
    """Write the requested files: "csv", "parquet" and "figure", which `draw` makes."""
    if files["csv"]:
        found.to_csv(files["csv"])
    if files["parquet"]:
        found.to_parquet(files["parquet"])
    if files["figure"]:
        from ..views import save

        save(draw(), files["figure"])


def show(found: Sweep, text: str, more: Mapping[str, Any], as_json: bool) -> None:
    """Print a text, or all runs and `more` as one JSON object."""
    if as_json:
        click.echo(json.dumps({"runs": [dict(row) for row in found.rows], **more}, allow_nan=False))
    click.echo(text, err=as_json)


def fail_if_any_failed(found: Sweep) -> None:
    """Print the errors of runs that failed, each once, and exit with the code of a failed run."""
    errors: dict[str, list[str]] = {}
    for row in found.rows:
        if row["error"] is not None:
            errors.setdefault(row["error"], []).append(f"{row['strategy']}, seed {row['seed']}")
    for error, runs in errors.items():
        others = f" and {len(runs) - 1:,} more" if len(runs) > 1 else ""
        click.echo(f"Error: {runs[0]}{others}: {error}", err=True)
    if errors:
        raise click.exceptions.Exit(FAILED)
