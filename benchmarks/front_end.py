"""A Jupyter kernel with a simulated browser that acknowledges every frame.

Without acknowledgements a live figure is drawn at a slower rate, and after a while not at all. This module reports that all
panels of a page are visible, and acknowledges every frame at once, like a browser that needs no time for drawing. The kernel's
side is real.
"""

from __future__ import annotations

import ast
import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from .subprocesses import environment

TIMEOUT_S = 120.0  # seconds for a cell, or for the kernel's start
SIZE, WIDE = (440, 150), (900, 150)  # pixels of a panel in half a row, and in a whole row


@contextlib.contextmanager
def open_kernel() -> Iterator[FrontEnd]:
    """Start a kernel with one thread of linear algebra. It ends at the end of the context, and when this process is killed."""
    from jupyter_client.connect import write_connection_file
    from jupyter_client.launcher import launch_kernel

    with TemporaryDirectory() as folder:
        file, connection = write_connection_file(str(Path(folder) / "kernel.json"), key=os.urandom(16).hex().encode())
        command = [sys.executable, "-m", "ipykernel_launcher", "-f", file, "--log-level=ERROR"]
        kernel = launch_kernel(command, env=environment())
        try:
            with contextlib.closing(FrontEnd(connection)) as front_end:
                front_end.wait_until_ready()
                yield front_end
        finally:
            kernel.kill()  # a kernel that has used Dask may ignore a shutdown request
            kernel.wait()


class FrontEnd:
    """A simulated front end. `connection`: the kernel's connection file. `frames`: the numbers of the acknowledged frames."""

    def __init__(self, connection: Any):
        import zmq
        from jupyter_client.session import Session

        self._session = Session(key=connection["key"].encode(), signature_scheme=connection["signature_scheme"])
        self._context = zmq.Context()
        self._shell, self._iopub = self._context.socket(zmq.DEALER), self._context.socket(zmq.SUB)
        self._iopub.subscribe(b"")
        for socket, port in ((self._shell, "shell_port"), (self._iopub, "iopub_port")):
            socket.linger = 0
            socket.connect(f"tcp://{connection['ip']}:{connection[port]}")
        self._pages: set[str] = set()  # ids of the comms of pages
        self.frames: list[int] = []

    def close(self) -> None:
        """Close the connection."""
        self._context.destroy()

    def wait_until_ready(self) -> None:
        """Wait until the kernel replies and its broadcast (IOPub) messages are received."""
        give_up = time.monotonic() + TIMEOUT_S
        while time.monotonic() < give_up:
            self._session.send(self._shell, "kernel_info_request", {})
            if self._iopub.poll(200):
                return
        raise RuntimeError(f"the kernel has not answered for {TIMEOUT_S:g} s")

    def acknowledge_frames(self, seconds: float) -> None:
        """Acknowledge every frame for `seconds` seconds."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._handle_message(left)

    def run(self, code: str, value: str = "None") -> Any:
        """Run a cell while acknowledging frames, and return the value of an expression. Raises `RuntimeError` if it fails."""
        content = {"code": code, "silent": False, "user_expressions": {"value": value}, "stop_on_error": False}
        sent = self._session.send(self._shell, "execute_request", content)["header"]["msg_id"]
        give_up = time.monotonic() + TIMEOUT_S
        while time.monotonic() < give_up:
            self._handle_message(0.02)
            while self._shell.poll(0):
                _, reply = self._session.recv(self._shell)
                if reply["parent_header"].get("msg_id") == sent:
                    return _value(reply["content"])
        raise RuntimeError(f"the kernel has not answered for {TIMEOUT_S:g} s")

    def _handle_message(self, seconds: float) -> None:
        """Handle the kernel's next broadcast message, if one arrives within `seconds`."""
        if not self._iopub.poll(1000 * seconds):
            return
        _, message = self._session.recv(self._iopub)
        content, kind = message["content"], message["msg_type"]
        page, data = content.get("comm_id"), content.get("data", {})
        if kind == "comm_open" and "panels" in data.get("state", {}):
            self._pages.add(page)
            self._send(page, {"do": "ready"})
        if page not in self._pages:
            return
        panels = data.get("state", {}).get("panels")
        if panels:
            sizes = {panel["name"]: WIDE if panel["wide"] else SIZE for panel in panels["shown"]}
            self._send(page, {"do": "layout", "sizes": sizes, "visible": list(sizes)})
        elif kind == "comm_msg" and data.get("method") == "custom" and data["content"]["do"] == "frame":
            self._send(page, {"do": "seen", "frame": data["content"]["frame"]})
            self.frames.append(data["content"]["frame"])

    def _send(self, page: str, content: dict[str, Any]) -> None:
        """Send a message to the page in the kernel."""
        self._session.send(self._shell, "comm_msg", {"comm_id": page, "data": {"method": "custom", "content": content}})


def _value(content: dict[str, Any]) -> Any:
    expression = content.get("user_expressions", {}).get("value", {})
    for part in (content, expression):
        if part.get("status") != "ok":
            raise RuntimeError(f"the cell failed: {part.get('ename')}: {part.get('evalue')}")
    return ast.literal_eval(expression["data"]["text/plain"])
