"""The protocol that the processes of a run use with each other: its number, and the error for bytes that do not follow it.

The number changes with the format of a handshake, of a frame, or of a role assignment. It is checked where two processes
meet: in the handshake of a connection, and when a Dask worker is given a role. `ProtocolError` stands here and not in
`labkit.errors`, because no user meets it: it ends a connection, and its text goes into the record of refused connections.
"""

from __future__ import annotations

from ...errors import LabkitError

__all__ = ["PROTOCOL", "ProtocolError", "other_protocol"]

PROTOCOL = 5  # 16 bits


class ProtocolError(LabkitError, ValueError):
    """Bytes that do not follow the protocol: the sender is not a labkit process of this version, or the connection is broken."""


def other_protocol(number: int) -> str:
    """What is wrong with a peer whose protocol has this number."""
    return f"it speaks protocol {number}, and this process protocol {PROTOCOL}: their versions of labkit differ"
