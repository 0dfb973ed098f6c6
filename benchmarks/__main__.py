"""`python -m benchmarks`. The guard is needed because the processes of a cluster import this module again."""

from __future__ import annotations

from benchmarks.command import main

if __name__ == "__main__":
    main()
