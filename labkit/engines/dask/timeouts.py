"""The timeouts that decide whether a process is slow, dead or given up, in seconds, with their reasons. Polling intervals, and
the timeouts of one connection, handshake or checkpoint, are defined in the modules that use them.

They follow one policy. A fault is repaired, or reported by an error or in the log of the run, within `REPORT_S` of its
occurrence. A process is dead if its connection is closed, the process has ended, or it has given no sign of life
for a stated time; a process that gives signs of life (an answer, a heartbeat, processor time used) is slow. Slowness is
never an error: slow processes are waited for, by a thread that can be interrupted.
"""

from __future__ import annotations

# The guarantee --------------------------------------------------------------------------------------------------------

REPORT_S = 15.0  # a fault is repaired or reported within this time; the limits below leave it a margin

# Slow or dead ---------------------------------------------------------------------------------------------------------

SILENT_S = 10.0  # a starting process, or a Dask worker that a run needs, is dead after this time without a sign of life
LOOK_S = 0.5  # interval between two observations of signs of life of starting processes
ABSENT_S = 2.0  # if the observer itself was suspended or starved for longer, it draws no conclusions about others
BUSY_S = 10.0  # for a task to get a thread of its Dask worker, which is alive and busy with other work

# Starting -------------------------------------------------------------------------------------------------------------

STARTS = 3  # limit of consecutive failed starts of a process or a role
REACH_S = 7.0  # for a user's scheduler to answer: long enough for lost packets, and shorter than REPORT_S
ANSWER_S = 5.0  # for an answer that a live Dask worker gives at once
START_S = 100.0  # for the start of a role whose Dask worker is alive: detects calls that never return, as of a blocking data set
BEGIN_S = 120.0  # for a role that is up to wait for the others; longer than START_S. Without a client it leaves at once
RETURN_S = REPORT_S  # for Dask workers not started by labkit to come back when none is left, or too few to begin

# Recovery -------------------------------------------------------------------------------------------------------------

GIVE_UP_S = 12.0  # for a missing role to restart, before the log records that the run waits for it, or continues without it
SHARE_S = 3.0  # for finding an unused Dask worker, before one is shared with other runs
SCALE_UP_S = 2.0  # interval between two requests for processes of labkit's own for roles that need one
FETCH_S = REPORT_S  # for the final report of an instance that has ended for a group restart
KILL_S = 2.0  # for a process on another machine to acknowledge the request to kill itself
POST_S = 1.0  # for the acknowledgement of an order that is not waited for
CANCELLED_S = 0.3  # after the first cancelled task, before it is decided whether Dask has cancelled some tasks or all
LEAVE_S = 3.0  # for a closing Dask worker to wait for its roles; its nanny kills it after 4
RESTARTED_S = LEAVE_S + 0.5  # for Dask workers that are restarted, which cancels all tasks, to leave
UNPLACED_S = 3.0  # for finding a Dask worker for a role that joins, before the log records that none is free
REPEAT_S = 2.0  # interval of retransmission of orders, which are idempotent

# Ending ---------------------------------------------------------------------------------------------------------------

CLOSE_S = 5.0  # for processes to end in order; then they are killed
KILLED_S = 5.0  # for killed processes to end, and for the operations that wait for them
