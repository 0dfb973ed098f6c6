"""A stub of a browser: the other end of the channel of a widget."""

from __future__ import annotations

from typing import Any

from comm.base_comm import BaseComm


class Browser(BaseComm):
    """The state and the messages that a browser has received from a widget."""

    def __init__(self, *arguments, **more):
        self.state: dict[str, Any] = {}
        self.updates: list[dict[str, Any]] = []  # changed traits, one entry per message
        self.messages: list[tuple[dict[str, Any], list[bytes]]] = []  # and their buffers
        self.gone = False
        super().__init__(*arguments, **more)

    def publish_msg(self, msg_type, data=None, metadata=None, buffers=None, **keys):
        data = data or {}
        if msg_type == "comm_close":
            self.gone = True
        elif data.get("method") == "custom":
            self.messages.append((data["content"], list(buffers or ())))
        else:
            self.state |= data.get("state", {})
            if msg_type == "comm_msg":
                self.updates.append(data["state"])

    def send_to_kernel(self, **message):
        """Send a message to the widget in the kernel."""
        self.handle_msg({"content": {"data": {"method": "custom", "content": message}}, "buffers": []})

    def take(self, do):
        """Remove the messages of a kind, and return them."""
        taken = [each for each in self.messages if each[0]["do"] == do]
        self.messages = [each for each in self.messages if each[0]["do"] != do]
        return taken

    def pictures(self):
        """Take all frames: a list of {name of the panel: message}, a dictionary for each frame."""
        return [{panel["name"]: panel for panel in frame["panels"]} for frame, _ in self.take("frame")]
