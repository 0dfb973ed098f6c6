"""The processes of a `DaskCluster`, and the handle on them: started on this machine, or those of a scheduler that runs.

`handle` is `DaskCluster`; `backend` starts, reaches, checks and ends the processes behind it; `local`, `nannies`, `servers` and
`credentials` are a cluster of labkit's own; `placement` says which node goes to which process; `resources` measures them.
"""
