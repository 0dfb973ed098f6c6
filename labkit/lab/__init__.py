"""The lab: an interactive page in a notebook around the panels of `labkit.views`. Importing this package imports nothing else."""
