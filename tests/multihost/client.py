"""A program controlled by a test: it executes one request per line, and answers.

Started in a namespace it acts as a notebook on that host: `Client.do("run = lk.train(...)")`, `Client.ask("run.now")`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import traceback
from queue import SimpleQueue
from threading import Thread
from typing import Any


def main() -> None:
    """Read `["do" | "ask", code]` a line; answer `{"value": ...}` or `{"error": name, "says": text}`."""
    names: dict[str, Any] = {"__name__": "__notebook__"}
    answers, sys.stdout = sys.stdout, sys.stderr  # output of labkit or Dask is not an answer
    for line in sys.stdin:
        what, code = json.loads(line)
        try:
            value = eval(code, names) if what == "ask" else exec(code, names)
            text = json.dumps({"value": value}, default=str)
        except BaseException as error:
            traceback.print_exc()
            text = json.dumps({"error": type(error).__name__, "says": str(error)})
        print(text, file=answers, flush=True)


class Refused(Exception):
    """A request failed in the program. `kind`: the name of the error."""

    def __init__(self, kind: str, says: str):
        super().__init__(f"{kind}: {says}")
        self.kind = kind


class Client:
    """The test's side of the program, which runs on `host`."""

    def __init__(self, host: Any, env: dict[str, str]):
        self._program = host.spawn(
            [sys.executable, __file__], env=env, text=True, bufsize=1, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._answers: SimpleQueue[str] = SimpleQueue()
        Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in self._program.stdout:
            self._answers.put(line)
        self._answers.put('{"error": "gone", "says": "the program has ended"}')

    def do(self, code: str) -> None:
        """Execute statements."""
        self._say("do", code)

    def ask(self, code: str) -> Any:
        """The value of an expression, converted through JSON."""
        return self._say("ask", code)

    def _say(self, what: str, code: str) -> Any:
        self._program.stdin.write(json.dumps([what, code]) + "\n")
        self._program.stdin.flush()
        answer = json.loads(self._answers.get())
        if "error" in answer:
            raise Refused(answer["error"], answer["says"])
        return answer["value"]


if __name__ == "__main__":
    main()
