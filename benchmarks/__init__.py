"""How fast labkit is, and beside whom: `python -m benchmarks`.

Law: both sides of a comparison are measured in the same run, in turns, several times; what is printed is the median
with the lowest and the highest, and the machine it was measured on. Nothing here asserts a time.

Read `rows.py` (what a measurement is), then any benchmark (`round_trip.py` is the shortest), then `peers/` (whom labkit
is compared with). A new benchmark is a file with a `BENCHMARK`, listed in `registry.py`. A new peer is a file in
`peers/` and one `Side` in the benchmark that measures it; a side whose packages are not installed is skipped, by name.
"""
