"""A private JupyterLab server in separate folders, removed completely afterwards.

All its child processes (kernels, and what kernels start) inherit an environment variable with a value that is unique
to the server. Remaining processes are found by this variable, also after their parent has changed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import psutil

from labkit.cli.notebooks import COPY_FOLDER

MARK = "LABKIT_TEST_SERVER"
STOPS, LEAVES = 60.0, 60.0  # seconds at most: to stop, for its child processes to end


class LabServer:
    """JupyterLab, started by `labkit lab` in the Python environment of the tests. `root` is its folder of notebooks, `url` where
    it listens, `opens` the path below `url` that the browser of a user would open.

    It reads no user settings, and accepts only requests with its token.
    """

    def __init__(self, folder: Path):
        self.folder, here, self.log = folder, folder / "notebooks", folder / "jupyterlab.log"
        self.root = here / COPY_FOLDER
        self.token, self._mark = secrets.token_hex(16), secrets.token_hex(16)
        self.url = self.opens = ""
        here.mkdir(parents=True)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "labkit", "lab", *self._options()],
            cwd=here,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
        )
        self._listening = threading.Event()  # also if it has ended
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._listening.wait()
        if not self.url:
            raise AssertionError(f"JupyterLab has ended; its output: {self.log.read_text()[-2000:]}")

    def _read(self) -> None:
        """Copy the server's output to the log, and find the address in it."""
        with self.log.open("w") as log:
            for line in self._process.stdout or ():
                log.write(line)
                log.flush()
                address = re.search(r"(http://127\.0\.0\.1:\d+/)(lab\S*)\?token=", line)
                if address and not self.url:
                    self.opens, self.url = address[2], address[1]
                    self._listening.set()
        self._listening.set()

    def _options(self) -> list[str]:
        options = ["--no-browser", "--", "--expose-app-in-browser", "--ServerApp.ip=127.0.0.1", "--ServerApp.port=0"]
        options += [f"--IdentityProvider.token={self.token}"]
        options += ["--LanguageServerManager.autodetect=False"]  # a language server would be left as a process
        return options

    def _environment(self) -> dict[str, str]:
        own = {
            "JUPYTER_CONFIG_DIR": "config",
            "JUPYTER_DATA_DIR": "data",
            "JUPYTER_RUNTIME_DIR": "runtime",
            "JUPYTERLAB_SETTINGS_DIR": "settings",
            "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
            "IPYTHONDIR": "ipython",
        }
        folders = {name: str(self.folder / folder) for name, folder in own.items()}
        return {**os.environ, **folders, "JUPYTER_PREFER_ENV_PATH": "1", MARK: self._mark}

    # requests to the server -------------------------------------------------------------------------------------------

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """The response of the server's REST interface, or None if it is empty. OSError if it refuses."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"token {self.token}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=STOPS) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def session_of(self, notebook: str) -> dict[str, Any] | None:
        """The session of a notebook (path below `root`) that has a kernel, or None."""
        for session in self.request("GET", "api/sessions"):
            if session["path"] == notebook and session["kernel"]:
                return dict(session)
        return None

    def connection(self, kernel: str) -> dict[str, Any]:
        """Addresses and key of a kernel, as in its connection file."""
        return dict(json.loads((self.folder / "runtime" / f"kernel-{kernel}.json").read_text()))

    def shut_down(self, notebook: str) -> None:
        """End the kernel of this notebook, if it has one."""
        session = self.session_of(notebook)
        if session is not None:
            with contextlib.suppress(urllib.error.HTTPError):  # it has ended already
                self.request("DELETE", f"api/sessions/{session['id']}")

    # the end ----------------------------------------------------------------------------------------------------------

    def started(self) -> list[psutil.Process]:
        """The descendants of this server, also those whose parent has changed."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):  # gone, or of another user
                mine = process.environ().get(MARK) == self._mark and process.pid != self._process.pid
                if mine and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def sweep(self, patience: float = LEAVES) -> list[str]:
        """Wait until the server's descendants end and kill the others; return the command lines of those killed."""
        psutil.wait_procs(self.started(), patience)
        left, killed = [], self.started()
        for process in killed:
            with contextlib.suppress(psutil.Error):
                left.append(" ".join(process.cmdline())[:200])
                process.kill()
        psutil.wait_procs(killed, timeout=STOPS)  # a signal is sent, not yet delivered
        return left

    def close(self) -> list[str]:
        """Shut down the server and its kernels; return the command lines of processes that had to be killed."""
        self._process.terminate()
        try:
            self._process.wait(STOPS)
            return self.sweep()
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOPS)
            return ["JupyterLab itself", *self.sweep()]
