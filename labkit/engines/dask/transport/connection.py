"""One simplex connection between two roles: frames with sequence numbers, from a send side to a receive side.

A connection begins with a handshake on a TCP stream. Its frames follow on the same stream. If both roles are on one
host, the connection switches to shared memory after some frames, and TCP then carries doorbells only. A close frame
ends the connection. In the reverse direction only the answer to the handshake, `NOT_ACCEPTED` for an offer of memory,
and doorbells are sent.

No method blocks, or keeps a reference to the sender's arrays: bytes are written to the stream at once, or copied into a
queue, which is written before later bytes. Sequence numbers increase by 1. A frame with a smaller number is a
duplicate, and is discarded: it was retransmitted because its acknowledgement was lost (see `link_faults`).
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from ssl import SSLContext, SSLError
from typing import Protocol

from ....nn.buffer_pool import BufferPool
from ..protocol import ProtocolError
from .frames import HEADER, MAGIC, SUSPENDED, FrameParser, Header, Piece, Prepared, close_frame
from .handshake import MAX_HELLO, DialerHandshake, Refusal
from .poller import READ, WRITE, Poller
from .shared_memory import MemoryReader, MemoryWriter, Offer, available
from .tcp import TcpStream, dial

CONNECT_S = 15.0  # time limit for establishing a connection, seconds; the kernel retries after 1, 3 and 7 s
TRIES = 20  # limit of consecutive connections that end before the handshake is complete
BURST = 64  # limit of consecutive reads from one connection, so that other connections are served, too
DOORBELL, NOT_ACCEPTED = b"!", b"N"


class ByteWriter(Protocol):
    """The writing end of a byte stream. `max_pieces`: limit of the buffers in one `write`."""

    max_pieces: int

    def write(self, pieces: Sequence[Piece]) -> int:
        """Write as many bytes as possible without blocking. Returns their number.

        Raises `BlockingIOError` if none can be written now, `OSError` if the stream is broken.
        """


class ByteReader(Protocol):
    """The reading end of a byte stream."""

    def read_into(self, buffers: list[memoryview]) -> int:
        """Fill the buffers with the available bytes. Returns their number.

        Raises `BlockingIOError` if no byte is available now, `EOFError` or `OSError` at the end of the stream.
        """


def copied(pieces: Sequence[Piece], pool: BufferPool, start: int = 0) -> memoryview:
    """Return a copy of the bytes of the pieces, beginning at offset `start`."""
    total = sum(map(len, pieces)) - start
    rest = memoryview(pool.take(total))[:total]  # type: ignore[arg-type]
    at = 0
    for piece in pieces:
        if start < len(piece):
            end = at + len(piece) - start
            rest[at:end] = memoryview(piece)[start:]
            at = end
        start = max(0, start - len(piece))
    return rest


@dataclass
class Dialer:
    """Configuration and state shared by all send connections of one role.

    `handshake(to, offer)` begins a handshake with role `to`. `host`: host of this role; peers on the same host are offered
    shared memory of `memory_size` bytes; "" disables offers. `now`: clock, seconds. `ended(connection, reason)` is called when
    a connection has ended. `queued`: the connections with a non-empty queue. `open`: the connections that have not ended. The
    connections maintain these two attributes.
    """

    poller: Poller
    pool: BufferPool
    context: SSLContext | None
    host: str
    memory_size: int
    now: Callable[[], float]
    handshake: Callable[[str, Offer | None], DialerHandshake]
    ended: Callable[[SendConnection, str], None]
    queued: dict[SendConnection, None] = field(default_factory=dict)
    open: dict[SendConnection, None] = field(default_factory=dict)

    def memory_for(self, host: str) -> MemoryWriter | None:
        """Return memory to share with a peer at `host`, or None if that is another host or connections are encrypted."""
        if self.context is not None or host != self.host or not available():
            return None
        try:
            return MemoryWriter(self.memory_size)
        except OSError:  # no descriptor or no memory is left, so the socket carries the frames
            return None


class SendConnection:
    """The send side of a connection to role `name`.

    Failures raise no exception: the connection ends, and `Dialer.ended` is called. The queue holds frames that the stream has
    not accepted yet. A connection that ends before its handshake is complete is dialled again, because a listener closes
    unauthenticated connections when there are too many. At that time no frame has been sent.

    Attributes to read: `sequence`, the number of the last frame, which the caller increments before `send`; `in_memory`, whether
    frames use shared memory; `opening`, whether the handshake is incomplete; `unsent`, after the end: number of messages left in
    the queue; `complete`, after the end: whether the queue was empty.
    """

    __slots__ = (
        "_connected", "_deadline", "_dialer", "_ending", "_handshake", "_host", "_memory", "_out", "_port", "_queue", "_tcp",
        "_tries", "_watched", "complete", "in_memory", "name", "opening", "sequence", "unsent",
    )  # fmt: skip

    def __init__(self, name: str, host: str, port: int, sequence: int, dialer: Dialer) -> None:
        """Dial the peer. Raises `OSError` if that fails at once."""
        self.name, self.sequence = name, sequence
        self.unsent, self.complete = 0, False
        self._dialer, self._host, self._port = dialer, host, port
        self._queue: deque[tuple[memoryview, int]] = deque()  # (bytes, number of messages that end with them)
        self._ending = False  # the close frame has been sent, or is in the queue
        self._tries = 0
        self._dial()
        dialer.open[self] = None

    def _dial(self) -> None:
        dialer = self._dialer
        self._tcp = dial(self._host, self._port, dialer.context)
        self._memory = dialer.memory_for(self._host)
        self._handshake = dialer.handshake(self.name, self._memory.offer if self._memory else None)
        self._out: ByteWriter = self._tcp
        self._tries += 1
        self._deadline = dialer.now() + CONNECT_S
        self._connected, self.opening, self.in_memory = False, True, False
        self._watched = READ | WRITE
        dialer.poller.register(self._tcp.fileno(), self._watched, self)

    @property
    def queued(self) -> bool:
        return bool(self._queue)

    @property
    def answered(self) -> bool:
        """Whether the connection is established, and the peer's host acknowledges what is sent."""
        return self._connected and not self._tcp.retransmits

    @property
    def sharing(self) -> bool:
        """Whether shared memory is offered or in use."""
        return self._memory is not None

    @property
    def offer(self) -> Offer | None:
        return None if self._memory is None else self._memory.offer

    @property
    def ready(self) -> bool:
        """Whether the handshake is complete, and an offer of memory, if any, was accepted."""
        return not self.opening and (self._memory is None or self._memory.accepted())

    def fileno(self) -> int:
        """Return the descriptor of the TCP stream, or -1 when the connection has ended."""
        return self._tcp.fileno()

    # sending ------------------------------------------------------------------------------------------------------------

    def send(self, pieces: Sequence[Piece], messages: int = 1) -> None:
        """Write the pieces, and queue a copy of the bytes that the stream does not accept.

        `messages`: 1 for a message, 0 for a close frame.
        """
        try:
            self._send(pieces, messages)
        except OSError as error:
            self._failed(error)

    def _send(self, pieces: Sequence[Piece], messages: int) -> None:
        if not self.in_memory and self._memory is not None and messages and not self._queue:
            self._switch_to_memory(self._memory)
        taken, total = 0, sum(map(len, pieces))
        if not (self.opening or self._queue) and len(pieces) <= self._out.max_pieces:
            try:
                taken = self._out.write(pieces)
                if taken == total:
                    if self.in_memory and self._memory is not None and self._memory.reader_sleeps():
                        self._ring()
                    return
            except BlockingIOError:
                pass
            except OSError:
                self._queue.append((memoryview(b""), messages))
                raise
        self._queue.append((copied(pieces, self._dialer.pool, taken), messages))
        self._dialer.queued[self] = None
        self._push()

    def send_prepared(
        self, frame: Prepared, numbers: tuple[float, ...], payload: Piece, category: int, now: int, computed: int
    ) -> bool:
        """Write a frame into the shared memory in one call. Must be called only while `in_memory`.

        Returns False, without writing anything, if the frame does not fit or other frames are queued.
        """
        memory = self._memory
        if self._queue or memory is None:
            return False
        values = (
            MAGIC, frame.index, category, 0, frame.meta, 0, self.sequence + 1, now, computed, frame.payload,
            0, *numbers, frame.described,
        )  # fmt: skip
        if not memory.write_packed(frame.struct, values, payload, frame.payload):
            return False
        self.sequence += 1
        if memory.reader_sleeps():
            self._ring()
        return True

    def finish(self, flag: int) -> None:
        """Send a close frame with this flag, then close the writing direction of the stream."""
        self._ending = True
        empty = not self._queue
        self.send([close_frame(flag, self.sequence + 1)], 0)
        if empty and not self._queue and self._tcp.fileno() >= 0:
            with contextlib.suppress(OSError):  # the peer has closed already
                self._tcp.end_writing()

    def push(self) -> None:
        """Write as much of the queue as the stream accepts."""
        self._advance(self.opening)

    def on_ready(self) -> None:
        """Handle a socket event: an answer, a doorbell, a close by the peer, or room to write."""
        if self._tcp.fileno() >= 0:
            self._advance(True)

    def take_back(self) -> list[memoryview]:
        """Remove and return the queued messages, except the first: a part of it may be sent already, or be in a TLS record."""
        if not self._queue:
            return []
        first, *others = self._queue
        self._queue = deque([first])
        back = [data for data, messages in others if messages]
        self.sequence -= len(back)
        return back

    def messages(self) -> Iterator[memoryview]:
        """Yield the queued frames that are messages and of which no byte has been sent."""
        for data, messages in self._queue:
            if messages and data[:4] == MAGIC and len(data) >= HEADER.size:
                header = HEADER.unpack_from(data)
                if len(data) == HEADER.size + header[4] + header[9]:
                    yield data

    # the stream ---------------------------------------------------------------------------------------------------------

    def _advance(self, watch_control: bool) -> None:
        try:
            if watch_control:
                self._read_control()
            if self._queue or self.opening:
                self._push()
        except OSError as error:
            self._failed(error)

    def _push(self) -> None:
        try:
            if self.opening:
                self._send_hello()
                self._watch(READ if self._connected and not self._handshake.unsent else READ | WRITE)
                return
            while self._queue:
                if self.in_memory:
                    self._fill_memory()
                else:
                    self._written(self._out.write([data for data, _ in islice(self._queue, self._out.max_pieces or 1)]))
        except BlockingIOError:
            if not self.in_memory:
                self._watch(self._tcp.interest)
            return
        self._dialer.queued.pop(self, None)
        self._watch(READ)
        if self._ending:
            self._tcp.end_writing()

    def _read_control(self) -> None:
        """Read control bytes of the peer: its part of the handshake, `NOT_ACCEPTED`, and doorbells."""
        if not self._connected:
            self._connected = self._tcp.established()
            if not self._connected:
                return
        try:
            received = self._tcp.receive_control(MAX_HELLO)
        except EOFError:
            raise ConnectionError("closed by the peer") from None
        if self.opening and received:
            rest = self._handshake.receive(received)
            if rest is None:
                return
            received, self.opening = rest, False
        if NOT_ACCEPTED in received and not self.in_memory:
            self._close_memory()

    def _send_hello(self) -> None:
        if not self._connected:
            self._connected = self._tcp.established()
        handshake = self._handshake
        while self._connected and handshake.unsent:
            handshake.unsent = handshake.unsent[self._tcp.send_control(handshake.unsent) :]

    def _switch_to_memory(self, memory: MemoryWriter) -> None:
        """Use shared memory from the next frame on, if the peer has accepted the offer. Earlier frames are in the kernel.

        The peer switches when it receives a doorbell, so the switch is undone if the doorbell cannot be sent.
        """
        if not memory.accepted():
            return
        memory.switch_at(self.sequence)
        try:
            self._tcp.send_control(DOORBELL)
        except OSError:  # the socket is full or broken, which its next use shows
            memory.switch_at(0)
        else:
            memory.end_offer()
            self._out, self.in_memory = memory, True

    def _fill_memory(self) -> None:
        """Write as much of the queue into the shared memory as fits. Raises `BlockingIOError` if a part is left."""
        memory = self._memory
        assert memory is not None
        with contextlib.suppress(BlockingIOError):
            self._written(memory.write([data for data, _ in islice(self._queue, 256)]))
        if memory.reader_sleeps():
            self._ring()
        if self._queue and memory.wait_for_room():
            raise BlockingIOError  # the peer rings when it has read

    def _ring(self) -> None:
        with contextlib.suppress(
            OSError
        ):  # a full socket wakes the peer, too; a closed socket is detected in `_read_control`
            self._tcp.send_control(DOORBELL)

    def _written(self, count: int) -> None:
        queue = self._queue
        while queue and count >= len(queue[0][0]):
            count -= len(queue.popleft()[0])
        if count:
            data, messages = queue[0]
            queue[0] = (data[count:], messages)

    def _watch(self, interest: int) -> None:
        if interest != self._watched:
            self._watched = interest
            self._dialer.poller.modify(self._tcp.fileno(), interest)

    # the end ------------------------------------------------------------------------------------------------------------

    def expire(self, now: float) -> float:
        """End the connection if it is not established in time. Returns its deadline (seconds), or infinity if it has none."""
        if self._connected:
            return float("inf")
        if now >= self._deadline:
            self.end(f"no answer within {CONNECT_S:g} s")
            return float("inf")
        return self._deadline

    def _failed(self, error: OSError) -> None:
        final = isinstance(error, Refusal | SSLError) or not self._connected
        if final or not self.opening or self._tries >= TRIES:
            self.end(str(error))
            return
        self._close()
        try:
            self._dial()
        except OSError:
            self.end(str(error))

    def end(self, reason: str) -> None:
        """Close the connection, unless it has ended. `reason`: text for `Dialer.ended`."""
        if self not in self._dialer.open:
            return
        self.complete = not self._queue
        self.unsent = sum(messages for _, messages in self._queue)
        self._queue.clear()
        del self._dialer.open[self]
        self._dialer.queued.pop(self, None)
        self._close()
        self._dialer.ended(self, reason)

    def _close(self) -> None:
        """Close the stream; the peer can still read the data in the shared memory."""
        if self._tcp.fileno() >= 0:
            self._dialer.poller.unregister(self._tcp.fileno())
            self._tcp.close()
        self._close_memory()

    def _close_memory(self) -> None:
        if self._memory is not None:
            self._memory.close()
            self._memory = None


