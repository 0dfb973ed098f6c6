"""Where a student's code runs: a process of its own that can compute and talk to the judge, and can do nothing else.

`confine` (what the process may not do), `plain` (what passes between it and the judge), `face` (the `labkit` that it
sees), `child` (what runs there), `host` (the judge's end).
"""
