"""Timeouts in seconds, with their reasons. They decide whether a process is slow, dead or given up.

Polling intervals, and the timeouts of one connection, handshake or checkpoint, are defined in the modules that use them.

All timeouts follow one policy. A fault is repaired, or reported by an error or in the log of the run, within `REPORT_S` of
its occurrence. A process is dead if its connection is closed, if it has ended, or if it has given no sign of life for a
stated time. A process that gives signs of life (an answer, a heartbeat, processor time used) but does not finish is slow.
Slowness is never an error: the run waits for slow processes, in a thread that can be interrupted. A start has stages
(`stages.py`), none of which has a limit of its own.
"""

from __future__ import annotations

# The guarantee --------------------------------------------------------------------------------------------------------

REPORT_S = 15.0  # a fault is repaired or reported within this time; the limits below leave it a margin

# Slow or dead ---------------------------------------------------------------------------------------------------------

SILENT_S = 10.0  # a starting process, or a Dask worker that a run needs, is dead after this time without a sign of life
LOOK_S = 0.5  # interval between two observations of signs of life of starting processes
ABSENT_S = 0.5  # an observer that was itself suspended or had no core counts at most this time as silence of the others
BUSY_S = 10.0  # time after which a Dask worker whose threads execute tasks of others is busy with other work

# Starting -------------------------------------------------------------------------------------------------------------

STARTS = 3  # limit of consecutive failed starts of a process or a role
ATTEMPTS = 5  # limit of consecutive incarnations of a role whose process ends by itself within LASTED_S seconds
LASTED_S = 10.0  # a role that has been up for this time has started: the loss of its process is a new fault
REACH_S = 7.0  # limit for the answer of a user's scheduler: long enough if packets are lost, and shorter than REPORT_S
CONNECT_S = 600.0  # Dask's limits for connections between processes of labkit's own; signs of life decide much earlier
ANSWER_S = 5.0  # time after which a request to a Dask worker is repeated, if the Dask worker lives
RETURN_S = REPORT_S  # limit for Dask workers not started by labkit to come back, when none is left

# Links between roles ----------------------------------------------------------------------------------------------------

UNREACHED_S = (
    9.0  # time without an answer of a present role, after which it counts as unreachable: longer than most losses take
)
STALLED_S = 4.0  # time in which all roles wait and nothing is received, after which a run with unreachable roles ends

# Recovery -------------------------------------------------------------------------------------------------------------

# time without a restart, after which the log records that the run waits for a role or continues without it
GIVE_UP_S = 12.0
SHARE_S = 3.0  # time without an unused Dask worker, after which a role shares one with other runs
SCALE_UP_S = 2.0  # interval between two requests to start more processes of labkit's own, while a role needs one
FETCH_S = REPORT_S  # limit for the final report of an instance that has ended for a group restart
KILL_S = 2.0  # limit for a process on another machine to acknowledge the request to kill itself
POST_S = 1.0  # limit for the acknowledgement of an order that is sent without waiting
CANCELLED_S = 0.3  # time from the first cancelled task to the decision whether Dask has cancelled some tasks or all
LEAVE_S = 3.0  # limit for a closing Dask worker to wait for its roles; its nanny kills it after 4 s
RESTARTED_S = LEAVE_S + 0.5  # limit for Dask workers to leave when Dask restarts them; a restart cancels all tasks
UNPLACED_S = 3.0  # time without a Dask worker for a role that joins, after which the log records that none is free
REPEAT_S = 2.0  # interval between two transmissions of an order; orders are idempotent

# Ending ---------------------------------------------------------------------------------------------------------------

CLOSE_S = 5.0  # limit for processes to end by themselves; then they are killed
KILLED_S = 5.0  # limit for killed processes to end, and for the operations that wait for them
