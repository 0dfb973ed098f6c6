"""Only the incarnation announced by Dask can connect as a role, and only once; a connection flood does not block it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from labkit.engines.dask.protocol import PROTOCOL, ProtocolError
from labkit.engines.dask.transport.endpoint import Endpoint
from labkit.engines.dask.transport.frames import HEADER, MAGIC
from labkit.engines.dask.transport.handshake import (
    MAX_HELLO,
    REFUSED,
    DialerHandshake,
    Hello,
    Identity,
    Refusal,
    welcome,
)
from labkit.roles.messages import Ack, Pull
from tests.engines.dask.transport.helpers import connect, contents, dial, hello, introduce, is_closed, run

KEY = X25519PrivateKey.generate()
PULL = HEADER.pack(MAGIC, 1, 0, 0, 16, 0, 1, 0, 0, 0) + bytes(16)


@pytest.fixture
def share() -> bool:
    """Whether the endpoints of `make` use shared memory: False, since this module tests the handshake before it."""
    return False


class Relay:
    """Forwards bytes between a client and `to`, and stores what each side has sent."""

    def __init__(self, to: tuple[str, int]) -> None:
        self.to, self.forth, self.back = to, bytearray(), bytearray()
        self.door = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self.door.getsockname()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                here = self.door.accept()[0]
                there = socket.create_connection(self.to)
                for source, target, record in ((here, there, self.forth), (there, here, self.back)):
                    threading.Thread(target=self._pass, args=(source, target, record), daemon=True).start()

    @staticmethod
    def _pass(source: socket.socket, target: socket.socket, record: bytearray) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                record += data
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.door.close()


@pytest.fixture
def relayed(make: Callable[..., Endpoint]) -> Iterator[tuple[Endpoint, Endpoint, Relay]]:
    """Two endpoints with each other's keys; what one sends to two passes through a relay."""
    one, two = make("one", identity=Identity(KEY)), make("two")
    introduce(one, two)
    relay = Relay(two.address)
    one.add_peer("two", *relay.address, two.identity.public, 0)
    one.send("two", Ack(1))
    run((one, two), lambda: two.inbox)
    yield one, two, relay
    relay.close()


def test_a_recorded_handshake_opens_nothing(
    relayed: tuple[Endpoint, Endpoint, Relay], make: Callable[..., Endpoint]
) -> None:
    one, two, relay = relayed
    recorded = bytes(relay.forth)
    for _ in range(2):  # while the connection is open, and after it is closed
        sock = dial(two, recorded)
        run((two,), lambda: two.refused)
        assert "one" in two.refused.pop()
        assert is_closed(sock)
        assert contents(two) == [Ack(1)]
        one.close()
        run((two,), lambda: "one" in two.lost)
    again = make("two", 1)  # the receiver's next incarnation has other keys
    again.add_peer("one", *one.contact, 0)
    sock = dial(again, recorded)
    run((again,), lambda: again.refused)
    assert "not signed" in again.refused[0]
    assert is_closed(sock)
    assert not again.inbox


def test_no_secret_is_sent_during_a_handshake(relayed: tuple[Endpoint, Endpoint, Relay]) -> None:
    one, two, relay = relayed
    seen = bytes(relay.forth + relay.back)
    for secret in (one.identity.key(two.identity.public), KEY.private_bytes_raw()):
        assert secret not in seen
        assert secret.hex().encode() not in seen


def test_handshake_requests_and_answers_cannot_be_exchanged(relayed: tuple[Endpoint, Endpoint, Relay]) -> None:
    one, _, relay = relayed
    run((one,), lambda: relay.back)
    for words in (bytes(relay.back), bytes(relay.forth)):  # to its sender, or to the receiver of the answer
        sock = dial(one, words)
        run((one,), lambda: one.refused)
        one.refused.clear()
        assert is_closed(sock)
    assert not one.inbox


def test_the_name_of_a_present_role_cannot_be_taken(make: Callable[..., Endpoint]) -> None:
    """Not even by a process that has its private key, let alone by another role of the run with its own."""
    server, worker, other = endpoints = make("server"), make("worker-0"), make("worker-1")
    introduce(*endpoints)
    connect(*endpoints)
    attempts = [
        (
            Hello("", "worker-0", "server", 0, 99).pack(worker.identity.key(server.identity.public)),
            "a second connection",
        ),
        (Hello("", "worker-0", "server", 0, 99).pack(other.identity.key(server.identity.public)), "not signed"),
        (
            Hello("", "worker-0", "server", 0, 99).pack(server.identity.key(worker.identity.public)),
            "a second connection",
        ),
    ]
    for words, why in attempts:
        sock = dial(server, words + PULL)
        run((server,), lambda: server.refused)
        assert why in server.refused.pop()
        assert is_closed(sock)
    claim = dial(server, Hello("", "worker-0", "server", 7).pack(other.identity.key(server.identity.public)) + PULL)
    run((server,), lambda: any(c.hello for c in server.unauthenticated))
    worker.send("server", Ack(3))  # the claim to be its next incarnation has not fenced it off
    run(endpoints, lambda: server.inbox)
    assert contents(server) == [Ack(3)]
    claim.close()


def test_frames_wait_for_an_acceptor_that_proves_who_it_is(make: Callable[..., Endpoint]) -> None:
    one, two = make("one"), make("two")
    introduce(one, two)
    # the port of a role that is gone, taken by another program
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one.add_peer("two", *listener.getsockname(), two.identity.public, 0)
        one.send("two", Ack(1))
        sock = listener.accept()[0]
        with sock:
            text = sock.recv(4096)
            sock.sendall(welcome(text, Identity().key(two.identity.public)))
            run((one,), lambda: "two" in one.unreachable)
            assert "prove" in one.unreachable["two"]
            assert text[:4] == b"LKHi"
            assert len(text) < MAX_HELLO
            assert is_closed(sock)  # and no bytes followed
    assert (one.sent["two"], one.undelivered["two"]) == (0, 1)


