"""The options of a run, declared once for `train`, `simulate` and `compare`, and what was given to them.

An option that is not given is None here; its default is the one of the Python call, so there is no second list of
defaults. Values are checked where Python checks them, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import click

__all__ = ["Asked", "Files", "file_options", "pick", "run_options"]

T = TypeVar("T")
LAWS = "deterministic:0.01, exponential:0.01, lognormal:0.01:0.5 (mean, sigma), ..."


@dataclass(frozen=True)
class Asked:
    """What was asked of a run. None: not given."""

    knobs: tuple[str, ...] = ()
    learning_rate: float | None = None
    optimizer: str | None = None
    chief_works: bool = False
    workers: int | None = None
    servers: int | None = None
    dataset: str | None = None
    options: tuple[str, ...] = ()
    hidden: tuple[int, ...] = ()
    batch_size: int | None = None
    dtype: str | None = None
    partition: str | None = None
    seed: int | None = None
    timing_only: bool = False
    updates: int | None = None
    samples: int | None = None
    epochs: float | None = None
    seconds: float | None = None
    accuracy: float | None = None
    slow: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    server_time: str | None = None
    compute: str | None = None
    latency: float | None = None
    bandwidth: float | None = None
    evaluation_time: float | None = None
    pace: str | None = None
    scheduler: str | None = None


@dataclass(frozen=True)
class Files:
    """Where the results of one run go besides the terminal."""

    trace: str | None = None
    perfetto: str | None = None
    figure: str | None = None
    log: str | None = None


RUN = (
    click.option("--set", "knobs", multiple=True, metavar="KNOB=VALUE",
                 help="A knob of the strategy (labkit strategies --knobs NAME)."),
    click.option("--learning-rate", type=float, metavar="R",
                 help="Length of a step; the same as --set learning_rate=R."),
    click.option("--optimizer", metavar="NAME", help="sgd, momentum:0.9, nesterov:0.9, adagrad, adam."),
    click.option("--workers", type=int, metavar="N", help="Workers that compute gradients (4)."),
    click.option("--servers", type=int, metavar="S", help="Servers that own the parameters (what the strategy needs)."),
    click.option("--chief-works", is_flag=True, help="Worker 0 shares the chief's node."),
    click.option("--dataset", metavar="NAME", help="digits, moons, circles, spirals, clicks, ... (digits; clicks for sparse-ps)"),
    click.option("--option", "options", multiple=True, metavar="NAME=VALUE",
                 help="An option of the data set, as rows=100000 of clicks; repeatable."),
    click.option("--hidden", type=int, multiple=True, metavar="WIDTH",
                 help="Width of a hidden layer; repeat for more layers (128; what a pipeline needs)."),
    click.option("--batch-size", type=int, metavar="B", help="Samples in a mini-batch (32)."),
    click.option("--dtype", metavar="TYPE", help="float32 or float64 (the data set's own)."),
    click.option("--partition", metavar="HOW",
                 help="Who has which samples: even, by-label:0.5, by-size, by-weight:1,2,4, shared (even)."),
    click.option("--seed", type=int, metavar="K", help="Decides every random draw (0)."),
    click.option("--timing-only", is_flag=True, help="Compute nothing: only when and where things happen."),
    click.option("--updates", type=int, metavar="U", help="End after this many updates."),
    click.option("--samples", type=int, metavar="N", help="End after this many samples."),
    click.option("--epochs", type=float, metavar="E", help="End after this many passes over the training data."),
    click.option("--seconds", type=float, metavar="T", help="End after this many seconds of the engine's clock."),
    click.option("--accuracy", type=float, metavar="A",
                 help="End at this held-out accuracy. No budget at all: 0.95, or 20 s."),
    click.option("--slow", multiple=True, metavar="ROLE:FACTOR", help="Make a role slower, as worker-2:5; repeatable."),
    click.option("--fault", "faults", multiple=True, metavar="FAULT",
                 help="What goes wrong, and when (seconds): kill:worker-1@2.0, freeze:worker-1@1-3, slow:worker-2:5@2-4, "
                      "delay:worker-1:server-0:0.1, drop:worker:server:0.05, partition:worker-1:*@2-4, "
                      "preempt:worker:0.01; repeatable."),
    click.option("--server-time", metavar="LAW", help="Time of one piece of server work (none)."),
    click.option("--compute", metavar="LAW", help=f"Simulated: time of one gradient: {LAWS}"),
    click.option("--latency", type=float, metavar="SECONDS", help="Simulated: of every message (0)."),
    click.option("--bandwidth", type=float, metavar="BYTES/S", help="Simulated: of every node, each direction (inf)."),
    click.option("--evaluation-time", type=float, metavar="SECONDS", help="Simulated: of an evaluation, on the chief (0)."),
    click.option("--pace", metavar="LAW", help="Dask: make a gradient last so long, as deterministic:0.1."),
    click.option("--scheduler", metavar="ADDRESS",
                 help="Dask: a running scheduler, as tcp://host:8786 (a cluster of its own)."),
)  # fmt: skip
FILES = (
    click.option("--trace", metavar="FILE.npz", help="Keep everything that happened."),
    click.option("--perfetto", metavar="FILE.json", help="The same for https://ui.perfetto.dev."),
    click.option("--figure", metavar="FILE.png", help="A picture of the run."),
    click.option("--log", metavar="FILE", help="The run's log in words."),
)


def run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give `command` all options of a run."""
    return _decorated(command, RUN)


def file_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give `command` the options that name files."""
    return _decorated(command, FILES)


def pick(made: type[T], options: dict[str, Any]) -> T:
    """An `Asked` or a `Files` from all that click hands to a command."""
    return made(**{field.name: options[field.name] for field in fields(made) if field.name in options})  # type: ignore[arg-type]


def _decorated(command: Callable[..., Any], options: tuple[Any, ...]) -> Callable[..., Any]:
    for option in reversed(options):
        command = option(command)
    return command
