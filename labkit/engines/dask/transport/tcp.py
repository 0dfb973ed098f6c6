"""Byte streams over TCP, plain and encrypted, on non-blocking sockets.

A stream has the methods `write` and `read_into`, like the stream in shared memory (see `connection.ByteWriter` and
`ByteReader`). Both methods transfer as many bytes as possible, and raise `BlockingIOError` if they can transfer none.
Frames are sent in one direction only; in addition, both sides can send a few control bytes (`send_control`,
`receive_control`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import ssl
import sys
from collections.abc import Sequence

from .frames import Piece
from .poller import READ, WRITE

BUFFER = 4 << 20  # bytes, in each direction; messages of 1 and 10 MB take 25% less time than with the kernel's default
RETRANSMITS = 2  # offset of `tcpi_retransmits` in `struct tcp_info`: retransmissions since the last acknowledgement
_AGAIN = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


def listen(host: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, 0), family=family, backlog=4096)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)  # accepted sockets inherit it
    listener.setblocking(False)
    return listener


def accept(sock: socket.socket, context: ssl.SSLContext | None) -> TcpStream:
    """Return the stream over a socket that was accepted. Raises `OSError` if the peer has disconnected."""
    sock.setblocking(False)
    # doorbells are sent without waiting for acknowledgements
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if context is None:
        return TcpStream(sock)
    return TlsStream(sock, context, accepted=True)


def dial(host: str, port: int, context: ssl.SSLContext | None) -> TcpStream:
    """Return a stream whose connection is being established: see `TcpStream.established`.

    Raises `OSError` if that fails at once.
    """
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
    error = sock.connect_ex((host, port))
    if error not in (0, errno.EINPROGRESS, errno.EWOULDBLOCK):
        sock.close()
        raise OSError(error, os.strerror(error))
    return TcpStream(sock) if context is None else TlsStream(sock, context)


class TcpStream:
    """A TCP connection. `interest`: the events to wait for after `BlockingIOError`: `poller.READ`, `poller.WRITE` or both."""

    encrypted = False
    max_pieces = 256  # limit of the buffers in one `write`; the kernel's limit is 1024
    interest = READ | WRITE

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def fileno(self) -> int:
        """Return the descriptor, or -1 if the connection is closed."""
        return self._sock.fileno()

    def established(self) -> bool:
        """Return whether the dialled connection is established. Raises `OSError` if dialling has failed."""
        try:
            self._sock.getpeername()
        except OSError:  # the connection is not established yet, or has failed
            error = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                raise OSError(error, os.strerror(error)) from None
            return False
        return True

    @property
    def retransmits(self) -> bool:
        """Whether the kernel sends bytes again because the peer's has not acknowledged them. Known on Linux only.

        The kernel of a frozen or suspended peer acknowledges bytes until its buffer is full, and then each probe for room.
        """
        if not sys.platform.startswith("linux") or self._sock.fileno() < 0:
            return False
        return self._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, RETRANSMITS + 1)[RETRANSMITS] > 0

    def write(self, pieces: Sequence[Piece]) -> int:
        """Send as many bytes of the pieces as the kernel accepts. Returns their number."""
        return self._sock.sendmsg(pieces)

    def read_into(self, buffers: list[memoryview]) -> int:
        """Fill the buffers in order with the available bytes. Returns the number of bytes.

        Raises `EOFError` at the end of the stream.
        """
        count = self._sock.recvmsg_into(buffers)[0]
        if not count:
            raise EOFError
        return count

    def send_control(self, data: Piece) -> int:
        """Send a few bytes. Returns the number accepted. Raises `OSError` if none can be sent now, or the peer is gone."""
        return self._sock.send(data)

    def receive_control(self, size: int) -> bytes:
        """Receive at most `size` bytes, or none if none are available. Raises `EOFError` at the end of the stream."""
        with contextlib.suppress(BlockingIOError, *_AGAIN):
            data = self._sock.recv(size)
            if not data:
                raise EOFError
            return data
        return b""

    def end_writing(self) -> None:
        """Close the writing direction. Raises `OSError` if the peer is gone."""
        self._sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._sock.close()


class TlsStream(TcpStream):
    """An encrypted TCP connection. The TLS handshake takes place in the first reads and writes."""

    encrypted = True
    max_pieces = (
        # one buffer at a time; after `BlockingIOError` the same bytes must be passed again, as they are in a TLS record
        0
    )

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, accepted: bool = False) -> None:
        super().__init__(sock)
        self._context = context
        if accepted:
            self._sock = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)

    def established(self) -> bool:
        """Return whether the TCP connection is established. The TLS handshake follows."""
        if not super().established():
            return False
        if not isinstance(self._sock, ssl.SSLSocket):
            host = self._sock.getpeername()[0]
            self._sock = self._context.wrap_socket(self._sock, server_hostname=host, do_handshake_on_connect=False)
        return True

    def write(self, pieces: Sequence[Piece]) -> int:
        """Send the first piece, or a part of it. Returns the number of bytes accepted."""
        return self.send_control(pieces[0])

    def read_into(self, buffers: list[memoryview]) -> int:
        """Fill the buffers in order with the available bytes. Returns the number of bytes.

        Raises `EOFError` at the end of the stream.
        """
        total = 0
        for buffer in buffers:
            try:
                count = self._sock.recv_into(buffer)
            except _AGAIN:
                if total:
                    break
                raise BlockingIOError from None
            if not (count or total):
                raise EOFError
            total += count
            if count < len(buffer):  # no decrypted bytes are left
                break
        return total

    def send_control(self, data: Piece) -> int:
        """Send a few bytes. Returns the number accepted. Raises `BlockingIOError` if none can be sent now."""
        try:
            return self._sock.send(data)
        except _AGAIN as error:
            self.interest = READ if isinstance(error, ssl.SSLWantReadError) else READ | WRITE
            raise BlockingIOError from None
