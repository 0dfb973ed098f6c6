"""`python -m labkit` is `labkit`. The guard is needed because processes of a cluster import this file again."""

from __future__ import annotations

from .cli import main

if __name__ == "__main__":
    main(prog_name="labkit")
