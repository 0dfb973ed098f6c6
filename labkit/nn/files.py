"""Model files: an .npz of plain arrays and one JSON header. Reading a file runs no code of the file; pickle is not used.

Layers and losses are looked up by name in fixed tables. A file that is damaged, was written by another program or has a
newer format is rejected before any of its contents is used. Writing is atomic: the file is written under a temporary
name and then renamed.
"""

from __future__ import annotations

import dataclasses
import json
import os
import struct
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import BadInput, shown
from ..files import whole_file
from ..paths import as_path, reason
from .embedding import EmbeddingBag
from .layers import Dense
from .network import ACTIVATIONS, LOSSES, Block, Network
from .objective import Array, check_vector
from .recommender import Recommender
from .rows import SparseParameters

__all__ = ["FORMAT", "load_model", "save_model"]

FORMAT = 2  # format 2 has embedding tables; models without a table are written as 1, which older versions can read
KIND = "labkit model"
PREFIX = "array."
DAMAGED: tuple[type[BaseException], ...] = (
    *(OSError, EOFError, KeyError, TypeError, ValueError, MemoryError, OverflowError, RuntimeError, SyntaxError),
    *(AttributeError, struct.error, zipfile.BadZipFile, zlib.error),
)


def save_model(
    path: str | os.PathLike[str],
    network: Network | Recommender,
    params: Any,
    about: Mapping[str, Any] | None = None,
    arrays: Mapping[str, Array] | None = None,
) -> None:
    """Write network, params (shape (size,)) and `about` (JSON values) to `path`; no suffix is added.

    The params of a recommender may be `SparseParameters`; then the file contains only their rows.

    `arrays`: further arrays that the model needs, such as `mean` and `scale` of the standardised inputs. They are added
    to the arrays in `about["arrays"]`, which are saved so that a loaded model can be saved again. Raises `BadInput` if
    a value cannot be saved or the file cannot be written.
    """
    if not isinstance(network, Network | Recommender):
        raise BadInput(f"Only a Network or a Recommender can be saved, not a {type(network).__name__}.")
    _check_params(network, params)
    about = dict(about or {})
    more = {PREFIX + k: np.asarray(v) for k, v in {**about.pop("arrays", {}), **(arrays or {})}.items()}
    for name, array in more.items():
        if array.dtype.kind not in "biufU":
            raise BadInput(f"The array {shown(name[len(PREFIX) :])} has dtype {array.dtype}; numbers or text are needed.")
    version = FORMAT if isinstance(network, Recommender) else 1
    header = {"kind": KIND, "format": version, "network": _describe(network), "about": about}
    if isinstance(params, SparseParameters):
        more |= {"ids": params.ids}
        header["seed"], params = params.seed, params.values
    try:
        text = json.dumps(header).encode()
    except (TypeError, ValueError) as why:
        raise BadInput(f"about cannot be written as JSON: {why}.") from None
    try:
        with whole_file(as_path("path", path)) as file:
            np.savez(file, header=np.frombuffer(text, np.uint8), params=params, **more)  # type: ignore[arg-type]
    except OSError as why:
        raise BadInput(f"{shown(str(path))} cannot be written: {reason(why)}.") from None


def load_model(path: str | os.PathLike[str]) -> tuple[Any, Any, dict[str, Any]]:
    """Return (network, params, about) as they were saved; further arrays are in the dict `about["arrays"]`.

    Raises `BadInput` if the file is missing, damaged, not a labkit model, or of a newer format.
    """
    name = as_path("path", path)
    try:
        members = _read(name)
    except FileNotFoundError:
        raise BadInput(f"There is no file {shown(name)}.") from None
    except DAMAGED as why:
        raise BadInput(f"{shown(name)} is damaged or not a labkit model: {reason(why)}.") from None
    header = _header(name, members)
    try:
        network = _rebuild(header["network"])
        params: Any = members["params"]
        if "seed" in header:
            params = SparseParameters(network.bag, members["ids"], params, int(header["seed"])).checked()
        _check_params(network, params)
        about = dict(header["about"])
    except DAMAGED as why:
        raise BadInput(f"{shown(name)} is damaged: its header and its arrays do not fit ({why}).") from None
    about["arrays"] = {k[len(PREFIX) :]: v for k, v in members.items() if k.startswith(PREFIX)}
    return network, params, about


def _read(name: str) -> dict[str, Array]:
    """Read all arrays of the file. The file's check sums are verified before NumPy parses the arrays."""
    with zipfile.ZipFile(name) as archive:
        broken = archive.testzip()
    if broken is not None:
        raise ValueError(f"the check sum of {broken} is wrong")
    with np.load(name, allow_pickle=False) as arrays:
        return {key: arrays[key] for key in arrays.files}


def _header(name: str, members: dict[str, Array]) -> dict[str, Any]:
    try:
        header = dict(json.loads(members["header"].tobytes()))
        kind, version = header["kind"], int(header["format"])
    except DAMAGED:
        kind, version = None, 0
    if kind != KIND or version < 1:
        raise BadInput(f"{shown(name)} is not a labkit model.")
    if version > FORMAT:
        raise BadInput(f"{shown(name)} has format {version}; this labkit reads up to format {FORMAT}: use a newer labkit.")
    return header


def _check_params(network: Network | Recommender, params: Any) -> None:
    """Raise `BadInput` if these are not parameters of this network."""
    if not isinstance(params, SparseParameters):
        check_vector("params", params, network.size, network.dtype)
    elif not isinstance(network, Recommender) or params.bag != network.bag:
        raise BadInput(f"These are rows of another table than that of {shown(network)}.")
    else:
        check_vector("the dense part", params.dense, network.tower.size, network.dtype)


def _describe(network: Network | Recommender) -> dict[str, Any]:
    """Return the network as JSON values, from which `_rebuild` makes an equal network."""
    if isinstance(network, Recommender):
        return {"embedding": dataclasses.asdict(network.bag), **_describe(network.tower)}
    activations = {kind: name for name, (kind, _) in ACTIVATIONS.items()}
    losses: dict[Any, str] = {kind: name for name, kind in LOSSES.items()}
    if type(network.loss) not in losses:
        raise BadInput(f"A network with the loss {network.loss!r} cannot be saved, only one of {', '.join(LOSSES)}.")
    blocks = [
        [b.name, dataclasses.asdict(b.dense), activations[type(b.activation)] if b.activation else None]
        for b in network.blocks
    ]
    return {"blocks": blocks, "loss": losses[type(network.loss)], "dtype": str(network.dtype)}


def _rebuild(about: dict[str, Any]) -> Any:
    if "embedding" in about:
        rest = {name: part for name, part in about.items() if name != "embedding"}
        return Recommender.of(EmbeddingBag(**about["embedding"]), _rebuild(rest))
    blocks = [
        Block(name, Dense(**dense), ACTIVATIONS[act][0]() if act else None) for name, dense, act in about["blocks"]
    ]
    return Network(blocks, LOSSES[about["loss"]](), about["dtype"])
