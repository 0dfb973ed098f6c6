"""Predictions while a run trains: the live model, and the server of a run."""

import http.client
import json
import socket
import threading
from urllib.parse import urlsplit

import numpy as np
import pytest

import labkit as lk
from tests.contract.engines import slow_on_processes

MOONS = lk.Problem("moons", hidden=(8,))
SAMPLES = [[0.0, 1.0], [1.5, -0.3], [-1.0, 0.2]]


def ask(server, method="GET", more="", body=None, token=None, headers=()):
    """(status, the answer), over a connection of its own."""
    at = urlsplit(server.url)
    connection = http.client.HTTPConnection(at.hostname, at.port, timeout=60)
    try:
        given = {"Authorization": f"Bearer {server.token if token is None else token}"} | dict(headers)
        connection.request(method, at.path + more, body, given)
        answer = connection.getresponse()
        content = answer.read()
        return answer.status, json.loads(content) if content else None
    finally:
        connection.close()


def predict(server, instances=SAMPLES, **more):
    return ask(server, "POST", ":predict", json.dumps({"instances": instances}), **more)


@pytest.fixture
def begun(simulated):
    """A run in virtual time with evaluations of updates 0 to 30."""
    return simulated.train(MOONS, lk.SyncPS(), lk.Budget(updates=100)).advance(0.3)


@pytest.fixture
def server(begun):
    with begun.serve() as made:
        yield made


def test_a_live_model_is_that_of_the_newest_evaluation(simulated):
    run = simulated.train(MOONS, lk.SyncPS(), lk.Budget(updates=100))
    live = run.predictor(live=True)
    seen = []
    for moment in np.arange(0.05, 1.0, 0.1):
        run.advance(moment)
        update, time = run.trace.column("evaluations", "update", "time")
        assert (live.update, live.time) == (update[-1], time[-1] / 1e9)
        now = run.result()
        assert (now.update, now.time, now.about["accuracy"]) == (
            live.update,
            live.time,
            live.current().about["accuracy"],
        )
        assert np.array_equal(live.predict_proba(SAMPLES), now.predict_proba(SAMPLES))
        seen.append(live.current())
    versions = [model.update for model in seen]
    assert versions == sorted(versions)
    assert len(set(versions)) >= 4
    kept = seen[0].parameters.copy()
    run.wait()
    assert live.update == run.result().update == 100
    assert np.array_equal(seen[0].parameters, kept)  # a model that was taken does not change
    assert live.current() is live.current()


def test_update_and_time_are_in_the_file_of_a_model(begun, tmp_path):
    model = begun.predictor()
    again = lk.load(model.save(tmp_path / "model.npz"))
    assert (again.update, again.time) == (model.update, model.time) == (30, 0.3)
    assert "after update 30, at 0.30 s" in str(again)


def test_there_is_no_live_model_of_a_run_without_one(simulated):
    timing = lk.Problem("moons", timing_only=True)
    run = simulated.train(timing, lk.SyncPS(), lk.Budget(updates=3))
    for call in (lambda: run.predictor(live=True), run.serve, run.predictor):
        with pytest.raises(lk.BadInput, match="timing only"):
            call()
    fresh = simulated.train(MOONS, lk.SyncPS(), lk.Budget(updates=3))
    with pytest.raises(lk.BadInput, match="nothing has been evaluated yet"):
        fresh.predictor(live=True).predict(SAMPLES)
    with fresh.serve() as server:
        assert predict(server)[0] == 503
    with pytest.raises(lk.BadInput, match="live"):
        fresh.predictor(live="yes")
    with pytest.raises(lk.BadInput, match="over"):
        fresh.wait().serve()


