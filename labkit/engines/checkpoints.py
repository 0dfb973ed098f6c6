"""What roles keep: one `.npz` file a role, without pickle, replaced in one step so that a reader never sees half of
it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BadInput
from ..nn import SparseParameters

__all__ = ["check_folder", "fingerprint", "read_state", "write_state"]


def write_state(folder: Path, role: str, state: Mapping[str, Any]) -> Path:
    """Write `state` (arrays and plain values) to `folder/role.npz`; the file before stays whole until the new one is."""
    state = _spread(state)
    arrays = {f"array_{k}": v for k, v in state.items() if isinstance(v, np.ndarray)}
    plain = {k: v for k, v in state.items() if not isinstance(v, np.ndarray)}
    path = folder / f"{role}.npz"
    draft = folder / f".{role}.{os.getpid()}.npz"
    with open(draft, "wb") as file:
        np.savez(file, plain=np.frombuffer(json.dumps(plain).encode(), np.uint8), **arrays)  # type: ignore[arg-type]
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)
    return path


def read_state(path: Path) -> dict[str, Any]:
    """What `write_state` wrote."""
    with np.load(path, allow_pickle=False) as file:
        state = json.loads(file["plain"].tobytes())
        arrays = {name[len("array_") :]: file[name] for name in file.files if name.startswith("array_")}
        return _gathered(state | arrays)


def _spread(state: Mapping[str, Any]) -> dict[str, Any]:
    """The state with sparse parameters as several entries `name:part`, of arrays and plain values."""
    entries: dict[str, Any] = {}
    for name, value in state.items():
        parts = value.to_state() if isinstance(value, SparseParameters) else None
        entries |= {name: value} if parts is None else {f"{name}:{part}": v for part, v in parts.items()}
    return entries


def _gathered(entries: dict[str, Any]) -> dict[str, Any]:
    """The inverse of `_spread`."""
    for name in [key.removesuffix(":ids") for key in entries if key.endswith(":ids")]:
        parts = {key: entries.pop(key) for key in list(entries) if key.startswith(f"{name}:")}
        entries[name] = SparseParameters.from_state({key.partition(":")[2]: v for key, v in parts.items()})
    return entries


def check_folder(checkpoint: Any) -> Path | None:
    """The folder to keep checkpoints in, made if need be; `BadInput` if it cannot be written to."""
    if checkpoint is None or checkpoint is False or checkpoint is True:
        return None
    folder = Path(checkpoint)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".labkit-probe"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise BadInput(f"checkpoint={str(checkpoint)!r}: the folder cannot be written to ({error.strerror}).") from None
    return folder


def fingerprint(parameters: Any) -> str | None:
    """SHA-256 of the parameters' bytes; None where there are none."""
    if isinstance(parameters, SparseParameters):
        return parameters.fingerprint() if len(parameters) else None
    if parameters is None or parameters.strides == (0,):
        return None
    return hashlib.sha256(np.ascontiguousarray(parameters).tobytes()).hexdigest()
