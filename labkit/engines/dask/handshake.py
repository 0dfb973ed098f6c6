"""The handshake of a connection between two roles: each side proves which role instance it is.

Every role instance makes a key pair (X25519) when it starts. The private key never leaves its process; the public key is
handed out through Dask, together with the instance's address. The key of a link follows from the private key of one end and the
public key of the other, so only these two processes have it. There is no secret of the run that could be seen on the
network, or be misused by one role against another.

    dialer    HELLO     run, sender, incarnation, receiver, number, offer of memory, HMAC under the link's key
    acceptor  WELCOME   HMAC of the HELLO's HMAC under the same key; or REFUSED, and the end

The dialer sends its frames after WELCOME. A recorded HELLO cannot be used again: `number` increases with every connection
between two instances, and the keys of the next incarnation are others. A HELLO does not pass for a WELCOME, nor for a
HELLO in the other direction: each HMAC begins with what it is for, and both names are in it.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from ...errors import BadInput
from .frames import FrameError
from .shared import Offer

__all__ = ["MAX_HELLO", "REFUSED", "Greeting", "Hello", "Identity", "Refusal", "welcome"]

MAX_HELLO = 512  # bytes, and the read-ahead
MAC = 32  # bytes
REFUSED = b"LKR4"
_WELCOME = b"LKW4"
_HELLO_MAGIC = b"LKH4"
_HELLO = struct.Struct("<4sHHHHHIIIIQ")


class Refusal(ConnectionError):
    """The acceptor does not let this role instance in, or did not prove who it is. Another attempt would end the same."""


class Identity:
    """The key pair of one role instance. `public`: its public key as text, for everyone."""

    def __init__(self) -> None:
        self._private = X25519PrivateKey.generate()
        self.public = self._private.public_key().public_bytes_raw().hex()
        self._keys: dict[str, bytes] = {}

    def key(self, peer: str) -> bytes:
        """The key of the links with the instance whose public key is `peer`; `FrameError` if that is no key."""
        known = self._keys.get(peer)
        if known is None:
            try:
                common = self._private.exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(peer)))
            except ValueError as error:
                raise FrameError(f"{peer!r} is no public key") from error
            both = "".join(sorted((self.public, peer))).encode()
            known = self._keys[peer] = hashlib.sha256(b"labkit link" + common + both).digest()
        return known


class Hello(NamedTuple):
    """The first words on a connection: which instance of which role dials, for which run, and whom.

    `number`: of the connection, counted by the dialer from 1. `offer`: memory to share. `after`: the number of the last
    frame before this connection, of one that goes on where another was cut.
    """

    run: str
    sender: str
    to: str
    incarnation: int
    number: int = 1
    offer: Offer | None = None
    after: int = 0

    def pack(self, key: bytes) -> bytes:
        """The hello as bytes; `BadInput` if it has more than `MAX_HELLO`."""
        offer = self.offer or Offer(0, 0, "")
        texts = [text.encode() for text in (self.run, self.sender, self.to, offer.token)]
        size = _HELLO.size + sum(map(len, texts)) + MAC
        if size > MAX_HELLO:
            raise BadInput(f"Run and names take {size} bytes together in a handshake; at most {MAX_HELLO} are allowed.")
        numbers = self.incarnation, self.number, offer.pid, offer.fd, self.after
        said = _HELLO.pack(_HELLO_MAGIC, size, *map(len, texts), *numbers) + b"".join(texts)
        return said + _mac(key, b"hello", said)

    @classmethod
    def unpack(cls, data: bytes) -> tuple[Hello, bytes] | None:
        """(hello, its bytes), or None while it is incomplete; `FrameError` if it is none. It is not verified yet."""
        if data[:4] != _HELLO_MAGIC[: len(data)]:
            raise FrameError(f"no hello starts with {data[:8]!r}")
        if len(data) < _HELLO.size:
            return None
        _, size, *lengths, incarnation, number, pid, fd, after = _HELLO.unpack_from(data)
        if size > MAX_HELLO or size != _HELLO.size + sum(lengths) + MAC:
            raise FrameError(f"a hello of {size} bytes")
        if len(data) < size:
            return None
        texts, at = [], _HELLO.size
        for length in lengths:
            texts.append(data[at : at + length])
            at += length
        try:
            run, sender, to, token = (text.decode() for text in texts)
        except UnicodeDecodeError as error:
            raise FrameError("a hello whose names are no text") from error
        offer = Offer(pid, fd, token) if token else None
        return cls(run, sender, to, incarnation, number, offer, after), data[:size]


def verify(said: bytes, key: bytes) -> None:
    """`FrameError` if the hello `said` was not made with `key`."""
    if not hmac.compare_digest(said[-MAC:], _mac(key, b"hello", said[:-MAC])):
        raise FrameError("the handshake is not signed by that role")


def welcome(said: bytes, key: bytes) -> bytes:
    """The acceptor's answer to the hello `said`."""
    return _WELCOME + _mac(key, b"welcome", said[-MAC:])


class Greeting:
    """The dialer's side of a handshake. `unsent`: bytes that are still to be sent."""

    def __init__(self, hello: Hello, key: bytes) -> None:
        self.unsent = hello.pack(key)
        self._wanted = welcome(self.unsent, key)
        self._heard = b""

    def hear(self, data: bytes) -> bytes | None:
        """The acceptor has sent `data`: what follows the welcome; None while that is incomplete.

        `Refusal` if it is anything else.
        """
        self._heard += data
        heard = self._heard[: len(self._wanted)]
        if heard[:4] != self._wanted[: len(heard[:4])]:
            raise Refusal("it refuses this role" if heard[:4] == REFUSED else "it does not prove which role it is")
        if len(heard) < len(self._wanted):
            return None
        if not hmac.compare_digest(heard, self._wanted):
            raise Refusal("it does not prove which role it is")
        return self._heard[len(self._wanted) :]


def _mac(key: bytes, purpose: bytes, said: bytes) -> bytes:
    return hmac.digest(key, purpose + said, "sha256")
