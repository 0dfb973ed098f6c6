"""What the tests of the wire share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from labkit.engines.dask.frames import Codec
from labkit.engines.dask.wire import Wire
from labkit.roles.messages import Ack, Pull, Push, Weights


@pytest.fixture
def make(share: bool) -> Iterator[Callable[..., Wire]]:
    """Makes wires that are closed after the test. `share`, a fixture of the module: whether they use shared memory."""
    with contextlib.ExitStack() as stack:

        def make(name: str, incarnation: int = 0, **options: Any) -> Wire:
            wire = Wire(name, incarnation, Codec((Push, Pull, Weights, Ack)), **{"share": share} | options)
            stack.callback(wire.close)
            return wire

        yield make