def _nothing() -> bool:
    return False


@dataclass
class Receiver:
    """Configuration and state shared by all receive connections of one role.

    `deliver(connection, header, body)` is called for each message, and `repeated(connection)` for each duplicate.
    `ended(connection, reason)` is called when a connection has ended; `reason` is "" unless it was closed because of an error.
    `unread`: connections that must be read again without an event of the poller, because they had more data than one turn
    reads, or reading was suspended. `in_memory`: connections that use shared memory, of `memory_size` bytes. `open`:
    connections that have not ended. The connections maintain these three attributes.
    """

    poller: Poller
    pool: BufferPool
    max_frame: int
    memory_size: int
    deliver: Callable[[ReceiveConnection, Header, memoryview], None]
    repeated: Callable[[ReceiveConnection], None]
    ended: Callable[[ReceiveConnection, str], None]
    unread: list[ReceiveConnection] = field(default_factory=list)
    in_memory: tuple[ReceiveConnection, ...] = ()
    open: dict[ReceiveConnection, None] = field(default_factory=dict)


class ReceiveConnection:
    """The receive side of a connection from an instance of role `name`, whose handshake is complete.

    Failures raise no exception: the connection ends, and `Receiver.ended` is called. `sequence`: number of the last frame.
    `first`: bytes after the handshake that have been read already.

    Attributes to read: `closed_with`, the flag of the close frame, or 0 before it has arrived; `in_memory`, whether frames use
    shared memory; `suspended`, whether reading is suspended; `open`, whether the connection has not ended. `has_data()` returns
    whether the shared memory has data to read.
    """

    __slots__ = (
        "_deliver", "_fresh", "_in", "_memory", "_parser", "_receiver", "_tcp", "_unparsed", "closed_with", "has_data",
        "in_memory", "incarnation", "name", "open", "sequence", "suspended",
    )  # fmt: skip

    def __init__(self, name: str, incarnation: int, sequence: int, tcp: TcpStream, first: bytes, receiver: Receiver):
        self.name, self.incarnation, self.sequence = name, incarnation, sequence
        self._tcp, self._receiver, self._deliver = tcp, receiver, receiver.deliver
        self._parser = FrameParser(receiver.pool, receiver.max_frame, self._check, first)
        self._unparsed = bool(first)
        self._in: ByteReader = tcp
        self._memory: MemoryReader | None = None
        self._fresh = True  # the current frame is a message and not a duplicate
        self.closed_with = 0
        self.in_memory = self.suspended = False
        self.has_data: Callable[[], bool] = _nothing
        self.open = True
        receiver.open[self] = None
        receiver.poller.register(tcp.fileno(), READ, self)

    def accept(self, offer: Offer | None) -> None:
        """Accept the offer of memory, if there is one. If the memory cannot be opened, `NOT_ACCEPTED` is sent."""
        if offer is None or self._tcp.encrypted:  # encrypted connections use the socket only
            return
        try:
            self._memory = MemoryReader(offer, self._receiver.memory_size)
        except OSError:  # the peer is on another host or in another container, so the socket carries the frames
            self._send_control(NOT_ACCEPTED)

    @property
    def sharing(self) -> bool:
        """Whether an offer of memory was accepted."""
        return self._memory is not None

    @property
    def encrypted(self) -> bool:
        return self._tcp.encrypted

    def fileno(self) -> int:
        """Return the descriptor of the TCP stream, or -1 when closed."""
        return self._tcp.fileno()

    # reading ------------------------------------------------------------------------------------------------------------

    def read(self) -> None:
        """Read the available bytes, in at most `BURST` reads, and deliver complete frames."""
        try:
            if self._unparsed:
                self._unparsed = False
                self._parse()
            for _ in range(BURST):
                if self.in_memory and self._read_whole():
                    if self._memory is None or not self._memory.ready():
                        break
                    continue
                parser = self._parser
                more = parser.received(self._in.read_into(parser.buffers()))
                self._parse()
                if not more:
                    break
            else:
                self._receiver.unread.append(self)
        except BlockingIOError:
            pass
        except ProtocolError as error:
            self.end(str(error))
        except (EOFError, OSError) as error:
            self.end(str(error) if self.in_memory else "")  # an error of the memory is an error of the peer
        if self._memory is not None and self.in_memory and self._memory.writer_waits():
            self._send_control(DOORBELL)

    def on_ready(self) -> None:
        """Handle a socket event. While frames use shared memory, the event is a doorbell or the end of the stream."""
        if not self.open:
            return
        if not self.in_memory:
            self.read()
            return
        try:
            self._tcp.receive_control(MAX_HELLO)
        except (EOFError, OSError):
            self._read_rest()

    def _read_rest(self) -> None:
        """Read the data left in the shared memory after the end of the socket."""
        assert self._memory is not None
        until = self._memory.count + self._receiver.memory_size  # at most one full buffer; later data is not read
        while self._memory is not None and self._memory.ready() and self._memory.count < until:
            self.read()
        self.end("")

    def _read_whole(self) -> bool:
        """Deliver a frame that is complete in the shared memory. Returns False if the frame must be read in parts."""
        if not self._parser.empty:
            return False
        memory = self._memory
        assert memory is not None
        there = memory.peek()
        try:
            found = self._parser.whole(there)
        except ProtocolError:
            there.release()  # the error's traceback refers to it, and memory with references cannot be unmapped
            raise
        if found is None:
            return False
        del there
        used, header, body = found
        memory.advance(used)
        self._take(header, body)
        return True

    def _parse(self) -> None:
        parser = self._parser
        while True:
            if (
                self._memory is not None and not self.in_memory and parser.between
                and self._memory.starts_at(self.sequence + 1)
            ):  # fmt: skip
                parser.discard()  # the unparsed byte is a doorbell: the last frame on the socket has arrived
                self._in, self.in_memory, self.has_data = self._memory, True, self._memory.ready
                self._receiver.in_memory += (self,)
                self._receiver.poller.add_memory(self._memory)
                return
            frame = parser.next()
            if frame is None:
                return
            self._take(*frame)

    def _check(self, header: Header) -> None:
        """Check the header of a new frame.

        Raises `ProtocolError` if its sequence number is neither the next one nor that of a duplicate.
        """
        flags, sequence, due = header[3], header[6], self.sequence + 1
        repeated = 0 < sequence < due and not flags
        if self.closed_with or not (repeated or sequence == due):
            what = f"frame {sequence} where {due} is due"
            raise ProtocolError(f"{what} after the close frame" if self.closed_with else what)
        self.closed_with, self._fresh = flags, not (repeated or flags)
        if not repeated and flags != SUSPENDED:
            self.sequence = sequence

    def _take(self, header: Header, body: memoryview) -> None:
        if self._fresh:
            self._deliver(self, header, body)
        elif not self.closed_with:
            self._receiver.repeated(self)

    def _send_control(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # a closed peer is detected by reading; a full socket wakes it anyway
            self._tcp.send_control(data)

    # suspending, closing ------------------------------------------------------------------------------------------------

    def suspend(self) -> None:
        """Suspend reading: incoming bytes stay in the kernel and in the shared memory."""
        self.suspended = True
        self._receiver.poller.unregister(self._tcp.fileno())

    def resume(self) -> None:
        self.suspended = False
        self._receiver.poller.register(self._tcp.fileno(), READ, self)
        self._receiver.unread.append(self)

    def end(self, reason: str) -> None:
        """Close the connection, unless it has ended. `reason`: the error, or "" if there was none."""
        if not self.open:
            return
        self.open, self.has_data = False, _nothing
        receiver = self._receiver
        del receiver.open[self]
        if not self.suspended:
            receiver.poller.unregister(self._tcp.fileno())
        self._tcp.close()
        if self._memory is not None:
            if self.in_memory:
                receiver.in_memory = tuple(other for other in receiver.in_memory if other is not self)
                receiver.poller.remove_memory(self._memory)
            self._memory.close()
            self._memory = None
        receiver.ended(self, reason)
