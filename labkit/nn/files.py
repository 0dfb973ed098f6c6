"""Model files: an .npz of plain arrays and one JSON header. Reading a file runs no code of the file; pickle is not used.

Layers and losses are looked up by name in fixed tables. A file that is damaged, was written by another program or has
another format is rejected before any of its contents is used. Writing is atomic: the file is written under a temporary
name and then renamed.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import BadInput, shown
from ..files import whole_file
from ..formats import ArrayForm, Either, Form, Mismatch, Number, check, check_format, open_arrays
from ..paths import as_path, reason
from .embedding import EmbeddingBag
from .layers import Dense
from .network import ACTIVATIONS, LOSSES, Block, Network
from .objective import Array, check_vector
from .recommender import Recommender
from .rows import SparseParameters

FORMAT = 2
KIND = "labkit model"
PREFIX = "array."
HEADER: Form = {
    "network": {
        "blocks": [(str, dict, Either(*ACTIVATIONS, None))], "loss": Either(*LOSSES), "dtype": Either("float32", "float64"),
        "embedding?": dict,
    },
    "about": dict, "seed?": Number(0, 1 << 63, int),
}  # fmt: skip


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
            raise BadInput(
                f"The array {shown(name[len(PREFIX) :])} has dtype {array.dtype}; numbers or text are needed."
            )
    header = {"kind": KIND, "format": FORMAT, "network": _describe(network), "about": about}
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

    Raises `BadInput` if the file is missing, damaged, not a labkit model, or of another format.
    """
    with open_arrays(path, "a labkit model", ratio=1) as file:
        header: Any = file.read_json("header", {"kind": KIND, "format": int})
        check_format(shown(as_path("path", path)), header["format"], FORMAT)
        check(header, HEADER, "header")
        try:
            network = _rebuild(header["network"])
        except BadInput as error:  # its layers do not fit each other
            raise Mismatch(f"header.network: {str(error).rstrip('.')}") from None
        params: Any = file.read("params", ArrayForm(network.dtype, (None if "seed" in header else network.size,)))
        if "seed" in header:
            ids = file.read("ids", ArrayForm(np.int64, (None,)))
            params = SparseParameters(network.bag, ids, params, header["seed"]).checked()
        _check_params(network, params)
        names = [name for name in file.declared if name.startswith(PREFIX)]
        arrays = {name[len(PREFIX) :]: file.read(name, ArrayForm("biufU")) for name in names}
    return network, params, {**header["about"], "arrays": arrays}


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
        return Recommender.of(_made(EmbeddingBag, about["embedding"], "header.network.embedding"), _rebuild(rest))
    blocks = [
        Block(name, _made(Dense, dense, f"header.network.blocks[{i}]"), ACTIVATIONS[act][0]() if act else None)
        for i, (name, dense, act) in enumerate(about["blocks"])
    ]
    return Network(blocks, LOSSES[about["loss"]](), about["dtype"])


def _made(kind: Any, options: dict[str, Any], field: str) -> Any:
    """Return a `kind` with these options. Raises `Mismatch` or `BadInput` if one is missing or not allowed."""
    names = [option.name for option in dataclasses.fields(kind)]
    check(options, dict.fromkeys(names, Either(int, str)), field)
    return kind(**{name: options[name] for name in names})
