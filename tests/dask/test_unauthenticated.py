"""Unauthenticated connections: no port of a local cluster accepts data from a process without the cluster's credentials.

As root the attempts are made by user 65534; else by a process of this user, which has no credentials either.
"""

import contextlib
import json
import os
import stat
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request

import psutil
import pytest
from tornado import httpserver, ioloop, netutil, web, websocket

from labkit.engines.dask.cluster import credentials
from labkit.engines.dask.transport.shared_memory import available
from tests.dask.helpers import closes, endless, further, process_of, usable

CLIENT = r"""
import asyncio, json, logging, os, socket, ssl, sys
import distributed, distributed.protocol.serialize
from distributed.core import connect
from distributed.protocol.pickle import dumps
from distributed.security import Security

logging.disable()
ports, marker = json.loads(sys.argv[1]), sys.argv[2]

def mark(path):
    open(path, "a").write("ran\n")

def anonymous():
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return {"ssl_context": context, "require_encryption": True}

WAYS = [
    ("tcp", {}), ("tls", anonymous()), ("tls", Security.temporary().get_connection_args("client")),
]
found = []

async def ask(port, scheme, arguments, message):
    comm = await connect(f"{scheme}://127.0.0.1:{port}", timeout=2, **arguments)
    try:
        await comm.write(message)
        answer = await asyncio.wait_for(comm.read(), 2)
        found.append(f"{scheme} port {port} {message['op']}: {str(answer)[:200]}")
    finally:
        comm.abort()

def web(port):
    with socket.create_connection(("127.0.0.1", port), 2) as sock:
        sock.settimeout(2)
        sock.sendall(b"GET /status HTTP/1.1\r\nHost: x\r\n\r\n")
        if sock.recv(100).startswith(b"HTTP/1.1 200"):
            found.append(f"http port {port}")

async def all_of_it():
    run = {"function": dumps(mark), "args": dumps((marker,)), "kwargs": dumps({}), "wait": True}
    trials = [ask(port, *way, message) for port in ports for way in WAYS
              for message in ({"op": "identity", "reply": True}, {"op": "run", "reply": True} | run,
                              {"op": "run_function", "reply": True} | run)]
    await asyncio.wait([asyncio.ensure_future(trial) for trial in trials], timeout=30)

asyncio.run(asyncio.sleep(0))
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
asyncio.run(all_of_it())
for port in ports:
    try:
        web(port)
    except OSError:
        pass
try:
    client = distributed.Client(f"tcp://127.0.0.1:{ports[0]}", timeout=3, set_as_default=False)
    found.append(str(client.submit(mark, marker).result(3)))
except Exception:
    pass
print(json.dumps(found), flush=True)
os._exit(0)
"""


def ports_of(client):
    """Every port on which the cluster's processes listen: the scheduler's first, the nannies', then all of the workers'."""
    port = lambda address: int(address.rpartition(":")[2])  # noqa: E731
    known = client.scheduler_info(n_workers=-1)["workers"].values()
    listening = [
        connection.laddr.port
        for pid in client.run(os.getpid).values()
        for connection in psutil.Process(pid).net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    ]
    return [port(client.scheduler.address), *(port(worker["nanny"]) for worker in known), *listening]


def unauthenticated_process(ports, marker):
    """What a process without the credentials received from these ports."""
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, json.dumps(ports), str(marker)], capture_output=True, text=True, check=True
    )  # fmt: skip
    return json.loads(done.stdout)


@pytest.fixture
def open_folder(tmp_path_factory):
    """A folder that every user may write to."""
    folder = tmp_path_factory.mktemp("open")
    for each in (folder, folder.parent, folder.parent.parent):
        each.chmod(each.stat().st_mode | 0o711)
    folder.chmod(0o777)
    return folder


