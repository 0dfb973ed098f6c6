"""The servers of a local cluster: Dask's servers, without HTTP servers that are open to every user of the machine.

A worker also reports the stage of its start to its nanny, through a pipe.

Dask's TLS covers connections between its servers, but not HTTP. In Dask each scheduler and each worker has an HTTP server, with
logs, call stacks and, if bokeh is installed, the dashboard. Here a worker has no HTTP server. The scheduler has one only if a
dashboard was requested, and serves only requests with the cluster's token.

The classes have the names of Dask's classes, because Dask uses these names as the types of servers.
"""

from __future__ import annotations

import contextlib
import hmac
from http.cookies import CookieError, SimpleCookie
from multiprocessing.connection import Connection
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import distributed
from tornado.httputil import (
    HTTPConnection,
    HTTPHeaders,
    HTTPMessageDelegate,
    HTTPServerConnectionDelegate,
    RequestStartLine,
    ResponseStartLine,
)

from ..dask_private import ReportingNanny
from ..processes import end_with_parent

TOKEN = "labkit-token"  # name in the query of the first request; the cookie's name is this name and the port


class Worker(distributed.Worker):
    """A Dask worker without an HTTP server, whose process ends with its parent process.

    `imported`: a pipe, in which it writes when its modules are imported.
    """

    def __init__(self, *arguments: Any, imported: Connection, **more: Any) -> None:
        end_with_parent()
        super().__init__(*arguments, **more)
        with contextlib.suppress(OSError), imported:  # the reader is gone: this process is about to be ended
            imported.send_bytes(b"imported")

    def start_http_server(self, *arguments: Any, **more: Any) -> None:
        """Dask's hook: start no HTTP server."""


class GuardedNanny(ReportingNanny):
    """A nanny whose process is a `Worker` of this module."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **{**more, "worker_class": Worker})


class Scheduler(distributed.Scheduler):
    """A scheduler whose HTTP server requires `token`. Without a dashboard it has no HTTP server."""

    def __init__(self, *arguments: Any, token: str | None, dashboard: bool, **more: Any) -> None:
        self._token = token
        super().__init__(*arguments, dashboard=dashboard, **more)

    def start_http_server(self, *arguments: Any, **more: Any) -> None:
        """Dask's hook: start the HTTP server, if there is a token, and install the guard.

        The event loop accepts the first connection later, so no request passes without the guard.
        """
        if self._token is None:
            return
        super().start_http_server(*arguments, **more)
        self.http_server.request_callback = TokenGuard(
            self.http_application, self._token, self.services["dashboard"].port
        )


def with_token(link: str, token: str) -> str:
    """Return a dashboard's address with the token, which gives access to the dashboard."""
    return f"{link}{'&' if urlsplit(link).query else '?'}{urlencode({TOKEN: token})}"


class TokenGuard(HTTPServerConnectionDelegate):
    """Passes requests with the token in a cookie to `application`; answers all other requests with status 403.

    A request with the token in its query receives the cookie, and is redirected to the same page without the token,
    which keeps the token out of the browser's history. The guard covers all routes of the server, including web
    sockets.
    """

    def __init__(self, application: HTTPServerConnectionDelegate, token: str, port: int) -> None:
        self.application, self.token, self.cookie = application, token, f"{TOKEN}-{port}"

    def start_request(self, server_conn: object, request_conn: HTTPConnection) -> HTTPMessageDelegate:
        """Tornado's hook: a request begins."""
        return _Request(self, server_conn, request_conn)

    def allows(self, headers: HTTPHeaders) -> bool:
        """Return whether the request's cookies hold the token."""
        try:
            cookies = SimpleCookie("; ".join(headers.get_list("Cookie")))
        except CookieError:
            return False
        return self.cookie in cookies and self.matches(cookies[self.cookie].value)

    def matches(self, text: str) -> bool:
        return hmac.compare_digest(text.encode("utf-8", "replace"), self.token.encode())


class _Request(HTTPMessageDelegate):
    """One request, which is rejected, redirected, or passed on."""

    def __init__(self, guard: TokenGuard, server_conn: object, connection: HTTPConnection) -> None:
        self._guard, self._server_conn, self._connection = guard, server_conn, connection
        self._inner: HTTPMessageDelegate | None = None
        self._answer: tuple[ResponseStartLine, HTTPHeaders, bytes] | None = None

    def headers_received(self, start_line: Any, headers: HTTPHeaders) -> Any:
        """Tornado's hook: decide whether the request is rejected, redirected or passed on."""
        assert isinstance(start_line, RequestStartLine)
        guard = self._guard
        if guard.allows(headers):
            self._inner = guard.application.start_request(self._server_conn, self._connection)
            return self._inner.headers_received(start_line, headers)
        target = urlsplit(start_line.path)
        asked = parse_qsl(target.query, keep_blank_values=True)
        if any(name == TOKEN and guard.matches(value) for name, value in asked):
            rest = urlencode([(name, value) for name, value in asked if name != TOKEN])
            page = target.path.rpartition("/")[2] or "."  # relative: a proxy may stand before this server
            answer = {
                "Location": f"{page}?{rest}" if rest else page,
                "Set-Cookie": f"{guard.cookie}={guard.token}; Path=/; HttpOnly; SameSite=Lax",
                "Referrer-Policy": "no-referrer",
            }
            return self._respond(ResponseStartLine("HTTP/1.1", 302, "Found"), answer, b"")
        why = b"The address of this dashboard has a token; cluster.dashboard_link is the whole address.\n"
        return self._respond(ResponseStartLine("HTTP/1.1", 403, "Forbidden"), {"Content-Type": "text/plain"}, why)

    def _respond(self, line: ResponseStartLine, headers: dict[str, str], body: bytes) -> None:
        self._answer = line, HTTPHeaders({**headers, "Content-Length": str(len(body)), "Connection": "close"}), body

    def data_received(self, chunk: bytes) -> Any:
        """Tornado's hook: a part of the body has arrived."""
        return None if self._inner is None else self._inner.data_received(chunk)

    def finish(self) -> None:
        """Tornado's hook: the request is complete."""
        if self._inner is not None:
            self._inner.finish()
        elif self._answer is not None:
            self._connection.write_headers(*self._answer)
            self._connection.finish()

    def on_connection_close(self) -> None:
        """Tornado's hook: the client has disconnected."""
        if self._inner is not None:
            self._inner.on_connection_close()
