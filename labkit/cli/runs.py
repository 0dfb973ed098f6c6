"""`labkit train`, `labkit simulate`, `labkit compare`: words in, a run, a table out (or, last, one JSON object)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click

from .group import FAILED, INTERRUPTED
from .options import Asked, Files, file_options, pick, run_options

__all__ = ["compare", "simulate", "train"]


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give `command` the option `--json`."""
    about = "One JSON object as the last line; all else on standard error."
    return click.option("--json", "as_json", is_flag=True, help=about)(command)


def strategy_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give `command` the option `--strategy`."""
    about = "async-ps, sync-ps, ring-all-reduce, ...: see labkit strategies (async-ps)."
    return click.option("--strategy", metavar="NAME", default="async-ps", help=about)(command)


def engine_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give `command` the option `--engine`."""
    about = "dask: real processes; simulated: virtual time (dask)."
    return click.option("--engine", metavar="NAME", default="dask", help=about)(command)


@click.command(short_help="Train a network on a Dask cluster.")
@strategy_option
@engine_option
@run_options
@file_options
@json_option
def train(strategy: str, engine: str, as_json: bool, **options: Any) -> None:
    """Train a network on a Dask cluster (or, with --engine simulated, in virtual time)."""
    one_run(strategy, engine, pick(Asked, options), pick(Files, options), as_json)


@click.command(short_help="The same in virtual time: exact and repeatable.")
@strategy_option
@run_options
@file_options
@json_option
def simulate(strategy: str, as_json: bool, **options: Any) -> None:
    """The same in virtual time: exact, repeatable, up to 10,000 workers. It is train --engine simulated."""
    one_run(strategy, "simulated", pick(Asked, options), pick(Files, options), as_json)


@click.command(short_help="Run several strategies side by side.")
@click.argument("names", metavar="STRATEGY STRATEGY ...", nargs=-1)
@engine_option
@run_options
@click.option("--figure", metavar="FILE.png", help="A picture of all runs.")
@json_option
def compare(names: tuple[str, ...], engine: str, as_json: bool, **options: Any) -> None:
    """Run several strategies on the same problem with the same seed, one after the other, and show them side by side.

    Every strategy gets the knobs and the servers that it can use.
    """
    several_runs(names, engine, pick(Asked, options), pick(Files, options), as_json)


def one_run(name: str, engine: str, asked: Asked, files: Files, as_json: bool) -> None:
    """Train once, show it, and end with the exit code that tells how it went."""
    from . import running, setup, tables

    setup.check_files(files)
    strategy = setup.make_strategy(name, asked)
    problem, faults = setup.make_problem(asked, [strategy]), setup.make_faults(asked)
    with setup.make_cluster(engine, asked) as cluster:
        outcome = running.run(problem, strategy, cluster, setup.make_budget(asked), faults)
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


def several_runs(names: tuple[str, ...], engine: str, asked: Asked, files: Files, as_json: bool) -> None:
    """Train each strategy in turn; everything is checked before the first one starts."""
    from ..errors import BadInput
    from . import running, setup

    if len(names) < 2:
        known = ", ".join(setup.strategy_names())
        raise BadInput(f"compare takes two strategies or more, as labkit compare sync-ps async-ps; there is {known}.")
    setup.check_files(files)
    shares = [setup.given_to(name, names, asked) for name in names]
    strategies = [setup.make_strategy(name, share) for name, share in zip(names, shares)]
    problem, budget = setup.make_problem(asked, strategies), setup.make_budget(asked)
    faults = setup.make_faults(asked)
    outcomes: list[Any] = []
    with setup.make_cluster(engine, asked) as processes:
        clusters = [setup.seen_with(processes, share.servers) for share in shares]
        for strategy, cluster in zip(strategies, clusters):
            setup.check_shape(problem, strategy, cluster, budget, faults)
        for strategy, cluster in zip(strategies, clusters):
            outcomes.append(running.run(problem, strategy, cluster, budget, faults))
            if outcomes[-1].error is not None:
                raise outcomes[-1].error
            if outcomes[-1].interrupted:
                break
    show_several(outcomes, strategies, files, as_json)


def show_several(outcomes: list[Any], strategies: list[Any], files: Files, as_json: bool) -> None:
    """Side by side, as a table, a picture and an object; end with the exit code that tells how it went."""
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
