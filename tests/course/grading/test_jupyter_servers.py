"""The last activity of a notebook's kernel as Jupyter servers report it; malformed answers are ignored. The server is a fake."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from labkit.course.grading.jupyter_servers import last_activity


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A server of the folder tmp_path that answers `server.says` to requests with the token."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            allowed = self.headers["Authorization"] == "token abc" and self.path == "/base/api/sessions"
            self.send_response(200 if allowed else 403)
            self.end_headers()
            self.wfile.write(made.says.encode() if allowed else b"[]")

        def log_message(self, *_):
            pass

    made = HTTPServer(("127.0.0.1", 0), Handler)
    made.about = {
        "url": f"http://127.0.0.1:{made.server_port}/base/",
        "token": "abc",
        "root_dir": str(tmp_path),
    }
    kernel = {"last_activity": "1970-01-01T00:20:00.000000Z"}
    made.says = json.dumps([{"path": "other.ipynb", "kernel": {}}, {"path": "a/toy.ipynb", "kernel": kernel}])
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def note(folder, about):
    (folder / "jpserver-1.json").write_text(about if isinstance(about, str) else json.dumps(about))


def test_last_activity_is_that_of_the_kernel(server, tmp_path):
    note(tmp_path, server.about)
    assert last_activity(tmp_path / "a" / "toy.ipynb") == 1200.0
    assert last_activity(tmp_path / "b" / "toy.ipynb") == 0.0


@pytest.mark.parametrize("message", ["", "[", "{}", "[1]", "[{}]", '{"message": "no"}', '[{"path": "a/toy.ipynb"}]'])
def test_malformed_servers_are_ignored(server, tmp_path, message):
    note(tmp_path, server.about)
    server.says = message
    assert last_activity(tmp_path / "a" / "toy.ipynb") == 0.0


def test_servers_other_than_jupyter_are_ignored(server, tmp_path):
    for about in (
        "",
        "{}",
        {**server.about, "token": "x"},
        {**server.about, "url": "nonsense"},
        {**server.about, "url": None},
    ):
        note(tmp_path, about)
        assert last_activity(tmp_path / "a" / "toy.ipynb") == 0.0
