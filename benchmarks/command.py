"""The command line, which selects benchmarks and sizes, prints tables and writes JSON."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from .machine import describe, describe_as_text
from .registry import BENCHMARKS
from .rows import Benchmark, Row, Settings
from .tables import show, wide_console


@dataclass(frozen=True)
class Outcome:
    """The outcome of a benchmark. `error`: the reason why it has no rows."""

    benchmark: Benchmark
    rows: list[Row]
    seconds: float
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for `--json`."""
        b = self.benchmark
        fields = {"name": b.name, "what": b.what, "note": b.note, "seconds": self.seconds, "error": self.error}
        return {**fields, "rows": [asdict(row) for row in self.rows]}


@click.command()
@click.option(
    "--only", multiple=True, type=click.Choice([b.name for b in BENCHMARKS]), help="Run this one only; repeatable."
)
@click.option("--quick", is_flag=True, help="Tiny sizes, to test that the benchmarks run; the results have no meaning.")
@click.option("--json", "file", type=click.Path(dir_okay=False, path_type=Path), help="Write all results to this file.")
@click.option("--list", "list_them", is_flag=True, help="List the benchmarks and exit.")
def main(only: tuple[str, ...], quick: bool, file: Path | None, list_them: bool) -> None:
    """Measure labkit on this machine, and the installed peers (`pip install -e ".[bench]"`).

    The machine should be idle otherwise; with all peers this takes about half an hour.
    """
    console = wide_console()
    if list_them:
        for benchmark in BENCHMARKS:
            console.print(f"{benchmark.name:<12} {benchmark.what}")
        return
    machine, outcomes = describe(), list[Outcome]()
    console.print(describe_as_text(machine))
    _write_json(file, machine, quick, outcomes)  # an unwritable file is an error before the measurements
    for benchmark in BENCHMARKS:
        if not only or benchmark.name in only:
            outcomes.append(_run(benchmark, quick))
            show(console, benchmark, outcomes[-1].rows, outcomes[-1].error)
            _write_json(file, machine, quick, outcomes)
    sys.exit(any(outcome.error for outcome in outcomes))


def _write_json(file: Path | None, machine: dict[str, Any], quick: bool, outcomes: list[Outcome]) -> None:
    if file is None:
        return
    content = {"machine": machine, "quick": quick, "benchmarks": [outcome.to_dict() for outcome in outcomes]}
    try:
        file.write_text(json.dumps(content, indent=1) + "\n")
    except OSError as error:
        raise click.ClickException(f"--json {file}: {error.strerror}.") from None


def _run(benchmark: Benchmark, quick: bool) -> Outcome:
    """Run one benchmark. If it fails, the outcome contains the error, and the other benchmarks continue."""
    began = time.perf_counter()
    with Console(stderr=True).status(benchmark.name) as status:
        settings = Settings(quick, lambda text: status.update(f"{benchmark.name}: {text}"))
        try:
            rows, error = benchmark.run(settings), None
        except Exception as failure:
            rows, error = [], f"{type(failure).__name__}: {failure}"
    return Outcome(benchmark, rows, time.perf_counter() - began, error)
