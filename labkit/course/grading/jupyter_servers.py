"""The last activity of a notebook's kernel, from the Jupyter servers of this user.

The result is used only for a warning, so a server that does not answer as expected is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

TIMEOUT_S = 1.0  # the servers are on this computer


def last_activity(notebook: Path) -> float:
    """Return the last activity of the notebook's kernel in seconds since 1970; 0 if no server runs the notebook."""
    from jupyter_core.paths import jupyter_runtime_dir

    servers = Path(jupyter_runtime_dir()).glob("jpserver-*.json")
    return max((time for server in servers for time in _times(server, notebook.resolve())), default=0.0)


def _times(server: Path, notebook: Path) -> Iterator[float]:
    """Yield the last activity of each kernel that runs this notebook on one server.

    server: the file in which the server describes itself (URL, token and root folder).
    """
    try:
        about = json.loads(server.read_text(encoding="utf-8"))
        for session in _sessions(about["url"], about["token"]):
            if (Path(about["root_dir"]) / session["path"]).resolve() == notebook:
                yield datetime.fromisoformat(session["kernel"]["last_activity"]).timestamp()
    except (OSError, HTTPException, ValueError, KeyError, TypeError, AttributeError):
        return


def _sessions(url: str, token: str) -> Any:
    request = Request(f"{url}api/sessions", headers={"Authorization": f"token {token}"})
    with build_opener(ProxyHandler({})).open(request, timeout=TIMEOUT_S) as answer:
        return json.load(answer)
