"""The client of a run on Dask: starts its roles, receives reports, executes commands, restarts lost roles, ends the run.

`run.DaskRun` is the engine, and the other modules are its components. One thread, the run's thread, owns all
components.
"""