def test_a_handshake_accepts_its_answer_in_pieces_and_no_other_answer() -> None:
    one, two = Identity(), Identity()
    greeting = DialerHandshake(Hello("r", "one", "two", 0), one.key(two.public))
    answer = welcome(greeting.unsent, two.key(one.public))
    for byte in answer[:-1]:
        assert greeting.receive(bytes([byte])) is None
    assert greeting.receive(answer[-1:] + b"rest") == b"rest"
    for wrong in (REFUSED, b"HTTP/1.1", answer[:-1] + bytes([answer[-1] ^ 1])):
        with pytest.raises(Refusal):
            DialerHandshake(Hello("r", "one", "two", 0), one.key(two.public)).receive(wrong)
    for bad in ("", "00", "zz" * 32, "00" * 32):
        with pytest.raises(ProtocolError, match="no public key"):
            one.key(bad)


@pytest.mark.parametrize("share", [True, False])
def test_a_role_gets_in_through_a_flood(make: Callable[..., Endpoint], share: bool) -> None:
    """Permanently more idle connections than the limit: connecting takes as many polls as without them."""
    server, worker = make("server", share=share), make("worker", share=share)
    introduce(server, worker)
    idle = [dial(server) for _ in range(600)]
    run((server,), lambda: len(server.refused) >= 300)
    worker.send("server", Pull())
    for _ in range(40):
        idle += [dial(server) for _ in range(20)]
        server.poll(0.0)
        worker.poll(0.0)
    assert contents(server) == [Pull()]
    assert len(server.unauthenticated) <= 256
    for sock in idle:
        sock.close()


def test_connections_from_hosts_without_roles_are_closed_first(make: Callable[..., Endpoint]) -> None:
    server = make("server", host="0.0.0.0")
    introduce(server, make("worker"))

    def come(source: str, count: int) -> list[socket.socket]:
        return [
            socket.create_connection(("127.0.0.1", server.address[1]), source_address=(source, 0)) for _ in range(count)
        ]

    try:
        held = come("127.0.0.1", 100)
        run((server,), lambda: len(server.unauthenticated) == 100)
        held += come("127.0.0.2", 100) + come("127.0.0.3", 400)
        run((server,), lambda: len(server.refused) >= 300)
        left = [end.host for end in server.unauthenticated]
        assert left.count("127.0.0.1") == 100
        assert not any(refusal.startswith("127.0.0.1:") for refusal in server.refused)
        for sock in held:
            sock.close()
    except OSError as error:  # macOS has one loopback address
        pytest.skip(f"this machine has one loopback address: {error}")


def test_a_role_that_was_closed_to_make_room_dials_again(make: Callable[..., Endpoint]) -> None:
    server, worker = make("server"), make("worker")
    worker.add_peer("server", *server.contact, 0)
    worker.send("server", Ack(1))
    run((server, worker), lambda: any(c.hello for c in server.unauthenticated))  # it waits for the announcement
    crowd = [dial(server, Hello("", f"w{i}", "server", 0).pack(b"key")) for i in range(256)]  # as good, and later
    run((server,), lambda: sum("too many unauthenticated connections" in refusal for refusal in server.refused) >= 64)
    for sock in crowd:
        sock.close()
    run((server,), lambda: not server.unauthenticated)
    run((server, worker), lambda: any(c.hello for c in server.unauthenticated))
    introduce(server, worker)
    run((server, worker), lambda: server.inbox)
    assert contents(server) == [Ack(1)]


def test_bytes_before_the_handshake_are_limited(make: Callable[..., Endpoint]) -> None:
    server = make("server")
    for words in (hello(server)[:60] + bytes(5000), hello(server)[:6] + b"\xff\xff" * 2000):
        sock = dial(server, words)
        run((server,), lambda: server.refused)
        server.refused.clear()
        with contextlib.suppress(ConnectionError):
            assert is_closed(sock)
    assert not server.unauthenticated


def test_another_protocol_is_refused_by_name(make: Callable[..., Endpoint], monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides send their protocol versions: the connecting and the accepting one."""
    server, old = make("server"), make("old")
    introduce(server, old)
    monkeypatch.setattr("labkit.engines.dask.transport.handshake.PROTOCOL", PROTOCOL - 1)
    old.connect("server")  # its handshake contains it
    monkeypatch.undo()
    run((server, old), lambda: server.refused and old.unreachable)
    assert f"it uses protocol {PROTOCOL - 1}, and this process protocol {PROTOCOL}" in server.refused[0]
    assert not server.receiving
    for number, message in ((PROTOCOL, "it refuses this role"), (PROTOCOL + 1, f"it uses protocol {PROTOCOL + 1}, ")):
        handshake = DialerHandshake(Hello("", "one", "two", 0), b"key")
        answer = REFUSED[:4] + number.to_bytes(2, "little")
        assert handshake.receive(answer[:5]) is None
        with pytest.raises(Refusal, match=message):
            handshake.receive(answer[5:])
    data = Hello("run", "one", "two", 0).pack(b"key")
    for number in (0, PROTOCOL - 1, PROTOCOL + 1, 65535):
        with pytest.raises(ProtocolError, match=f"uses protocol {number}, "):
            Hello.unpack(data[:4] + number.to_bytes(2, "little") + data[6:])
