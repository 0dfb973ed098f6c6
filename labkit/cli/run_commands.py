"""`labkit train`, `labkit simulate`, `labkit compare`: read options, run, and print a table or one JSON object."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from .command_group import FAILED, INTERRUPTED
from .options import ResultFiles, RunCommand, file_options, given_options, run_specs, writable_files

if TYPE_CHECKING:
    from ..strategies import Strategy
    from .execution import Outcome


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    about = "Print one JSON object to standard output; all other output goes to standard error."
    return click.option("--json", "as_json", is_flag=True, help=about)(command)


def strategy_option(command: Callable[..., Any]) -> Callable[..., Any]:
    about = "async-ps, sync-ps, ring-all-reduce, ...: see labkit strategies (default async-ps)."
    return click.option("--strategy", metavar="NAME", default="async-ps", help=about)(command)


def engine_option(command: Callable[..., Any]) -> Callable[..., Any]:
    about = "dask: real processes; simulated: virtual time, exact and reproducible (default dask)."
    return click.option("--engine", metavar="NAME", default="dask", help=about)(command)


@click.command(cls=RunCommand, short_help="Train a network on a Dask cluster.")
@strategy_option
@engine_option
@file_options
@json_option
def train(strategy: str, engine: str, as_json: bool, **options: Any) -> None:
    """Train a network on a Dask cluster (or, with --engine simulated, in virtual time)."""
    one_run(strategy, engine, options, as_json)


@click.command(cls=RunCommand, short_help="Run in virtual time: exact and reproducible.")
@strategy_option
@file_options
@json_option
def simulate(strategy: str, as_json: bool, **options: Any) -> None:
    """Train a network in virtual time: exact, reproducible, up to 10,000 workers. The same as train --engine simulated."""
    one_run(strategy, "simulated", options, as_json)


@click.command(cls=RunCommand, short_help="Run several strategies side by side.")
@click.argument("names", metavar="STRATEGY STRATEGY ...", nargs=-1)
@engine_option
@click.option("--figure", metavar="FILE.png", help="A figure of all runs.")
@json_option
def compare(names: tuple[str, ...], engine: str, as_json: bool, **options: Any) -> None:
    """Run several strategies on the same problem with the same seed, in sequence, and show the results side by side.

    Each strategy gets the options that it has, and servers if it uses any.
    """
    several_runs(names, engine, options, as_json)


def one_run(name: str, engine: str, options: Mapping[str, Any], as_json: bool) -> None:
    """Execute one run, print the results, and exit with the code of the outcome."""
    from ..spec import make_cluster
    from . import execution, tables

    files = writable_files(options)
    (spec,) = run_specs((name,), engine, given_options(options))
    with make_cluster(spec.cluster) as cluster:
        outcome = execution.run(spec, cluster)
    execution.write(outcome, files)
    if outcome.error is not None:
        raise outcome.error
    summary = outcome.summary()
    tables.show_summary(summary, to_stderr=as_json)
    if outcome.interrupted:
        raise click.exceptions.Exit(INTERRUPTED)
    if as_json:
        click.echo(json.dumps(summary.to_dict(), allow_nan=False))
    if outcome.diverged:
        click.echo(f"Error: {outcome.divergence_message()}", err=True)
        raise click.exceptions.Exit(FAILED)


def several_runs(names: tuple[str, ...], engine: str, options: Mapping[str, Any], as_json: bool) -> None:
    """Train with the strategies in sequence. All specifications are checked before the first run starts."""
    from ..errors import BadInput
    from ..spec import make_cluster
    from ..strategies import STRATEGIES
    from . import execution

    if len(names) < 2:
        known = ", ".join(STRATEGIES)
        raise BadInput(
            f"compare takes two strategies or more, as in: labkit compare sync-ps async-ps. Strategies: {known}."
        )
    files = writable_files(options)
    specs = run_specs(names, engine, given_options(options))
    outcomes: list[Outcome] = []
    with make_cluster(specs[0].cluster) as cluster:
        for spec in specs:
            outcomes.append(execution.run(spec, cluster.with_spec(spec.cluster)))
            if outcomes[-1].error is not None:
                raise outcomes[-1].error
            if outcomes[-1].interrupted:
                break
    show_several(outcomes, [spec.strategy for spec in specs], files, as_json)


def show_several(outcomes: list[Outcome], strategies: list[Strategy], files: ResultFiles, as_json: bool) -> None:
    """Print or write the runs side by side, as a table, a figure and JSON; exit with the code of the outcome."""
    from . import execution, tables

    summaries = [outcome.summary() for outcome in outcomes]
    tables.show_comparison(summaries, strategies[: len(outcomes)], to_stderr=as_json)
    if outcomes[-1].interrupted:
        raise click.exceptions.Exit(INTERRUPTED)
    execution.write_comparison(outcomes, files)
    if as_json:
        click.echo(json.dumps({"runs": [summary.to_dict() for summary in summaries]}, allow_nan=False))
    diverged = [outcome for outcome in outcomes if outcome.diverged]
    for outcome in diverged:
        click.echo(f"Error: {outcome.divergence_message()}", err=True)
    if diverged:
        raise click.exceptions.Exit(FAILED)
