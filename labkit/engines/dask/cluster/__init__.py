"""The processes of a `DaskCluster`, started on this machine or by an existing scheduler, and the handle on them.

`dask_cluster` defines `DaskCluster`; `dask_connection` starts, connects to, checks and ends its processes; `local`, `nannies`,
`http_servers` and `credentials` implement a local cluster; `placement` assigns nodes to processes; `resources` measures them.
"""
