"""Codecs: compression of gradients.

    wanted = g + memory / rate        the vector to send: the gradient g plus the earlier errors
    sent   = encode(wanted)           a message of fewer bytes; decode(sent) is a dense vector
    memory = rate (wanted - decode(sent))                                        (error feedback)

A gradient of d values of 4 bytes has 4d bytes. The codecs send:

| codec | bytes | cost |
|---|---|---|
| `Float16` | 2d | 11 bits of precision |
| `QSGD(bits=4)` | d bits/8 + 4d/512 | unbiased noise, with a variance of up to 3.2 times the squared norm of the gradient |
| `SignSGD` | d/8 + 4 | all entries move by the same amount; memory of d values |
| `TopK(k=0.01)` | 8 k d | unsent entries stay in the memory for about 1/k steps; memory of d values |
| `PowerSGD(rank=2)` | 4 rank (n + m) for a weight matrix n x m | two products with each matrix; memory of d values |

Codecs also cost time, in the worker before a push and in the server for each push. For a 1000 x 1000 matrix in float32,
on one core, encoding with error feedback takes from 2 ms (PowerSGD) to 9 ms (TopK), and 27 ms with QSGD, whose decoding
takes 30 ms (measured with `timeit` on `Compressor.encode`). In virtual time codecs take no time.

With error feedback the encoding error is sent later, not lost. Without error feedback, steps of sign-SGD and top-k need
not converge (Karimireddy et al., "Error feedback fixes SignSGD and other gradient compression schemes", ICML 2019).
`labkit.roles.compressor` keeps the memory, because the memory depends on the learning rate.

A codec is *linear* if the sum of its messages is the message of the sum. Only then can an all-reduce add messages
without decoding them. Codecs that are not linear need a server that decodes each message (or an all-gather).
"""

from __future__ import annotations

from typing import Any

from ...errors import BadInput, shown
from ..named_objects import make_by_name
from .base import Codec
from .elementwise import QSGD, Float16, SignSGD, TopK
from .low_rank import PowerSGD

__all__ = ["QSGD", "Codec", "Float16", "PowerSGD", "SignSGD", "TopK", "as_codec", "codec_by_name", "linear_codec"]

CODECS: dict[str, type[Codec]] = {
    "top-k": TopK, "sign-sgd": SignSGD, "qsgd": QSGD, "float16": Float16, "power-sgd": PowerSGD,
}  # fmt: skip


def codec_by_name(name: str) -> Codec:
    """Make a codec from text: `"float16"`, or with its options in order, `"top-k:0.01"`.

    Raises `BadInput`, with the nearest allowed name, if the name is unknown.
    """
    made: Codec = make_by_name("codec", name, CODECS)
    return made


def as_codec(given: Any) -> Codec | None:
    """Convert a strategy's option `codec` to a codec or None. It is a codec, its name, None or "none"; else raises `BadInput`."""
    if isinstance(given, str):
        return None if given.strip().lower() in ("", "none") else codec_by_name(given)
    if given is None or isinstance(given, Codec):
        return given
    names = ", ".join(CODECS)
    if isinstance(given, type) and issubclass(given, Codec):
        raise BadInput(f"codec=lk.codecs.{given.__name__} is a class; write lk.codecs.{given.__name__}().")
    raise BadInput(
        f"codec={shown(given)} is not a codec; give one, as lk.codecs.TopK(0.01), its name ({names}), or None."
    )


def linear_codec(owner: str, given: Any) -> Codec | None:
    """Like `as_codec`, for an all-reduce named `owner`, which adds messages. Raises `BadInput` if the codec is not linear."""
    codec = as_codec(given)
    if codec is not None and not codec.linear:
        name, fit = type(codec).__name__, ", ".join(sorted(c.__name__ for c in CODECS.values() if c.linear))
        raise BadInput(
            f"{name} is not linear: sums of its messages are not messages of a sum, so {owner} cannot add them up on "
            f"their way; all-reduce takes {fit}."
        )
    return codec
