"""The processes of a `DaskCluster` (on this machine, or those of an existing scheduler), and the handle on them.

`dask_cluster` defines `DaskCluster`. `dask_connection` is its connection to Dask, with the checks of its processes,
and `backends` is where these come from. `local`, `nannies`, `http_servers`, `credentials` and `settings` implement a
local cluster. `forked` handles `os.fork()`. `placement` assigns nodes to processes. `resources` lists the resources
of the processes, and measures their speed.
"""
