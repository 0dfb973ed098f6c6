"""`labkit train`, `labkit simulate`, `labkit compare`: read options, run, and print a table (or, at the end, one JSON object)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import click

from .group import FAILED, INTERRUPTED
from .options import Files, RunCommand, asked, file_options, run_specs, writable_files

__all__ = ["compare", "simulate", "train"]


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give `command` the option `--json`."""
    about = "One JSON object as the last line; all else on standard error."
    return click.option("--json", "as_json", is_flag=True, help=about)(command)


def strategy_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give `command` the option `--strategy`."""
    about = "async-ps, sync-ps, ring-all-reduce, ...: see labkit strategies (default async-ps)."
    return click.option("--strategy", metavar="NAME", default="async-ps", help=about)(command)


def engine_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give `command` the option `--engine`."""
    about = "dask: real processes; simulated: virtual time, exact and repeatable (default dask)."
    return click.option("--engine", metavar="NAME", default="dask", help=about)(command)


@click.command(cls=RunCommand, short_help="Train a network on a Dask cluster.")
@strategy_option
@engine_option
@file_options
@json_option
def train(strategy: str, engine: str, as_json: bool, **options: Any) -> None:
    """Train a network on a Dask cluster (or, with --engine simulated, in virtual time)."""
    one_run(strategy, engine, options, as_json)


@click.command(cls=RunCommand, short_help="The same in virtual time: exact and repeatable.")
@strategy_option
@file_options
@json_option
def simulate(strategy: str, as_json: bool, **options: Any) -> None:
    """The same in virtual time: exact, repeatable, up to 10,000 workers. It is train --engine simulated."""
    one_run(strategy, "simulated", options, as_json)


@click.command(cls=RunCommand, short_help="Run several strategies side by side.")
@click.argument("names", metavar="STRATEGY STRATEGY ...", nargs=-1)
@engine_option
@click.option("--figure", metavar="FILE.png", help="A picture of all runs.")
@json_option
def compare(names: tuple[str, ...], engine: str, as_json: bool, **options: Any) -> None:
    """Run several strategies on the same problem with the same seed, one after the other, and show them side by side.

    Every strategy gets the options and the servers that it can use.
    """
    several_runs(names, engine, options, as_json)


def one_run(name: str, engine: str, options: Mapping[str, Any], as_json: bool) -> None:
    """Train once, print the results, and exit with the code of the outcome."""
    from ..spec import make_cluster
    from . import running, tables

    files = writable_files(options)
    (spec,) = run_specs((name,), engine, asked(options))
    with make_cluster(spec.cluster) as cluster:
        outcome = running.run(spec, cluster)
    running.write(outcome, files)
    if outcome.error is not None:
        raise outcome.error
    summary = outcome.summary()
    tables.show_summary(summary, to_stderr=as_json)
    if outcome.interrupted:
        raise click.exceptions.Exit(INTERRUPTED)
    if as_json:
        click.echo(json.dumps(summary.to_dict(), allow_nan=False))
    if outcome.diverged:
        click.echo(f"Error: {outcome.sentence()}", err=True)
        raise click.exceptions.Exit(FAILED)


def several_runs(names: tuple[str, ...], engine: str, options: Mapping[str, Any], as_json: bool) -> None:
    """Train each strategy in turn; everything is checked before the first one starts."""
    from ..errors import BadInput
    from ..spec import make_cluster
    from ..strategies import STRATEGIES
    from . import running

    if len(names) < 2:
        known = ", ".join(STRATEGIES)
        raise BadInput(f"compare takes two strategies or more, as labkit compare sync-ps async-ps; there is {known}.")
    files = writable_files(options)
    specs = run_specs(names, engine, asked(options))
    outcomes: list[Any] = []
    with make_cluster(specs[0].cluster) as processes:
        for spec in specs:
            outcomes.append(running.run(spec, processes.with_spec(spec.cluster)))
            if outcomes[-1].error is not None:
                raise outcomes[-1].error
            if outcomes[-1].interrupted:
                break
    show_several(outcomes, [spec.strategy for spec in specs], files, as_json)


def show_several(outcomes: list[Any], strategies: list[Any], files: Files, as_json: bool) -> None:
    """Print or write the runs side by side, as a table, a picture and JSON; exit with the code of the outcome."""
    from . import running, tables

    summaries = [outcome.summary() for outcome in outcomes]
    tables.show_comparison(summaries, strategies[: len(outcomes)], to_stderr=as_json)
    if outcomes[-1].interrupted:
        raise click.exceptions.Exit(INTERRUPTED)
    running.write_comparison(outcomes, files)
    if as_json:
        click.echo(json.dumps({"runs": [summary.to_dict() for summary in summaries]}, allow_nan=False))
    diverged = [outcome for outcome in outcomes if outcome.diverged]
    for outcome in diverged:
        click.echo(f"Error: {outcome.sentence()}", err=True)
    if diverged:
        raise click.exceptions.Exit(FAILED)
