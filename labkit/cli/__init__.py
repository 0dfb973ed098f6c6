"""The command line: `labkit lab | train | simulate | compare | sweep | calibrate | forecast | strategies | doctor`, and
for courses `labkit assign | check | grade`.

A command reads its arguments as a problem, a strategy, a cluster and a budget, calls `train`, and prints the results.
Everything that a command does can also be done in Python. Results go to standard output, everything else to standard
error. Slow imports are in the commands that need them, so that `labkit --help` is fast.
"""

from __future__ import annotations

import click

from .calibration_commands import calibrate, forecast
from .command_group import CommandGroup
from .course import assign, check, grade
from .doctor import doctor
from .notebooks import lab
from .run_commands import compare, simulate, train
from .strategy_list import strategies
from .sweep_commands import sweep

__all__ = ["main"]


@click.group(
    "labkit", cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(package_name="labkit-distributed", prog_name="labkit")
def main() -> None:
    """A visual laboratory for distributed training: real on a Dask cluster, exact in virtual time."""


for command in (lab, train, simulate, compare, sweep, calibrate, forecast, strategies, doctor, assign, check, grade):
    main.add_command(command)
