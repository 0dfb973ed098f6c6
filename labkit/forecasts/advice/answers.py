"""The answers to three design questions, with numbers.

Dense or sparse? Server or all-reduce? Split the model?
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from ...formatting import bytes_text
from ...formatting import time_text as t
from ..steady_state import PRECISION
from .inputs import Inputs

ALL_REDUCE = ("RingAllReduce", "HalvingDoubling", "BucketedAllReduce")


def three_answers(f: Inputs, rows: Sequence[Any]) -> tuple[str, str, str]:
    """Return the answers (dense or sparse, server or all-reduce, split or whole), from sorted forecasts."""
    return (
        "Dense or sparse? " + dense_or_sparse(f, rows),
        "Server or all-reduce? " + server_or_all_reduce(f, rows),
        "Split the model? " + split_or_whole(f, rows),
    )


def _first(rows: Iterable[Any], *names: str) -> Any:
    """Return the fastest row of these strategies, or None."""
    return next((row for row in rows if row.strategy.name in names), None)


def _same_time(one: Any, other: Any) -> bool:
    """Whether the steps of two rows take the same time, to `PRECISION`, or as far as their intervals tell."""
    return bool(abs(one.step - other.step) < max(PRECISION * other.step, math.hypot(one.error, other.error)))


def _least_memory(rows: Iterable[Any]) -> Any:
    """Return the row that needs the least memory."""
    return min(rows, key=lambda row: row.memory)


def dense_or_sparse(f: Inputs, rows: Sequence[Any]) -> str:
    """Return the answer to "dense or sparse?".

    A sparse all-gather of (id, value) pairs is faster than a ring if and only if the density is below 1/N.
    """
    if f.density >= 1:
        return "Dense: a batch's gradient touches every parameter (density 1)."
    sparse, dense = _first(rows, "SparsePS"), _first(rows, *ALL_REDUCE, "SyncPS")
    touched = f"a batch touches {f.density:.3g} of {bytes_text(f.model)}"
    if sparse is None or dense is None:
        side = "below" if f.density < 1 / f.n else "not below"
        return (
            f"{touched}; (id, value) pairs are faster than a ring below a density of 1/N = {1 / f.n:.3g}; "
            f"this density is {side} it."
        )
    verdict = "Either" if _same_time(sparse, dense) else "Sparse" if sparse.step < dense.step else "Dense"
    return (
        f"{verdict}: {touched}; sending rows takes {t(sparse.step)} per step ({bytes_text(sparse.bytes)} on the busiest link), "
        f"sending the whole model {t(dense.step)} with {dense.label} ({bytes_text(dense.bytes)})."
    )


def server_or_all_reduce(f: Inputs, rows: Sequence[Any]) -> str:
    """Return the answer to "server or all-reduce?". It compares synchronous strategies, which compute the same updates."""
    server, ring = _first(rows, "SyncPS"), _first(rows, *ALL_REDUCE)
    if server is None or ring is None:
        return f"Only one of them was given; the fastest strategy is {rows[0].label}, {t(rows[0].step)} per step."
    verdict = "Either" if _same_time(ring, server) else "All-reduce" if ring.step < server.step else "Server"
    text = (
        f"{verdict}: synchronously, {ring.label} takes {t(ring.step)} and SyncPS with {f.servers} server"
        f"{'s' if f.servers > 1 else ''} {t(server.step)} per step ({bytes_text(ring.bytes)} and {bytes_text(server.bytes)} on "
        "the busiest link)"
    )
    sparse = _first(rows, "SparsePS")
    if sparse is not None and sparse.step < min(ring.step, server.step) and not _same_time(sparse, ring):
        rest = "an all-reduce" if sparse.strategy.dense == "all-reduce" else "the same servers"
        text = (
            f"Servers for the rows of the embedding table, {rest} for the rest ({sparse.label}, {t(sparse.step)} per step); of "
            f"the strategies that send the whole model: {text[0].lower()}{text[1:]}"
        )
    free = _first(rows, "AsyncPS")
    if free is not None and free.step < 0.95 * min(ring.step, server.step):
        text += f"; with SyncPS workers wait {server.waiting:.0%} of the time, and an asynchronous step takes {t(free.step)}"
    return text + "."


SPLIT = ("TensorParallel", "Pipeline", "PipeDream", "Hybrid", "FSDP")


def split_or_whole(f: Inputs, rows: Sequence[Any]) -> str:
    """Return the answer to "split the model?".

    Splitting saves memory. It saves time only if summing whole gradients costs more than splitting their computation.
    """
    whole = next((row for row in rows if row.strategy.name not in SPLIT), None)
    split = next((row for row in rows if row.strategy.name in SPLIT), None)
    if split is None:
        return "This model cannot be split over these workers."
    if whole is None:
        return f"Only splits were given; the fastest is {split.label}, {t(split.step)} per step."
    if not whole.fits:  # then no unsplit strategy fits
        whole = _least_memory(row for row in rows if row.strategy.name not in SPLIT)
        if not split.fits:
            split = _least_memory(row for row in rows if row.strategy.name in SPLIT)
        best = f"{split.label} needs {bytes_text(split.memory)} and takes {t(split.step)} per step"
        needs = f"the whole model needs {bytes_text(whole.memory)} per node of {bytes_text(f.memory or 0)}"
        return f"Yes: {needs}; {best}." if split.fits else f"It does not help: {needs}, and even {best}."
    memory = (
        f"the whole model fits ({bytes_text(whole.memory)} per node)"
        if f.memory
        else f"the whole model needs {bytes_text(whole.memory)} per node"
    )
    if split.step < whole.step:
        return f"Yes, for time: {memory}, but {split.label} takes {t(split.step)} per step and {whole.label} {t(whole.step)}."
    return f"No: {memory}, and {whole.label} takes {t(whole.step)} per step, {split.label} {t(split.step)}."
