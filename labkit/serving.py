"""Predictions over HTTP while a run trains, in the REST form of TensorFlow Serving.

The server is that of the standard library, one thread per request: predictions are short, and the only event loop that labkit has
carries the heartbeats of Dask. Each connection has one request and a deadline, which the serving thread enforces by closing the
socket, so a client that sends slowly or not at all holds a thread for `DEADLINE_S` at most. The number of threads is limited:
further connections wait in the queue of the socket.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import re
import secrets
import socket
import threading
from collections.abc import Callable, Iterable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from time import monotonic
from types import TracebackType
from typing import Any, ClassVar, Self
from urllib.parse import quote, unquote

from .description import Description, HasDescription
from .errors import BadInput, LabkitError, shown
from .paths import reason
from .predictor import LivePredictor, Predictor, outputs_of

DEADLINE_S = 20.0  # of a connection, from its acceptance to the last byte of the answer
POLL_S = 0.1  # how often deadlines and the end of the run are looked at
MOST_CONNECTIONS = 32  # threads at a time
CLOSE_S = 5.0  # limit for threads to end when their connections are closed
NAME = re.compile(r"[\w.-]+")


class ModelServer(HasDescription):
    """Answers predictions over HTTP while a run trains; `Run.serve` starts it.

    It ends with its run, with `close`, and at the end of a ``with`` block.

    Parameters
    ----------
    model : LivePredictor
        The model.
    over : callable
        Returns whether the run is over.
    host, port : str and int
        The address to listen on.
    name : str
        The name of the model in the address.
    token : str or None
        The token that requests must have; None: a random one.
    max_bytes, max_rows : int
        The largest body, and the largest number of samples, of a request.

    Attributes
    ----------
    url : str
        The address of the model, as 'http://127.0.0.1:8501/v1/models/digits'.
    token : str
        The token.
    port : int
        The port.
    """

    def __init__(
        self, model: LivePredictor, over: Callable[[], bool], host: str, port: int, *, name: str, token: str | None,
        max_bytes: int, max_rows: int,
    ):  # fmt: skip
        limits = {"port": (port, 0, 65535), "max_bytes": (max_bytes, 1, 10**10), "max_rows": (max_rows, 1, 10**9)}
        for option, (value, low, high) in limits.items():
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
                raise BadInput(
                    f"serve: {option}={shown(value)} is not allowed; give a whole number from {low} to {high}."
                )
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise BadInput(f"serve: name={shown(name)} is not allowed; give letters, digits, '.', '_' and '-'.")
        if token is not None and not (isinstance(token, str) and token and token.isascii() and token.isprintable()):
            raise BadInput(
                "serve: token is not allowed; give a text of printable ASCII characters, or None for a random one."
            )
        if not isinstance(host, str) or not host:
            raise BadInput(
                f"serve: host={shown(host)} is not allowed; give a name or address of this machine, as '127.0.0.1'."
            )
        self.token = secrets.token_urlsafe(24) if token is None else token
        self.name, self.max_bytes, self.max_rows = name, max_bytes, max_rows
        try:
            self._server = _Server((host, port), self, model, over)
        except (OSError, UnicodeError, OverflowError) as error:
            why = reason(error) if isinstance(error, OSError) else str(error)
            raise BadInput(f"serve: nothing can listen on {host}:{port} ({why}); give another port, or 0.") from None
        self.port: int = self._server.server_address[1]
        shown_host = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown_host}:{self.port}/v1/models/{quote(name)}"
        self._closing = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name="labkit-serve", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        try:
            self._server.serve_forever(POLL_S)
        finally:
            self._server.server_close()

    @property
    def closed(self) -> bool:
        """Whether the server has ended."""
        return not self._thread.is_alive()

    def close(self) -> None:
        """End the server: close its socket and all connections. Idempotent."""
        self._server.stop()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        self.close()

    def __repr__(self) -> str:
        return f"<ModelServer {self.url}{', closed' if self.closed else ''}>"

    def _described(self) -> Description:
        rows = [
            ("address", f"{self.url}:predict"),
            ("state", "closed" if self.closed else "open, until the run is over"),
            ("limits", f"{self.max_bytes:,} bytes and {self.max_rows:,} samples of a request"),
        ]
        return Description(f"ModelServer of {self.name}", tuple(rows))


class _Server(HTTPServer):
    """Accepts connections in the serving thread, and answers each in a thread of its own."""

    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], settings: ModelServer, model: LivePredictor, over: Callable[[], bool]):
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.settings, self.model, self.over = settings, model, over
        self.computing = threading.Lock()
        self._connections: dict[threading.Thread, tuple[socket.socket, float]] = {}
        self._changing = threading.Lock()
        self._slots = threading.Semaphore(MOST_CONNECTIONS)
        self._stopped = False
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind the socket, without the look-up of the machine's name that `HTTPServer` makes."""
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def stop(self) -> None:
        """End the serving thread soon."""
        self._stopped = True
        threading.Thread(target=self.shutdown, name="labkit-serve-stop", daemon=True).start()

    def service_actions(self) -> None:
        now = monotonic()
        with self._changing:
            late = [connection for connection, deadline in self._connections.values() if now > deadline]
        for connection in late:
            _shut(connection)
        if not self._stopped and self.over():
            self.stop()

    def process_request(self, request: Any, client_address: Any) -> None:
        while not self._slots.acquire(timeout=POLL_S):
            self.service_actions()
            if self._stopped:
                request.close()
                return
        thread = threading.Thread(
            target=self._answer, args=(request, client_address), name="labkit-predict", daemon=True
        )
        with self._changing:
            self._connections[thread] = request, monotonic() + DEADLINE_S
        thread.start()

    def _answer(self, request: socket.socket, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except OSError:
            pass  # the client has gone, or the deadline is over
        finally:
            self.shutdown_request(request)
            with self._changing:
                del self._connections[threading.current_thread()]
            self._slots.release()

    def server_close(self) -> None:
        super().server_close()
        with self._changing:
            left = dict(self._connections)
        for connection, _ in left.values():
            _shut(connection, socket.SHUT_RD)  # no more is read, but an answer is still sent
        _join(left)
        for connection, _ in left.values():
            _shut(connection)
        _join(left)


def _join(threads: Iterable[threading.Thread]) -> None:
    """Wait until the threads have ended, for `CLOSE_S` at most in all."""
    end = monotonic() + CLOSE_S
    for thread in threads:
        thread.join(max(0.0, end - monotonic()))


def _shut(connection: socket.socket, how: int = socket.SHUT_RDWR) -> None:
    """End a connection on which another thread may wait."""
    with contextlib.suppress(OSError):  # it has ended already
        connection.shutdown(how)


class _Refused(Exception):
    """An answer other than 200. `headers`: further headers of the answer."""

    def __init__(self, status: HTTPStatus, message: str, **headers: str):
        super().__init__(message)
        self.status, self.headers = status, headers


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: _Server
    server_version: ClassVar[str] = "labkit"  # type: ignore[misc]
    sys_version: ClassVar[str] = ""  # type: ignore[misc]

    def parse_request(self) -> bool:
        """Read the request line and the headers. Every method is known, so that `_answer` refuses all but two of them alike."""
        parsed = super().parse_request()
        if parsed:
            setattr(self, f"do_{self.command}", self._answer)
        return parsed

    def _answer(self) -> None:
        try:
            self._reply(HTTPStatus.OK, self._found())
        except _Refused as refused:
            self._reply(refused.status, {"error": str(refused)}, refused.headers)

    def _found(self) -> dict[str, Any]:
        """Return the answer. Raises `_Refused`."""
        given = self.headers.get("Authorization", "").encode("latin-1", "replace")
        if not hmac.compare_digest(given, b"Bearer " + self.server.settings.token.encode()):
            raise _Refused(
                HTTPStatus.UNAUTHORIZED, "The request needs the token of the server: Authorization: Bearer TOKEN.",
                WWW_Authenticate="Bearer",
            )  # fmt: skip
        name = self.server.settings.name
        path = unquote(self.path.partition("?")[0])
        found = re.fullmatch(rf"/v1/models/{re.escape(name)}(?:/versions/(\d{{1,18}}))?(:predict)?", path)
        if found is None:
            raise _Refused(
                HTTPStatus.NOT_FOUND,
                f"{shown(path, 80)} does not exist; there are GET /v1/models/{name} and POST /v1/models/{name}:predict.",
            )
        allowed = "POST" if found[2] else "GET"
        if self.command != allowed:
            raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED, f"This address takes {allowed} only.", Allow=allowed)
        body = self._body() if found[2] else b""
        try:
            model = self.server.model.current()
        except LabkitError as error:
            raise _Refused(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from None
        if found[1] is not None and int(found[1]) != model.update:
            raise _Refused(
                HTTPStatus.NOT_FOUND,
                f"Version {found[1]} is not served; the newest evaluated update is {model.update}.",
            )
        return self._predicted(model, body) if found[2] else _state(model)

    def _body(self) -> bytes:
        """Return the body. One that is too large is not read."""
        length = self.headers.get("Content-Length")
        if length is None:
            raise _Refused(HTTPStatus.LENGTH_REQUIRED, "The request needs a Content-Length.")
        if not re.fullmatch(r"\d{1,18}", length):
            raise _Refused(HTTPStatus.BAD_REQUEST, f"Content-Length is {shown(length, 40)}, not a number of bytes.")
        if int(length) > self.server.settings.max_bytes:
            raise _Refused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"The body has {int(length):,} bytes; this server takes {self.server.settings.max_bytes:,} (serve: max_bytes).",
            )
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise _Refused(HTTPStatus.BAD_REQUEST, f"The body ended after {len(body):,} of {int(length):,} bytes.")
        return body

    def _predicted(self, model: Predictor, body: bytes) -> dict[str, Any]:
        instances, most = _instances(body), self.server.settings.max_rows
        if len(instances) > most:
            raise _Refused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"The request has {len(instances):,} samples; this server takes {most:,} at a time (serve: max_rows).",
            )
        try:
            with self.server.computing:  # a model of a user need not be safe to call from two threads
                found, diverged = outputs_of(model, instances)
        except BadInput as error:
            raise _Refused(HTTPStatus.BAD_REQUEST, str(error)) from None
        except LabkitError as error:  # of a model of the user
            raise _Refused(HTTPStatus.INTERNAL_SERVER_ERROR, str(error)) from None
        if diverged:
            raise _Refused(HTTPStatus.SERVICE_UNAVAILABLE, diverged)
        return {"predictions": found.tolist(), "model_version": str(model.update)}

    def _reply(self, status: HTTPStatus, answer: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        for name, value in (headers or {}).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing: the terminal shows the run."""


def _state(model: Predictor) -> dict[str, Any]:
    status = {"error_code": "OK", "error_message": ""}
    return {"model_version_status": [{"version": str(model.update), "state": "AVAILABLE", "status": status}]}


def _instances(body: bytes) -> list[Any]:
    """Return the samples of a request. Raises `_Refused`, with what is wrong."""
    example = '{"instances": [[0.0, 1.0], [2.0, 3.0]]}'

    def no_number(text: str) -> None:
        raise ValueError(f"{text} is not a number of JSON")

    try:
        found = json.loads(body, parse_constant=no_number)
    except (ValueError, RecursionError) as error:
        raise _Refused(
            HTTPStatus.BAD_REQUEST, f"The body is not JSON ({shown(str(error), 120)}); an example is {example}."
        ) from None
    if not isinstance(found, dict) or not isinstance(found.get("instances"), list) or not found["instances"]:
        raise _Refused(HTTPStatus.BAD_REQUEST, f"The body needs a list of samples, as {example}.")
    if other := sorted(found.keys() - {"instances", "signature_name"}):
        raise _Refused(
            HTTPStatus.BAD_REQUEST, f"The body has {shown(other[0], 40)}, which is unknown; an example is {example}."
        )
    return list(found["instances"])
