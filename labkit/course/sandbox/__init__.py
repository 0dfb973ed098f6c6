"""Runs a submission's code in processes that can only compute and exchange messages with the grader.

In the student process: `fork_server` (starts it), `confine` (the system calls it may make), `restricted_api` (its
`labkit`), `cells` (runs the submitted cells), `proxies` (shards, models, gradients that the grader holds), `student_process`
(its main loop). In the grader: `processes` (starts and ends student processes), `session` (answers the requests of one),
`request_validation`, `remote` (strategies and functions that run there), `remote_answers` (what the rebuilt notebook uses).
Both use `frames`, the encoding of the messages. `launch` has the allow-list of modules that confined processes may import.
"""
