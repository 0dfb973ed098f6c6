"""The client of a run on Dask: starts its roles, listens to them, executes commands, replaces what is lost, ends the run.

`run.DaskRun` is the engine; everything else here is a part of it. One thread of the run owns all parts; see `run`.
"""
