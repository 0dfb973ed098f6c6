"""`python -m labkit.cli` is `labkit`. Processes of a cluster import this file again, hence the guard."""

from __future__ import annotations

from . import main

if __name__ == "__main__":
    main(prog_name="labkit")
