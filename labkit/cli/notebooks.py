"""`labkit lab`: JupyterLab on the first notebook, in this Python environment.

The process is replaced by JupyterLab, so that Ctrl-C reaches JupyterLab and no other process remains. The notebooks of
a source checkout are opened in place. The notebooks of an installed package are copied first, without overwriting files.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import click

from ..errors import BadInput
from .command_group import WholeNumber

__all__ = ["lab"]

FIRST = "00_start_here.ipynb"
COPY_FOLDER = "labkit-notebooks"
IGNORED = frozenset({"__pycache__", ".ipynb_checkpoints"})


@click.command()
@click.option("--no-browser", is_flag=True, help="Do not open a browser; print the address.")
@click.option("--port", type=WholeNumber(1, 65535), metavar="PORT", help="The port (default: 8888, or the next free one).")
@click.argument("jupyter", nargs=-1, type=click.UNPROCESSED, metavar="[-- JUPYTER OPTIONS]")
def lab(no_browser: bool, port: int | None, jupyter: tuple[str, ...]) -> None:
    """Open JupyterLab on notebooks/00_start_here.ipynb. Arguments after -- are passed to JupyterLab."""
    if importlib.util.find_spec("jupyterlab") is None:
        raise BadInput("JupyterLab is not installed in this environment: pip install jupyterlab.")
    folder = find_notebooks(Path(__file__).parents[1], Path.cwd())
    options = [*(["--no-browser"] if no_browser else []), *([f"--port={port}"] if port else []), *jupyter]
    if hasattr(os, "geteuid") and os.geteuid() == 0 and "--allow-root" not in options:
        click.echo("Running as root: --allow-root is passed to JupyterLab.", err=True)
        options.append("--allow-root")
    first = [f"--ServerApp.root_dir={folder}", f"--LabApp.default_url=/lab/tree/{FIRST}"]  # so that URLs contain the name
    replace_process([sys.executable, "-m", "jupyterlab", *first, *options])


def find_notebooks(package: Path, here: Path) -> Path:
    """Return the folder of notebooks: beside the package in a source checkout, else a copy of the packaged files in `here`."""
    checkout = package.parent / "notebooks"
    if (checkout / FIRST).is_file() and (package.parent / "pyproject.toml").is_file():
        return checkout
    packaged = package / "notebooks"
    if not (packaged / FIRST).is_file():
        raise BadInput(f"There are no notebooks: neither {checkout} nor {packaged} has {FIRST}; install labkit again.")
    copies = here / COPY_FOLDER
    try:
        added = copy_missing(packaged, copies)
    except OSError as why:
        raise BadInput(f"{copies} cannot be written: {why.strerror or why}; change to a folder that you may write to.") from None
    click.echo(f"Notebooks are in {copies} ({added} copied, existing files are kept).", err=True)
    return copies


def copy_missing(source: Path, target: Path) -> int:
    """Copy the files of `source` that do not exist in `target`, and return their number."""
    added = 0
    for path in sorted(source.rglob("*")):
        copy = target / path.relative_to(source)
        if path.is_file() and not copy.exists() and not IGNORED.intersection(path.parts):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
            added += 1
    return added


def replace_process(command: list[str]) -> None:
    """Replace this process by `command`. On Windows, where this is not possible, run it and exit with its code."""
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "nt":
        raise click.exceptions.Exit(subprocess.call(command))
    os.execv(command[0], command)
