"""Placement: the Dask workers of the cluster, and on which of them the next incarnations of roles start.

A Dask worker on which a role was silent, or did not start, is a suspect: other Dask workers are preferred. It stops being
a suspect when a role on it reports, or when the scheduler has received a new heartbeat of it.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass

from ...cluster.placement import PlacementRule, next_worker
from ...timeouts import SCALE_UP_S, SHARE_S
from ..membership import Membership
from .actions import ScaleUp


@dataclass(eq=False)
class PlacementRequest:
    """A request for a Dask worker for roles of one node. The request ends when the next incarnations of these roles are up.

    `worker`: the Dask worker; None until one is found. Times in seconds.
    """

    roles: list[str]
    since: float
    grouped: bool  # whether the roles start with their group; the Dask worker is reserved until then
    worker: str | None = None
    scaled_at: float = float("-inf")  # time at which more processes were last requested


class WorkerPlacement:
    """Finds Dask workers for roles. `known`: the Dask workers of the cluster. `group`: the roles that start together."""

    def __init__(self, members: Membership, rule: PlacementRule, known: Collection[str], group: Collection[str]):
        self._members, self._rule, self._group = members, rule, group
        self._layout = members.layout
        self._node = {spec.name: spec.node for spec in members.layout.roles}
        self.known = set(known)
        # {Dask worker that was silent, or on which a start failed: sign of life first observed since}
        self._suspects: dict[str, Hashable] = {}
        self.requests: list[PlacementRequest] = []
        self.reserved: dict[str, str] = {}  # {member: Dask worker on which its next incarnation starts, or has started}

    # the cluster ----------------------------------------------------------------------------------------------------------

    def joined(self, worker: str) -> None:
        """Record that a Dask worker has joined the cluster."""
        self.known.add(worker)
        self.trust(worker)

    def closes(self, worker: str) -> None:
        """Record that Dask is closing a Dask worker."""
        self.known.discard(worker)

    def left(self, worker: str) -> list[str]:
        """Record that a Dask worker has left the cluster. Returns the members that are not present and had it reserved."""
        self.known.discard(worker)
        self.trust(worker)
        for request in self.requests:
            if request.worker == worker and request.grouped:
                request.worker = None
        where = self._members.where
        found = [role for role, address in self.reserved.items() if address == worker and role not in where]
        for role in found:
            del self.reserved[role]
        return found

    def suspect(self, workers: Collection[str]) -> None:
        """Prefer other Dask workers to these."""
        self._suspects |= dict.fromkeys(workers)

    def trust(self, worker: str) -> None:
        """Use a Dask worker like the others, because it answers, or is another one at this address."""
        self._suspects.pop(worker, None)

    def heartbeats(self, seen: Mapping[str, Hashable]) -> None:
        """Trust suspects of which there is a new heartbeat."""
        for worker in self._suspects.keys() & seen.keys():
            before = self._suspects[worker]
            if before is None:
                self._suspects[worker] = seen[worker]
            elif seen[worker] != before:
                self.trust(worker)

    # requests -------------------------------------------------------------------------------------------------------------

    def request(self, roles: Collection[str], now: float, scale_up: bool = False) -> list[ScaleUp]:
        """Request Dask workers for the next incarnations of `roles`, one per node. `scale_up`: request more processes, too."""
        found = []
        for node in dict.fromkeys(self._node[role] for role in roles):
            here = [role for role in roles if self._node[role] == node]
            for member in (False, True):  # the chief is not a member of the group
                together = [role for role in here if (role in self._group) == member]
                if together:
                    self.requests.append(PlacementRequest(together, now, grouped=member))
                    found += [self._scale_up(self.requests[-1], now)] if scale_up else []
        return found

    def drop(self, roles: Collection[str]) -> None:
        """Remove these roles from all requests."""
        for request in self.requests:
            request.roles = [role for role in request.roles if role not in roles]
        self.requests = [request for request in self.requests if request.roles]

    def find_worker(self, request: PlacementRequest, now: float) -> list[ScaleUp]:
        """Find a Dask worker for a request, if one is free; else request more processes from time to time.

        A free Dask worker is not used by this run nor, for `SHARE_S` seconds, by another run.
        """
        members, shared = self._members, now - request.since > SHARE_S
        rest = self.known - self._suspects.keys() - set(members.where.values()) - self.reserved_workers()
        free = {worker for worker in rest if shared or members.usage[worker] <= 0}
        placed = {self._node[name]: worker for name, worker in members.where.items()}
        node = self._node[request.roles[0]]
        request.worker = next_worker(node, self._layout.roles, free, placed, members.usage, self._rule)
        late = request.worker is None and now - max(request.since, request.scaled_at) > SCALE_UP_S
        return [self._scale_up(request, now)] if late else []

    def _scale_up(self, request: PlacementRequest, now: float) -> ScaleUp:
        request.scaled_at = now
        return ScaleUp(len(self._used | (self._suspects.keys() & self.known)) + self._open)

    # reserved Dask workers ------------------------------------------------------------------------------------------------

    @property
    def found(self) -> dict[str, str]:
        """The members that were lost or join: {role: the Dask worker that was found for it}."""
        return {role: p.worker for p in self.requests if p.grouped and p.worker is not None for role in p.roles}

    def reserve(self, role: str, worker: str) -> None:
        """Reserve a Dask worker for a member."""
        self.reserved[role] = worker

    def reserve_found(self) -> None:
        """Reserve for the members the Dask workers that were found, which ends their requests."""
        found = self.found
        self.reserved |= found
        self.drop(found)

    def release(self, roles: Collection[str]) -> None:
        """Reserve no Dask worker for these members."""
        for role in roles:
            self.reserved.pop(role, None)

    def reserved_workers(self) -> set[str]:
        """Return the Dask workers that are reserved for requests and for members of the group."""
        return {*self.reserved.values(), *(p.worker for p in self.requests if p.worker is not None)}

    # numbers --------------------------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> set[str]:
        """The roles for which no Dask worker has been found."""
        return {role for request in self.requests if request.worker is None for role in request.roles}

    def needs_heartbeats(self, now: float) -> bool:
        """Return whether only suspects are left for a request."""
        old = (request.worker is None and now - request.since > SHARE_S for request in self.requests)
        return bool(self._suspects) and any(old)

    @property
    def spare(self) -> int:
        """The number of Dask workers that are neither used nor needed."""
        return len(self.known - self._suspects.keys() - self._used) - self._open

    @property
    def _used(self) -> set[str]:
        """The Dask workers that are used by any run, or reserved by this one."""
        return {worker for worker, roles in self._members.usage.items() if roles > 0} | self.reserved_workers()

    @property
    def _open(self) -> int:
        """The number of requests for which no Dask worker has been found."""
        return sum(request.worker is None for request in self.requests)
