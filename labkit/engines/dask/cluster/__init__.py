"""The processes of a `DaskCluster`, started on this machine or by an existing scheduler, and the handle on them.

`handle` defines `DaskCluster`; `backend` starts, connects to, checks and ends its processes; `local`, `nannies`, `servers` and
`credentials` implement a local cluster; `placement` assigns nodes to processes; `resources` measures them.
"""
