"""Explanations of the technical terms on the page of a lab, one line each: shown when a term is pointed at.

The terms are those of the papers that the strategies cite; docs/glossary.md has the glossary with sources.
"""

from __future__ import annotations

TERMS: dict[str, str] = {
    "accuracy": "share of held-out examples that the model classifies correctly",
    "applied": "gradients that a server (or a replica) has used for an update",
    "batch size": "examples of which one gradient is the mean",
    "calibration": "measured costs of the cluster: times of gradients, updates and messages",
    "checkpoint": "saved state of a role, from which it is restored after a failure",
    "data distribution": "training examples of each class that every worker has",
    "decision boundary": "class that the model predicts at every point of a plane",
    "dropped": "gradients that arrived and were not used, for example because they were late",
    "engine": "where the roles run: in virtual time (simulated) or in processes (dask)",
    "gradient flow": "norm of each layer's gradient, for each worker; small in the first layers: vanishing gradients",
    "gradient time": "time that a worker needs for one gradient",
    "hot rows": "rows of an embedding table that most batches use, and each server's share of the traffic",
    "in flight": "gradients that are computed or on their way, and not applied yet",
    "learning rate": "length of a step along the gradient",
    "ledger": "balance of all gradients: computed = applied + dropped + in flight + lost",
    "links": "bytes per second that each node receives and sends",
    "loss": "mean loss on held-out examples; the smaller, the better",
    "lost": "gradients that were lost because a role failed",
    "max": "largest staleness so far",
    "message zoom": "the last few updates in slow motion, with every message",
    "noise scale": "batch size up to which twice the batch needs about half as many updates",
    "p95": "staleness that 95% of the gradients do not exceed",
    "pace": "whether the roles wait to make gradients take longer",
    "paced": "time of a gradient that the roles wait for, so that the run is as slow as on real data",
    "partly applied": "gradients that some shards have applied and others have not, because a role failed",
    "predictions": "held-out examples with the model's prediction at the last evaluation",
    "progress": "lead of each worker over the slowest worker, in gradients",
    "rolled back": "updates that were undone because a server was restored from an older checkpoint",
    "sent": "bytes of all messages",
    "servers": "roles that hold the parameters; with several, each holds one shard",
    "simulated": "time of a gradient in virtual time: a number, or a distribution",
    "stability": "largest learning rate at which a run with this staleness is stable, and the position of the run",
    "staleness": "number of updates applied between the read of the weights and the application of the gradient computed on them",
    "staleness mean": "mean number of updates between the read of the weights and the application of the gradient",
    "staleness over time": "mean and spread of the staleness of the gradients applied lately",
    "straggler": "a worker that is slower than the others",
    "strategy": "algorithm by which the workers train one model together",
    "throughput": "gradients applied per second",
    "timeline": "what each role does over time: a box is one gradient or one update",
    "topology": "roles, the links between them, and the last update in slow motion",
    "workers": "roles that compute gradients on mini-batches",
}


def explain(term: str) -> str:
    """The explanation of a term, or of the name of a panel, a number or a setting; "" if there is none."""
    return TERMS.get(term.replace("_", " ").lower(), "")
