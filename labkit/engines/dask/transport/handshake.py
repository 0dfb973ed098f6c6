"""The handshake of a connection between two roles: each side proves which role instance it is.

Every role instance generates a key pair (X25519) when it starts. The private key never leaves its process; the public
key is distributed through Dask, together with the instance's address. The key of a link is derived from the private key
of one end and the public key of the other end, so only these two processes have it. No secret is shared by all
processes of a run, so no such secret can be read from the network, or be used by one role to impersonate another.

    dialer    HELLO     protocol, run, sender, incarnation, receiver, number, offer of memory, HMAC under the link's key
    acceptor  WELCOME   HMAC of the HELLO's HMAC under the same key
              or REFUSED, which contains the acceptor's protocol number; then the acceptor closes the connection

The dialer sends its frames after WELCOME. A recorded HELLO cannot be replayed, because `number` increases with every
connection between two instances, and the next incarnation has other keys. A HELLO is not accepted as a WELCOME, nor as
a HELLO in the reverse direction, because each HMAC covers its purpose and both names. Magic, protocol number and
REFUSED are the same in all versions of the protocol, so that two versions can report their numbers to each other.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from ....errors import BadInput
from ..protocol import PROTOCOL, ProtocolError, other_protocol
from .frames import READ_AHEAD
from .shared_memory import Offer

MAX_HELLO = READ_AHEAD  # bytes
MAC = 32  # bytes
_PREFIX = struct.Struct("<4sH")  # magic, protocol
_HELLO = struct.Struct("<4sHHHHHHIIIIQ")
_HELLO_MAGIC, _WELCOME, _REFUSED = b"LKHi", b"LKWe", b"LKRe"
REFUSED = _PREFIX.pack(_REFUSED, PROTOCOL)


class Refusal(ConnectionError):
    """The acceptor rejects this role instance, or does not prove its own identity. A retry would fail, too."""


class Identity:
    """The key pair of one role instance. `private`: the private key; None: a new one. `public`: the public key as text."""

    def __init__(self, private: X25519PrivateKey | None = None) -> None:
        self._private = private or X25519PrivateKey.generate()
        self.public = self._private.public_key().public_bytes_raw().hex()
        self._keys: dict[str, bytes] = {}

    def key(self, peer: str) -> bytes:
        """Return the key of the links with the instance whose public key is `peer`.

        Raises `ProtocolError` if `peer` is not a public key.
        """
        known = self._keys.get(peer)
        if known is None:
            try:
                common = self._private.exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(peer)))
            except ValueError as error:
                raise ProtocolError(f"{peer!r} is no public key") from error
            both = "".join(sorted((self.public, peer))).encode()
            known = self._keys[peer] = hashlib.sha256(b"labkit link" + common + both).digest()
        return known


class Hello(NamedTuple):
    """The first bytes on a connection: run, dialing role and incarnation, and dialled role.

    `number`: number of the connection, counted by the dialer from 1. `offer`: memory to share. `after`: the number of the last
    frame before this connection, if it continues a link that was cut.
    """

    run: str
    sender: str
    to: str
    incarnation: int
    number: int = 1
    offer: Offer | None = None
    after: int = 0

    def pack(self, key: bytes) -> bytes:
        """Return the hello as bytes. Raises `BadInput` if it has more than `MAX_HELLO` bytes."""
        offer = self.offer or Offer(0, 0, "")
        texts = [text.encode() for text in (self.run, self.sender, self.to, offer.token)]
        size = _HELLO.size + sum(map(len, texts)) + MAC
        if size > MAX_HELLO:
            raise BadInput(f"Run and names take {size} bytes together in a handshake; at most {MAX_HELLO} are allowed.")
        numbers = self.incarnation, self.number, offer.pid, offer.fd, self.after
        hello_bytes = _HELLO.pack(_HELLO_MAGIC, PROTOCOL, size, *map(len, texts), *numbers) + b"".join(texts)
        return hello_bytes + _mac(key, b"hello", hello_bytes)

    @classmethod
    def unpack(cls, data: bytes) -> tuple[Hello, bytes] | None:
        """Return (hello, its bytes), or None while the hello is incomplete. The hello is not verified yet.

        Raises `ProtocolError` if the bytes are not a hello.
        """
        if data[:4] != _HELLO_MAGIC[: len(data)]:
            raise ProtocolError(f"no hello starts with {data[:8]!r}")
        if len(data) >= _PREFIX.size and (number := _PREFIX.unpack_from(data)[1]) != PROTOCOL:
            raise ProtocolError(other_protocol(number))
        if len(data) < _HELLO.size:
            return None
        _, _, size, *lengths, incarnation, number, pid, fd, after = _HELLO.unpack_from(data)
        if size > MAX_HELLO or size != _HELLO.size + sum(lengths) + MAC:
            raise ProtocolError(f"a hello of {size} bytes")
        if len(data) < size:
            return None
        texts, at = [], _HELLO.size
        for length in lengths:
            texts.append(data[at : at + length])
            at += length
        try:
            run, sender, to, token = (text.decode() for text in texts)
        except UnicodeDecodeError as error:
            raise ProtocolError("a hello whose names are no text") from error
        offer = Offer(pid, fd, token) if token else None
        return cls(run, sender, to, incarnation, number, offer, after), data[:size]


def verify(hello_bytes: bytes, key: bytes) -> None:
    """Raise `ProtocolError` if the hello `hello_bytes` was not made with `key`."""
    if not hmac.compare_digest(hello_bytes[-MAC:], _mac(key, b"hello", hello_bytes[:-MAC])):
        raise ProtocolError("the handshake is not signed by that role")


def welcome(hello_bytes: bytes, key: bytes) -> bytes:
    """Return the acceptor's answer to the hello `hello_bytes`."""
    return _WELCOME + _mac(key, b"welcome", hello_bytes[-MAC:])


class DialerHandshake:
    """The dialer's side of a handshake, without I/O. `unsent`: bytes that are still to be sent."""

    def __init__(self, hello: Hello, key: bytes) -> None:
        self.unsent = hello.pack(key)
        self._wanted = welcome(self.unsent, key)
        self._received = b""

    def receive(self, data: bytes) -> bytes | None:
        """Process bytes from the acceptor. Returns the bytes after the welcome, or None while the welcome is incomplete.

        Raises `Refusal` for any answer that is not a welcome.
        """
        self._received += data
        received = self._received[: len(self._wanted)]
        if received[:4] == _REFUSED:
            if len(received) < _PREFIX.size:
                return None
            number = _PREFIX.unpack_from(received)[1]
            raise Refusal("it refuses this role" if number == PROTOCOL else other_protocol(number))
        if received[:4] != self._wanted[: len(received[:4])]:
            raise Refusal("it does not prove which role it is")
        if len(received) < len(self._wanted):
            return None
        if not hmac.compare_digest(received, self._wanted):
            raise Refusal("it does not prove which role it is")
        return self._received[len(self._wanted) :]


def _mac(key: bytes, purpose: bytes, hello_bytes: bytes) -> bytes:
    return hmac.digest(key, purpose + hello_bytes, "sha256")