def test_another_user_runs_nothing(cluster, open_folder):
    run = endless(cluster)
    ports = ports_of(cluster.client)
    assert len(ports) >= 1 + 2 * 4 + 4  # the scheduler; nannies and workers, of which four have roles; four roles
    assert unauthenticated_process(ports, open_folder / "marker") == []
    assert not (open_folder / "marker").exists()
    further(run).stop()
    closes(run)
    usable(cluster)


@pytest.mark.skipif(not available(), reason="processes of this machine cannot share memory")
def test_roles_share_memory_that_other_users_cannot_open(cluster):
    """The frames of a local cluster go through memory, though Dask's connections are encrypted."""
    run = endless(cluster)

    def mapped():
        with open("/proc/self/maps") as file:
            return file.read().count("/memfd:labkit-")

    links = sum(cluster.client.run(mapped).values())
    assert links >= 2 * 2 * 2  # two workers, both directions, both ends
    pid = process_of(run, "worker-0").pid
    code = f"import os\nos.setgroups([]); os.setgid(65534); os.setuid(65534)\nos.listdir('/proc/{pid}/fd')"
    if os.getuid() == 0:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert "PermissionError" in done.stderr
    run.stop()
    closes(run)


FLOOD = """
import collections, itertools, resource, select, socket, sys
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
most = 8192 if most == resource.RLIM_INFINITY else min(most, 8192)
resource.setrlimit(resource.RLIMIT_NOFILE, (most, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
held = collections.deque()
for count in itertools.count(1):
    held.append(socket.socket())
    held[-1].setblocking(False)
    held[-1].connect_ex((sys.argv[1], int(sys.argv[2])))
    if count == 5000:
        print("there", flush=True)
    while len(held) > most - 50:
        held.popleft().close()
    if count >= 5000:
        select.select([], [], [], 1 / 400)
"""


