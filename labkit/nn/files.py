"""Model files: an .npz of plain arrays and one JSON header. Reading a file runs no code of the file; pickle is not used.

Layers and losses are looked up by name in fixed tables. A file that is damaged, was written by another program or has
another format is rejected before any of its contents is used. Writing is atomic: the file is written under a temporary
name and then renamed.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..errors import BadInput, shown
from ..files import whole_file
from ..formats import ArrayForm, Either, Form, Mismatch, Number, check, check_format, open_arrays
from ..paths import as_path, writing
from .embedding import EmbeddingBag
from .layers import Dense
from .network import ACTIVATIONS, LOSSES, Block, Network
from .objective import Array, check_vector
from .recommender import Recommender
from .rows import SparseParameters

FORMAT = 2
KIND = "labkit model"
PREFIX = "array."
DTYPE = Either("float32", "float64")
COUNT = Number(0, 1 << 63, int)
NETWORK: Form = {
    "blocks": [(str, dict, Either(*ACTIVATIONS, None))], "loss": Either(*LOSSES), "dtype": DTYPE, "embedding?": dict,
}  # fmt: skip
OWN_MODEL: Form = {
    "model": {"name": str, "options": dict, "shapes": {str: [COUNT]}, "code": {"python": str, "sha256": str}}, "dtype": DTYPE,
    "data": {
        "features": COUNT, "outputs": COUNT, "classes": Either(None, COUNT), "sample_shape": [COUNT],
    },
}  # fmt: skip
HEADER: Form = {"network": Either(NETWORK, OWN_MODEL), "about": dict, "seed?": COUNT}


def save_model(
    path: str | os.PathLike[str],
    network: Any,
    params: Any,
    about: Mapping[str, Any] | None = None,
    arrays: Mapping[str, Array] | None = None,
) -> None:
    """Write network, params (shape (size,)) and `about` (JSON values) to `path`; no suffix is added.

    `network`: an objective that describes itself as plain values (`to_plain`). The params of a recommender may be
    `SparseParameters`; then the file contains only their rows.

    `arrays`: further arrays that the model needs, such as `mean` and `scale` of the standardised inputs. They are added
    to the arrays in `about["arrays"]`, which are saved so that a loaded model can be saved again. Raises `BadInput` if
    a value cannot be saved or the file cannot be written.
    """
    if not hasattr(network, "to_plain"):
        raise BadInput(f"A {type(network).__name__} predicts nothing and cannot be saved.")
    _check_params(network, params)
    about = dict(about or {})
    more = {PREFIX + k: np.asarray(v) for k, v in {**about.pop("arrays", {}), **(arrays or {})}.items()}
    for name, array in more.items():
        if array.dtype.kind not in "biufU":
            raise BadInput(
                f"The array {shown(name[len(PREFIX) :])} has dtype {array.dtype}; numbers or text are needed."
            )
    header = {"kind": KIND, "format": FORMAT, "network": network.to_plain(), "about": about}
    if isinstance(params, SparseParameters):
        more |= {"ids": params.ids}
        header["seed"], params = params.seed, params.values
    try:
        text = json.dumps(header).encode()
    except (TypeError, ValueError) as why:
        raise BadInput(f"about cannot be written as JSON: {why}.") from None
    with writing(path), whole_file(as_path("path", path)) as file:
        np.savez(file, header=np.frombuffer(text, np.uint8), params=params, **more)  # type: ignore[arg-type]


def load_model(
    path: str | os.PathLike[str], own_model: Callable[[dict[str, Any] | None], Any] = lambda saved: None
) -> tuple[Any, Any, dict[str, Any]]:  # fmt: skip
    """Return (network, params, about) as they were saved; further arrays are in the dict `about["arrays"]`.

    `own_model(saved)`: makes the objective of a user's model from its plain values, because a file contains no code; it is called
    with None for another network. Raises `BadInput` if the file is missing, damaged, not a labkit model, or of another format.
    """
    with open_arrays(path, "a labkit model", ratio=1) as file:
        header: Any = file.read_json("header", {"kind": KIND, "format": int})
        check_format(shown(as_path("path", path)), header["format"], FORMAT)
        check(header, HEADER, "header")
        own = own_model(header["network"] if "model" in header["network"] else None)
        try:
            network = _rebuild(header["network"]) if own is None else own
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


def _check_params(network: Any, params: Any) -> None:
    """Raise `BadInput` if these are not parameters of this network."""
    if not isinstance(params, SparseParameters):
        check_vector("params", params, network.size, network.dtype)
    elif params.bag != getattr(network, "bag", None):
        raise BadInput(f"These are rows of another table than that of {shown(network)}.")
    else:
        check_vector("the dense part", params.dense, network.tower.size, network.dtype)


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
