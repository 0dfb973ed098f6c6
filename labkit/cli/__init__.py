"""The command line: `labkit lab | train | simulate | compare | strategies | doctor | assign | check | grade`.

A command turns words into a problem, a strategy, a cluster and a budget, calls `train`, and shows the trace: it can do
nothing that Python cannot. Results go to standard output, everything else to standard error. What is heavy to import is
imported by the command that needs it, so `labkit --help` answers at once.
"""

from __future__ import annotations

import click

from .course import assign, check, grade
from .first_aid import doctor
from .group import SentenceGroup
from .listing import strategies
from .notebooks import lab
from .runs import compare, simulate, train

__all__ = ["main"]


@click.group("labkit", cls=SentenceGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="labkit-distributed", prog_name="labkit")
def main() -> None:
    """A visual laboratory for distributed training: real on a Dask cluster, exact in virtual time."""


for command in (lab, train, simulate, compare, strategies, doctor, assign, check, grade):
    main.add_command(command)
