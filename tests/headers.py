"""Headers of traces without a run."""

from labkit.trace.header import (
    RecordedBudget,
    RecordedCluster,
    RecordedLayout,
    RecordedProblem,
    RecordedRole,
    RecordedStrategy,
    TraceHeader,
)


def header_of(*names, nodes=None, replication="", budget=None, engine="simulated", **cluster):
    """The header of a run of these roles, as "server-0", "worker-0" and "chief", each on its own node or on that in `nodes`."""
    roles = []
    for name, node in zip(names, nodes or names, strict=True):
        kind, _, number = name.partition("-")
        shard, data = (int(number) if kind == numbered else None for numbered in ("server", "worker"))
        roles.append(RecordedRole(name=name, kind=kind, node=node, shard=shard, data=data))
    observed = tuple(role.name for role in roles if role.kind == "server")
    return TraceHeader(
        problem=RecordedProblem(data="by hand", batch_size=10, dtype="float32"),
        strategy=RecordedStrategy(name="AsyncPS"),
        cluster=RecordedCluster(engine=engine, workers=sum(role.kind == "worker" for role in roles), **cluster),
        budget=RecordedBudget(**budget or {}),
        seed=0,
        layout=RecordedLayout(roles=tuple(roles), observed=observed, replication=replication),
        layers=(),
        messages=("Push", "Weights"),
    )
