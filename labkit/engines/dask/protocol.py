"""The protocol between the processes of a run: its number, and the error for bytes that do not follow it.

The number changes when the format of a handshake, a frame, a role assignment, an order of the client, or a report of a
role changes. The number is checked in the handshake of a connection, and when a Dask worker receives a role assignment.

`ProtocolError` is defined here and not in `labkit.errors`, because it is internal. It ends a connection, and its text
is recorded with the rejected connections.
"""

from __future__ import annotations

from ...errors import LabkitError

PROTOCOL = 8  # 16 bits


class ProtocolError(LabkitError, ValueError):
    """Bytes do not follow the protocol: the sender is not a labkit process of this version, or the connection is broken."""


def other_protocol(number: int) -> str:
    """Return the error text for a peer with another protocol number."""
    return f"it uses protocol {number}, and this process protocol {PROTOCOL}: their versions of labkit differ"
