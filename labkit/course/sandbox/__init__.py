"""Runs a submission's code in processes that can only compute and exchange messages with the grader.

In the student process: `fork_server` forks it, `confine` restricts its system calls, `restricted_api` is its `labkit`,
`cells` runs the submitted cells, `proxies` represents the shards, models and gradients that the grader holds, and
`student_process` is the main loop. In the grader: `processes` starts and ends student processes, `session` answers the
requests of a student process, `request_validation` checks them, `remote` makes strategies and functions that run in
student processes, and `remote_answers` is used by the rebuilt notebook. Both sides encode messages with
`labkit.encoding`.
`launch` has the list of modules that confined processes may import."""
