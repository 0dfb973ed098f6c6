"""Benchmarks of labkit and of comparable systems (peers): `python -m benchmarks`.

Both sides of a comparison are measured in the same run, alternating, several times. A result is the median with the
minimum and maximum; a description of the machine is part of the results. Benchmarks assert no times.

Read `rows.py` (measurements), then any benchmark (`round_trip.py` is the shortest), then `peers/` (the peers). A new
benchmark is a file with a `BENCHMARK`, listed in `registry.py`. A new peer is a file in `peers/`, and one `Side` in the
benchmark that measures it. A side whose packages are not installed is skipped, and listed by name.
"""
