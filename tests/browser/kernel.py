"""Requests to a kernel, from outside and while a cell runs, without adding a cell to the notebook.

Where the kernel has subshells (ipykernel 7), code runs in a subshell created for this request. Where it has none,
the request waits for the cell. Plain sockets are used, because the browser's driver already runs an event loop in this
thread.
"""

from __future__ import annotations

import ast
import uuid
from typing import Any

import zmq
from jupyter_client.session import Session

ANSWERS = 20_000  # milliseconds in which the heartbeat of a kernel that is alive answers, also if the kernel is busy
MOST = 180_000  # milliseconds for an answer: more than a wait for a condition takes


class _Channels:
    """The channels of a kernel that are used for requests."""

    def __init__(self, connection: dict[str, Any]):
        self._session = Session(key=connection["key"].encode(), signature_scheme=connection["signature_scheme"])
        self._context = zmq.Context()
        self._connection = connection
        self.shell, self.control = (self._connect(name, zmq.DEALER) for name in ("shell", "control"))

    def _connect(self, name: str, kind: int) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.linger = 0
        socket.identity = uuid.uuid4().bytes
        to = self._connection
        socket.connect(f"{to['transport']}://{to['ip']}:{to[f'{name}_port']}")
        return socket

    def request(
        self,
        socket: zmq.Socket[bytes],
        kind: str,
        content: dict[str, Any],
        subshell: str | None = None,
        number: str = "",
    ) -> dict[str, Any]:
        """Send a message; the content of the answer. TimeoutError if the kernel is no longer alive."""
        message = self._session.msg(kind, content)
        message["header"]["msg_id"] = number or message["header"]["msg_id"]
        if subshell is not None:
            message["header"]["subshell_id"] = subshell
        self._session.send(socket, message)
        silent = 0
        while silent < MOST:
            if not socket.poll(ANSWERS):
                self._check_alive(kind)
                silent += ANSWERS
                continue
            _, answer = self._session.recv(socket, zmq.NOBLOCK)
            if answer is not None and answer["parent_header"].get("msg_id") == message["header"]["msg_id"]:
                return dict(answer["content"])
        raise TimeoutError(f"the kernel is alive, and has not answered a {kind}")

    def _check_alive(self, kind: str) -> None:
        heart = self._connect("hb", zmq.REQ)
        heart.send(b"ping")
        if not heart.poll(ANSWERS):
            raise TimeoutError(f"the kernel does not answer a {kind}, and its heartbeat has stopped")
        heart.close()

    def close(self) -> None:
        self._context.destroy(linger=0)


def ask(connection: dict[str, Any], code: str, number: str = "") -> Any:
    """Run `code` in the kernel of this connection file; the value of its last line, if that is an expression. `number`: of the
    request, in the messages about it that all clients of the kernel get.

    The value must be one that Python reads back from its `repr`. RuntimeError with the kernel's error text if the code
    raises, TimeoutError if the kernel has ended.
    """
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    content = {
        "code": ast.unparse(tree),
        "silent": True,
        "store_history": False,
        "user_expressions": {"value": f"repr({ast.unparse(last) if last is not None else None})"},
        "allow_stdin": False,
        "stop_on_error": False,
    }
    channels = _Channels(connection)
    try:
        subshell = channels.request(channels.control, "create_subshell_request", {}).get("subshell_id")
        try:
            answer = channels.request(channels.shell, "execute_request", content, subshell, number)
        finally:
            if subshell is not None:
                channels.request(channels.control, "delete_subshell_request", {"subshell_id": subshell})
    finally:
        channels.close()
    return _value(answer)


def _value(answer: dict[str, Any]) -> Any:
    if answer["status"] == "ok":
        answer = answer["user_expressions"]["value"]
    if answer["status"] != "ok":
        raise RuntimeError(f"{answer['ename']}: {answer['evalue']}")
    return ast.literal_eval(ast.literal_eval(answer["data"]["text/plain"]))