@contextlib.contextmanager
def flood(address):
    """A process opens 5000 connections to this address, then up to 400 a second, and sends nothing on them."""
    command = [sys.executable, "-c", FLOOD, *map(str, address)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "there\n"
            yield
        finally:
            process.kill()


@pytest.mark.slow
def test_idle_connections_keep_no_role_out(cluster):
    """They are opened until a killed worker has restarted and computes."""
    run = endless(cluster.resized(pace=0.01))
    with flood(run.engine.members.contact["server-0"][:2]):
        run.kill("worker-0")
        run.wait_for("restarted", "worker-0")
        run.wait_for(lambda run: applied_of(run, "worker-0", 1) > 20)
    run.stop()
    closes(run)


def applied_of(run, sender, incarnation):
    """Number of gradients of this incarnation that the server has reported as applied."""
    ids = run.engine.plan.role_ids
    applied = run.trace.counters[ids["server-0"]].applied
    return applied.get(ids[sender] + incarnation * len(ids), (0, -1))[0]


def test_no_port_speaks_http_and_every_connection_is_encrypted(cluster):
    client = cluster.open().client
    info = client.scheduler_info(n_workers=-1)
    assert info["services"] == {}
    assert client.scheduler.address.startswith("tls://127.0.0.1:")
    for address, worker in info["workers"].items():
        assert address.startswith("tls://127.0.0.1:")
        assert worker["nanny"].startswith("tls://127.0.0.1:")
        assert worker["services"] == {}


def test_secrets_are_in_no_command_line_and_no_environment(cluster):
    client = cluster.open().client
    words = [line for line in client.security.tls_client_key.splitlines() if "-----" not in line]
    assert words
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        text = " ".join([*process.cmdline(), *process.environ().values()])
        assert not any(word in text for word in words)


def test_a_key_is_in_no_file_and_survives_the_way_to_another_process(tmp_path, monkeypatch):
    import pickle
    import ssl

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    security = credentials.new_security()
    copy = pickle.loads(pickle.dumps(security))
    assert copy.tls_worker_key == security.tls_client_key
    for each in (security, copy):
        contexts = [each.get_listen_args("worker")["ssl_context"], each.get_connection_args("client")["ssl_context"]]
        assert all(context.verify_mode == ssl.CERT_REQUIRED for context in contexts)
        assert all(context.minimum_version == ssl.TLSVersion.TLSv1_3 for context in contexts)
        assert each.get_listen_args("scheduler")["ssl_context"] is contexts[0]
    monkeypatch.delattr(os, "memfd_create", raising=False)  # as on macOS
    modes, load = [], ssl.SSLContext.load_cert_chain

    def loaded(context, certificate, *more):
        modes.extend(stat.S_IMODE(os.stat(path).st_mode) for path in tmp_path.rglob("*") if path.is_file())
        return load(context, certificate, *more)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", loaded)
    assert credentials.new_security().get_listen_args("worker")["ssl_context"]
    assert modes
    assert set(modes) == {0o600}
    # only the lock is left
    assert all(not files or files == [".labkit-temporary"] for _, _, files in os.walk(tmp_path))


def test_two_clusters_do_not_trust_each_other(cluster):
    """Each has credentials of its own."""
    other = credentials.new_security()
    assert other.tls_client_key != cluster.client.security.tls_client_key
    address = cluster.client.scheduler.address
    assert not answers(address, other.get_connection_args("client"))
    assert answers(address, cluster.client.security.get_connection_args("client"))


def answers(address, arguments):
    """Whether a Dask server at `address` answers a peer with these connection arguments."""
    import asyncio

    from distributed.core import connect

    async def ask():
        comm = await connect(address, timeout=5, **arguments)
        try:
            await comm.write({"op": "identity", "reply": True})
            return (await asyncio.wait_for(comm.read(), 5))["type"] == "Scheduler"
        finally:
            comm.abort()

    try:
        return asyncio.run(ask())
    except OSError:
        return False


# the dashboard's token ---------------------------------------------------------------------------------------------------


class Echo(websocket.WebSocketHandler):
    def on_message(self, message):
        self.write_message(message)


class Page(web.RequestHandler):
    def get(self):
        self.write("page " + self.get_argument("q", ""))


@pytest.fixture
def guarded():
    """(port, token, loop) of a web server behind the guard."""
    import asyncio

    from labkit.engines.dask.cluster.credentials import new_token
    from labkit.engines.dask.cluster.http_servers import TokenGuard

    ready, token, made = threading.Event(), new_token(), []

    def serve():
        asyncio.set_event_loop(asyncio.new_event_loop())
        server = httpserver.HTTPServer(web.Application([("/a/status", Page), ("/ws", Echo)]))
        sockets = netutil.bind_sockets(0, "127.0.0.1")
        server.add_sockets(sockets)
        port = sockets[0].getsockname()[1]
        server.request_callback = TokenGuard(server.request_callback, token, port)
        made.extend([port, ioloop.IOLoop.current()])
        ready.set()
        ioloop.IOLoop.current().start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    ready.wait()
    yield made[0], token
    made[1].add_callback(made[1].stop)
    thread.join()


def status(address, opener=None, **headers):
    request = urllib.request.Request(address, headers=headers)
    try:
        with (opener.open if opener else urllib.request.urlopen)(request, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_dashboard_asks_for_its_token(guarded):
    from http.cookiejar import CookieJar

    from labkit.engines.dask.cluster.http_servers import with_token

    port, token = guarded
    page = f"http://127.0.0.1:{port}/a/status"
    assert status(page)[0] == 403
    assert status(page + "?labkit-token=")[0] == 403
    assert status(page + "?labkit-token=" + token[:-1])[0] == 403
    assert status(page, Cookie=f"labkit-token-{port}=x")[0] == 403
    assert status(page, Cookie="labkit-token-1=" + token)[0] == 403
    assert status(f"http://127.0.0.1:{port}/ws", Connection="Upgrade", Upgrade="websocket")[0] == 403
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    assert status(with_token(page + "?q=1", token), browser) == (200, "page 1")
    assert status(page, browser) == (200, "page ")
    assert status(page)[0] == 403
    assert with_token("http://x/status", "a+b") == "http://x/status?labkit-token=a%2Bb"