@slow_on_processes
def test_a_server_answers_with_the_model_of_one_evaluation_while_the_run_trains(engine):
    time = lk.distributions.Deterministic(0.01)
    run = engine.train(
        MOONS,
        lk.SyncPS(),
        lk.Budget(updates=400),
        time=time,
        **({} if engine.simulated else {"checkpoint_every": 0.05}),
    )
    run.wait_for(lambda run: len(run.trace.column("evaluations", "update")) > 1)
    server = run.serve(name="net")
    answers, lock = [], threading.Lock()

    def client():
        while True:
            try:
                status, answer = predict(server)
            except (OSError, http.client.HTTPException):
                return  # the server has ended with the run
            with lock:
                answers.append((status, answer))

    clients = [threading.Thread(target=client) for _ in range(4)]
    for each in clients:
        each.start()
    run.wait()
    for each in clients:
        each.join(60)
    assert not any(each.is_alive() for each in clients)
    server.close()
    assert server.closed
    by_version: dict[str, list] = {}
    for status, answer in answers:
        if status == 200:
            by_version.setdefault(answer["model_version"], []).append(answer["predictions"])
    evaluated = {str(int(update)) for update in run.trace.column("evaluations", "update")}
    assert by_version.keys() <= evaluated
    assert by_version
    for same in by_version.values():  # weights and version are one value
        assert all(each == same[0] for each in same)
    assert not [
        thread for thread in threading.enumerate() if thread.name.startswith(("labkit-serve", "labkit-predict"))
    ]


def test_answers_are_those_of_the_model(begun, server):
    status, answer = predict(server)
    assert status == 200
    assert np.allclose(answer["predictions"], begun.result().predict_proba(SAMPLES), rtol=0, atol=0)
    assert answer["model_version"] == "30"
    assert ask(server) == ask(server, more="/versions/30") == (
        200,
        {"model_version_status": [
            {"version": "30", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}},
        ]},
    )  # fmt: skip
    assert (
        ask(server, "POST", "/versions/30:predict", json.dumps({"instances": SAMPLES, "signature_name": "x"}))[0] == 200
    )


def test_a_regression_answers_values(simulated):
    run = simulated.train(lk.Problem("linear-regression"), lk.SyncPS(), lk.Budget(updates=50)).advance(0.2)
    x = run.plan.problem.dataset.raw(run.plan.problem.dataset.x_test[:3])
    with run.serve() as server:
        assert predict(server, x.tolist())[1]["predictions"] == run.result().predict(x).tolist()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("", "not JSON"), ("{", "not JSON"), ('{"instances": [[NaN, 0]]}', "NaN is not a number of JSON"),
        ('{"instances": [[Infinity, 0]]}', "Infinity"), ("[" * 100_000, "not JSON"), (b"\xff\xfe\x00", "not JSON"),
        ("[]", "list of samples"), ('{"instances": []}', "list of samples"), ('{"instances": {"a": 1}}', "list of samples"),
        ('{"inputs": [[1, 2]]}', "list of samples"), ('{"instances": [[1, 2]], "rows": 1}', "rows"),
        ('{"instances": [[1, 2, 3]]}', "samples of shape (1, 3)"), ('{"instances": [[1, 2], [3]]}', "different lengths"),
        ('{"instances": [["a", "b"]]}', "real numbers"), ('{"instances": [[1e999, 0]]}', "sample 0"),
        ('{"instances": [[0, 0], [1e300, 0]]}', "sample 1"), ('{"instances": [[null, 0]]}', "predict"),
        ('{"instances": [[{"b64": "AA=="}, 0]]}', "predict"), ('{"instances": [[' + "9" * 5000 + ", 0]]}", "not JSON"),
    ],
)  # fmt: skip
def test_wrong_bodies_are_answered_with_what_is_wrong(server, body, words):
    status, answer = ask(server, "POST", ":predict", body)
    assert (status, words in answer["error"]) == (400, True), answer
    assert predict(server)[0] == 200


