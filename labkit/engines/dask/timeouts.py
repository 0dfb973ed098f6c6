"""The limits of time that decide whether a process is slow, dead or given up, in seconds, with their reasons. Intervals of
polling, and what one connection, handshake or checkpoint may take, stand in the modules that use them.

One policy stands behind them. A fault is repaired, or reported by an error or in the log of the run, within `REPORT_S` of its
occurrence. A process is dead when its connection is closed, its process is gone, or it has given no sign of life
for a stated time; a process that gives signs of life (an answer, a heartbeat, processor time used) is slow, and slow is
never an error: it is waited for, by a thread that can be interrupted.
"""

from __future__ import annotations

# The promise ----------------------------------------------------------------------------------------------------------

REPORT_S = 15.0  # a fault is repaired or reported within this time; the limits below leave it a margin

# Slow or dead ---------------------------------------------------------------------------------------------------------

SILENT_S = 10.0  # without any sign of life a process that starts, or a Dask worker that a run needs, counts as dead
LOOK_S = 0.5  # between two observations of signs of life of what is starting
ABSENT_S = 2.0  # the observer itself was suspended or starved for so long: nothing can be said about others
BUSY_S = 10.0  # a role whose task waits for a thread of its Dask worker, which is alive and works on something else

# Starting -------------------------------------------------------------------------------------------------------------

STARTS = 3  # starts in a row without success, of a process or a role: then it is not bad luck
REACH_S = 7.0  # for a scheduler that was given to answer: below it an address that drops packets, above it the promise
ANSWER_S = 5.0  # for an answer that a live Dask worker gives at once
START_S = 100.0  # for a role whose Dask worker is alive: against what never returns, such as a data set that blocks
BEGIN_S = 120.0  # a role that is up waits for the others; longer than START_S. Without a client it leaves at once
RETURN_S = REPORT_S  # for Dask workers that labkit did not start to come back when none is left, or too few to begin

# Recovery -------------------------------------------------------------------------------------------------------------

GIVE_UP_S = 12.0  # a role has been missing for so long: the log says that the run waits for it, or goes on without
SHARE_S = 3.0  # a Dask worker of its own is looked for, before one is shared with other runs
GROW_S = 2.0  # between two checks that processes of labkit's own are being started for roles that need one
FETCH_S = REPORT_S  # for the last report of a role that has ended its life for a restart of its group
KILL_S = 2.0  # for a process elsewhere to hear that it is to end itself
POST_S = 1.0  # for an answer to an order that is sent without waiting for it
CANCELLED_S = 0.3  # after which it is clear whether Dask has cancelled one task, or all of them
LEAVE_S = 3.0  # a Dask worker that closes waits for its roles; its nanny kills it after 4
RESTARTED_S = LEAVE_S + 0.5  # after which Dask workers that are restarted, which cancels all tasks, are gone
UNPLACED_S = 3.0  # a Dask worker for a role that joins is sought, before the log says that none is free
REPEAT_S = 2.0  # an order without effect is repeated: orders are idempotent

# Ending ---------------------------------------------------------------------------------------------------------------

CLOSE_S = 5.0  # for processes to end in order; then they are killed
KILLED_S = 5.0  # for killed processes to be gone, and for what waits for them
