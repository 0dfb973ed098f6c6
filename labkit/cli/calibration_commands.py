"""`labkit calibrate` and `labkit predict`: measure the costs of processes, and predict runs with them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import click

from .options import RunCommand, check_file, given_options, run_specs
from .run_commands import json_option

__all__ = ["calibrate", "predict"]


@click.command(cls=RunCommand, short_help="Measure the costs of a cluster's processes.")
@click.option("--for", "duration", metavar="SECONDS", type=float, default=10.0, help="Time of all measurements (default 10 s).")
@click.option("--out", metavar="FILE.json", help="The file for the calibration, which labkit predict reads.")
@click.option("--figure", metavar="FILE.png", help="A figure of the costs.")
@json_option
def calibrate(duration: float, out: str | None, figure: str | None, as_json: bool, **options: Any) -> None:
    """Measure gradients, updates, messages and waiting on a cluster, on which nothing else should run.

    \b
    labkit calibrate --dataset digits --hidden 128 --out cluster.json
    """
    from ..calibration import calibrate as measure
    from ..spec import make_cluster

    for name, file in (("out", out), ("figure", figure)):
        if file is not None:
            check_file(name, file)
    (spec,) = run_specs(("async-ps",), "dask", given_options(options))
    with make_cluster(spec.cluster) as cluster:
        found = measure(cluster, spec.problem, duration, on_progress=_progress())
    if out is not None:
        found.save(out)
    if figure is not None:
        from ..views import save

        save(found.figure(), figure)
    click.echo(str(found), err=as_json)
    if as_json:
        click.echo(json.dumps(found.to_dict(), allow_nan=False))


@click.command(cls=RunCommand, short_help="Predict runs with measured costs.")
@click.argument("names", metavar="STRATEGY ...", nargs=-1)
@click.option("--calibration", metavar="FILE.json", required=True, help="The file that labkit calibrate has written.")
@click.option("--sizes", metavar="N,N,...", default="2,4,8,16,32,64", help="Numbers of workers (default 2,4,8,16,32,64).")
@click.option("--hosts", metavar="N", type=int, help="Hosts like the measured one (default: as many as were measured).")
@click.option("--seeds", metavar="N", type=int, default=3, help="Number of seeds (default 3).")
@click.option("--csv", metavar="FILE.csv", help="A table with one line per run.")
@click.option("--figure", metavar="FILE.png", help="Time to accuracy, efficiency, staleness, speed against accuracy.")
@json_option
def predict(
    names: tuple[str, ...], calibration: str, sizes: str, hosts: int | None, seeds: int, as_json: bool, **options: Any
) -> None:
    """Predict throughput, staleness, bytes and time to accuracy of strategies on clusters of several sizes.

    \b
    labkit predict async-ps ring-all-reduce --calibration cluster.json --sizes 2,8,32 --updates 2000
    """
    from ..calibration import Calibration
    from ..calibration import predict as simulate
    from ..errors import BadInput

    csv, figure = options.pop("csv"), options.pop("figure")
    for name, file in (("csv", csv), ("figure", figure)):
        if file is not None:
            check_file(name, file)
    if not names:
        raise BadInput("predict takes at least one strategy, as in: labkit predict async-ps --calibration cluster.json.")
    try:
        workers = [int(text) for text in sizes.split(",")]
    except ValueError:
        raise BadInput(f"--sizes {sizes}: give numbers of workers, as --sizes 2,4,8.") from None
    known = Calibration.load(calibration)
    specs = run_specs(names, "dask", given_options(options))
    cluster = specs[0].cluster
    made = simulate(
        specs[0].problem, [spec.strategy for spec in specs], known, workers, servers=cluster.servers, pace=cluster.compute,
        hosts=hosts, budget=specs[0].budget, seeds=seeds, slow=cluster.slow,
    )  # fmt: skip
    if csv:
        made.sweep.to_csv(csv)
    if figure:
        from ..views import save

        save(made.figure(), figure)
    click.echo(str(made), err=as_json)
    if as_json:
        click.echo(json.dumps({"runs": [dict(row) for row in made.sweep.rows], "doubts": made.doubts}, allow_nan=False))


def _progress() -> Callable[[int, int], None] | None:
    """Return a function that shows the progress on standard error; None if standard error is not a terminal."""
    if not sys.stderr.isatty():
        return None
    return lambda done, total: click.echo(f"\r{done} of {total} measurements", nl=done == total, err=True)
