"""`python -m docs`: builds the documentation site and opens it in a browser.

Pages are written to docs/_build/html. Cells of lessons and concepts are executed, and again only if they have changed; their
results are stored in docs/_build/cells.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import webbrowser
from pathlib import Path

import click

DOCS = Path(__file__).parent
HTML = DOCS / "_build" / "html"


@click.command()
@click.option("--no-browser", is_flag=True, help="Do not open the site; print its address.")
@click.option("--check", is_flag=True, help="Build everything again and check all internal links; open nothing.")
@click.option("--stored", is_flag=True, help="Do not execute the lessons: show their stored outputs. Quick.")
def main(no_browser: bool, check: bool, stored: bool) -> None:
    """Build the documentation site, and open it. Warnings and missing references are errors."""
    if importlib.util.find_spec("myst_nb") is None:
        raise click.ClickException('Packages for the site are missing: pip install -e ".[docs]"')
    if not stored:
        click.echo(
            "Lessons that have changed are executed, which takes many minutes at first; --stored shows stored outputs."
        )
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-n", str(DOCS), str(HTML)]  # prints its progress
    if check:
        command += ["-E", "-a"]
    if stored:
        command += ["-t", "stored"]
    if subprocess.run(command, cwd=DOCS.parent, check=False).returncode:
        raise click.ClickException("The site has warnings or errors; they are listed above.")
    address = (HTML / "index.html").as_uri()
    if check:
        from docs.links import broken_links

        broken = broken_links(HTML)
        for link in broken:
            click.echo(link, err=True)
        if broken:
            raise click.ClickException(f"{len(broken)} links are broken.")
    elif not no_browser:
        webbrowser.open(address)
    click.echo(address)


if __name__ == "__main__":
    main()
