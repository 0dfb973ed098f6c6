"""One role instance in real time, in a Dask worker.

`task` is what Dask is given to run; `assignment` is all that a role instance is told at its start; `role` drives the coroutine
of the role, over the rules that all engines share (`engines/role_core`); `command_channel` brings the client's commands and
takes the role's reports; `checkpointing`, `pacing` and `role_clock` are parts of the role.
"""
