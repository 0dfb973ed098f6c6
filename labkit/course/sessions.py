"""When the kernel of a notebook was last busy, as this user's Jupyter servers know it.

Its law: it only ever adds a warning. A server that does not answer, or not like a Jupyter server, knows nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

__all__ = ["last_busy"]

PATIENCE = 1.0  # seconds; the servers are on this computer


def last_busy(notebook: Path) -> float:
    """Seconds since 1970; 0 where no server runs this notebook."""
    from jupyter_core.paths import jupyter_runtime_dir

    servers = Path(jupyter_runtime_dir()).glob("jpserver-*.json")
    return max((time for server in servers for time in _times(server, notebook.resolve())), default=0.0)


def _times(server: Path, notebook: Path) -> Iterator[float]:
    """When kernels of this notebook were last busy, from the server that left this note about itself."""
    try:
        about = json.loads(server.read_text(encoding="utf-8"))
        for session in _sessions(about["url"], about["token"]):
            if (Path(about["root_dir"]) / session["path"]).resolve() == notebook:
                yield datetime.fromisoformat(session["kernel"]["last_activity"]).timestamp()
    except (OSError, HTTPException, ValueError, KeyError, TypeError, AttributeError):
        return


def _sessions(url: str, token: str) -> Any:
    request = Request(f"{url}api/sessions", headers={"Authorization": f"token {token}"})
    with build_opener(ProxyHandler({})).open(request, timeout=PATIENCE) as answer:
        return json.load(answer)
