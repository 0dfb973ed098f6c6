"""The recovery policy of a run: decides about lost roles, new and departing Dask workers, joins and leaves.

`RecoveryPolicy.handle(event, now)` returns a list of actions, which the run performs in this order. The policy has no
I/O, no thread and no clock: time is an argument (seconds, monotonic), and the event `Timer` reports that time has
passed. No call waits. The result of an action arrives as another event, so several roles may be lost at once, or during
a recovery.

`policy` has the table of events, changes the membership, and says in which order its parts act on time. Each part is a
class that knows one subject: `detection` (who has failed), `placement` (where next incarnations start), `group_restart`
(the phases in which all restart together), `elasticity` (who joins and leaves), `attempts` (who is given up), `absences`
(who is missing, and what the log says about it). Parts read the membership, and do not know each other.
"""

from __future__ import annotations

from ..recovery_events import Announced, Killed, Timer
from .actions import (
    Account,
    Admit,
    Announce,
    Begin,
    CheckReturned,
    Dismiss,
    FailRun,
    Fence,
    Fetch,
    Order,
    Record,
    RecordRestart,
    RecoveryAction,
    RequestHeartbeats,
    RoleAction,
    ScaleUp,
    StartGroup,
    Submit,
)
from .policy import RecoveryPolicy

__all__ = [
    "Account", "Admit", "Announce", "Announced", "Begin", "CheckReturned", "Dismiss", "FailRun", "Fence", "Fetch", "Killed",
    "Order", "Record", "RecordRestart", "RecoveryAction", "RecoveryPolicy", "RequestHeartbeats", "RoleAction", "ScaleUp",
    "StartGroup", "Submit", "Timer",
]  # fmt: skip
