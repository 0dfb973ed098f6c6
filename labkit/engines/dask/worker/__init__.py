"""One role instance in real time, in a Dask worker.

`task` contains the function that Dask runs, and `assignment` its argument. `role` drives the coroutine of the role, by
the rules that all engines share (`engines/role_core`). `command_channel` carries commands of the client and reports of
the role. `checkpointing`, `pacing` and `role_clock` are components of the role.
"""
