"""Fixtures for the tests of the transport."""

from __future__ import annotations

import contextlib
import gc
import shutil
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from labkit.engines.dask.transport.endpoint import Endpoint
from labkit.engines.dask.transport.frames import FrameCodec
from tests.engines.dask.transport.helpers import KINDS, introduce


@pytest.fixture
def make(share: bool) -> Iterator[Callable[..., Endpoint]]:
    """Makes endpoints that are closed after the test. `share`, a fixture of the module: whether they use shared memory."""
    with contextlib.ExitStack() as stack:

        def make(name: str, incarnation: int = 0, **options: Any) -> Endpoint:
            endpoint = Endpoint(name, incarnation, FrameCodec(KINDS), **{"share": share} | options)
            stack.callback(endpoint.close)
            return endpoint

        yield make
    gc.collect(1)  # endpoints and what they received are in reference cycles: some tests leave 100 MB


@pytest.fixture(scope="session")
def tls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ssl.SSLContext]:
    """Contexts with a self-signed certificate, verified on both sides."""
    if shutil.which("openssl") is None:
        pytest.fail("This test makes a certificate: install the `openssl` command.")
    folder: Path = tmp_path_factory.mktemp("tls")
    key, certificate = str(folder / "key.pem"), str(folder / "certificate.pem")
    command = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    subprocess.run(
        ["openssl", *command.split(), "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
        check=True,
        capture_output=True,
    )
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificate)
    client = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=certificate)
    for context in (server, client):
        context.load_cert_chain(certificate, key)
    server.verify_mode = ssl.CERT_REQUIRED
    return {"server_context": server, "client_context": client}


@pytest.fixture
def pair(make: Callable[..., Endpoint]) -> tuple[Endpoint, Endpoint]:
    one, two = make("one"), make("two")
    introduce(one, two)
    return one, two