def test_wrong_requests_are_refused(server):
    assert predict(server, token="guess")[0] == ask(server, token="")[0] == 401
    assert ask(server, token="\xe9")[0] == 401
    for more in ("x", "/versions/29", "/versions/29:predict", ":classify", "/versions/", "/../digits"):
        assert (
            ask(server, "POST" if "predict" in more else "GET", more, "{}" if "predict" in more else None)[0] == 404
        ), more
    for method, more in [
        ("GET", ":predict"),
        ("POST", ""),
        ("PUT", ":predict"),
        ("DELETE", ""),
        ("HEAD", ":predict"),
        ("BREW", ""),
    ]:
        assert ask(server, method, more, "{}" if method == "POST" else None)[0] == 405, (method, more)
    assert ask(server, "POST", ":predict", iter([b"{}"]), headers={"Transfer-Encoding": "chunked"})[0] == 411
    assert ask(server, "POST", ":predict", headers={"Content-Length": "-1"})[0] == 400


def test_requests_that_are_too_large_are_refused(begun):
    with begun.serve(max_rows=2, max_bytes=1000) as server:
        assert predict(server, SAMPLES[:2])[0] == 200
        status, answer = predict(server)
        assert (status, "3 samples" in answer["error"]) == (413, True)
        assert (
            ask(server, "POST", ":predict", headers={"Content-Length": str(10**12)})[0] == 413
        )  # the body is not awaited


def test_slow_clients_do_not_keep_others_waiting_nor_the_server_from_its_end(begun):
    server = begun.serve()
    at = urlsplit(server.url)
    slow = [socket.create_connection((at.hostname, at.port)) for _ in range(4)]
    try:
        for i, each in enumerate(slow):
            head = f"POST {at.path}:predict HTTP/1.1\r\nAuthorization: Bearer {server.token}\r\nContent-Length: 100\r\n\r\n{{"
            each.sendall(head.encode()[: (20, 60, len(head), 0)[i]])
        assert predict(server)[0] == 200
        server.close()
        assert server.closed
        for each in slow:
            each.settimeout(60)
            try:
                while each.recv(1000):
                    pass
            except ConnectionError:
                pass
        with pytest.raises(OSError, match=r".*"):
            ask(server)
    finally:
        for each in slow:
            each.close()
    server.close()  # again


def test_an_answer_that_is_being_computed_is_sent_before_the_server_ends(begun, monkeypatch):
    computing, closing = threading.Event(), threading.Event()
    compute = lk.Predictor.predict_proba

    def waits(self, x):
        computing.set()
        assert closing.wait(60)
        return compute(self, x)

    monkeypatch.setattr(lk.Predictor, "predict_proba", waits)
    server, answers = begun.serve(), []
    client = threading.Thread(target=lambda: answers.append(predict(server)))
    client.start()
    assert computing.wait(60)
    closer = threading.Thread(target=server.close)
    closer.start()
    try:
        while True:  # until the address takes no connections
            socket.create_connection(("127.0.0.1", server.port), timeout=60).close()
    except OSError:
        closing.set()
    client.join(60)
    closer.join(60)
    assert server.closed
    assert [status for status, _ in answers] == [200]


def test_a_connection_has_a_deadline(begun, monkeypatch):
    monkeypatch.setattr("labkit.serving.DEADLINE_S", 0.2)
    with begun.serve() as server, socket.create_connection(("127.0.0.1", server.port)) as slow:
        slow.settimeout(60)
        slow.sendall(b"GET /v1")
        assert slow.recv(1000) == b""
        assert not server.closed


def test_arguments_of_a_server(begun):
    with begun.serve(token="secret", name="a.b-c") as server:
        assert (server.token, server.url) == ("secret", f"http://127.0.0.1:{server.port}/v1/models/a.b-c")
        assert ask(server)[0] == 200
        with pytest.raises(lk.BadInput, match="another port"):
            begun.serve(server.port)
    for options in (
        {"port": -1}, {"port": 70000}, {"port": "80"}, {"host": ""}, {"host": 7}, {"name": "a b"}, {"name": ""}, {"token": ""},
        {"token": "a\r\nb"}, {"max_rows": 0}, {"max_bytes": 1.5}, {"host": "256.1.1.1"},
    ):  # fmt: skip
        with pytest.raises(lk.BadInput, match="serve: "):
            begun.serve(**options)
