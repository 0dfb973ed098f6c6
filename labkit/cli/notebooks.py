"""`labkit lab`: JupyterLab on the first notebook, in this Python environment.

The process is replaced by JupyterLab, so that Ctrl-C reaches JupyterLab and no other process remains. The notebooks are
copied to a working folder first, without overwriting files, because a notebook that is run and saved changes: the files of a
source checkout are under version control, and those of an installed package belong to the package.

JupyterLab does not ask about news, because its box covers a corner of the lab. A user's own settings have precedence.
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

FIRST = "00_start_here.ipynb"
COPY_FOLDER = "labkit-notebooks"
IGNORED = frozenset({"__pycache__", ".ipynb_checkpoints", COPY_FOLDER})
CONFIG_FOLDER = Path(__file__).parent / "jupyter"  # labconfig/default_setting_overrides.json: JupyterLab's settings


@click.command()
@click.option("--no-browser", is_flag=True, help="Do not open a browser; print the address.")
@click.option(
    "--port", type=WholeNumber(1, 65535), metavar="PORT", help="The port (default: 8888, or the next free one)."
)
@click.argument("jupyter", nargs=-1, type=click.UNPROCESSED, metavar="[-- JUPYTER OPTIONS]")
def lab(no_browser: bool, port: int | None, jupyter: tuple[str, ...]) -> None:
    """Open JupyterLab on 00_start_here.ipynb, in a copy of the notebooks in the folder labkit-notebooks here.

    Arguments after -- are passed to JupyterLab.
    """
    if importlib.util.find_spec("jupyterlab") is None:
        raise BadInput("JupyterLab is not installed in this environment: pip install jupyterlab.")
    folder = copy_notebooks(Path(__file__).parents[1], Path.cwd())
    paths = [os.environ.get("JUPYTER_CONFIG_PATH", ""), str(CONFIG_FOLDER)]
    environment = {**os.environ, "JUPYTER_CONFIG_PATH": os.pathsep.join(filter(None, paths))}
    options = [*(["--no-browser"] if no_browser else []), *([f"--port={port}"] if port else []), *jupyter]
    if hasattr(os, "geteuid") and os.geteuid() == 0 and "--allow-root" not in options:
        click.echo("Running as root: --allow-root is passed to JupyterLab.", err=True)
        options.append("--allow-root")
    # so that URLs contain the name
    first = [f"--ServerApp.root_dir={folder}", f"--LabApp.default_url=/lab/tree/{FIRST}"]
    replace_process([sys.executable, "-m", "jupyterlab", *first, *options], environment)


def copy_notebooks(package: Path, here: Path) -> Path:
    """Copy the notebooks to a folder in `here`, and return this folder. Existing files are kept.

    The source is the folder beside `package` in a source checkout, else the folder in the package. Raises `BadInput` if
    there are no notebooks, or if the copies cannot be written.
    """
    checkout, packaged = package.parent / "notebooks", package / "notebooks"
    in_checkout = (checkout / FIRST).is_file() and (package.parent / "pyproject.toml").is_file()
    source = checkout if in_checkout else packaged
    if not (source / FIRST).is_file():
        raise BadInput(f"There are no notebooks: neither {checkout} nor {packaged} has {FIRST}; install labkit again.")
    copies = here / COPY_FOLDER
    try:
        added, kept = copy_missing(source, copies)
    except OSError as why:
        raise BadInput(
            f"{copies} cannot be written: {why.strerror or why}; change to a folder that you may write to."
        ) from None
    click.echo(f"Your notebooks are in {copies} (files copied: {added}, kept: {kept}).", err=True)
    if kept:
        click.echo("To get the original of a notebook again, delete or rename your copy and restart.", err=True)
    return copies


def copy_missing(source: Path, target: Path) -> tuple[int, int]:
    """Copy the files of `source` that do not exist in `target`. Return (number of copied files, number of existing files)."""
    added = kept = 0
    for path in sorted(source.rglob("*")):
        name = path.relative_to(source)
        if IGNORED.intersection(name.parts) or not path.is_file():
            continue
        copy = target / name
        if copy.exists():
            kept += 1
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
        added += 1
    return added, kept


def replace_process(command: list[str], environment: dict[str, str]) -> None:
    """Replace this process by `command`. On Windows, where this is not possible, run it and exit with its code."""
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "nt":
        raise click.exceptions.Exit(subprocess.call(command, env=environment))
    os.execve(command[0], command, environment)
