"""Credentials of a local cluster: a certificate for this cluster only, and a token for its dashboard.

All connections of a local cluster's Dask processes (scheduler, workers, nannies, client) use mutual TLS. A peer without
the private key is rejected during the TLS handshake, before any of its bytes reach Dask. The key is generated when the
cluster starts, and exists only in the memory of its processes. It is sent to a new process through a pipe, never in a
command line or an environment variable. Python's `ssl` reads keys only from files. So the key is written to an
anonymous file in memory (`memfd`) on Linux, and elsewhere to a file of mode 0600 that exists for about a millisecond.

P-256 is used instead of the RSA of `Security.temporary`, because generating a 2048-bit RSA key takes 50 to 300 ms, and
a handshake with RSA takes 1 ms more. Each process creates its two TLS contexts once. Dask would create one for every
server, connection pool and client: 5 ms each, about thirty in a client with six processes.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import secrets
import ssl
import tempfile
from collections.abc import Iterator
from typing import Any

from distributed.security import Security

from ....files import temporary

VALID = datetime.timedelta(days=3650)  # a cluster may run for long; the key is not used after its end
SKEW = datetime.timedelta(days=1)  # keeps the certificate valid if the clock is set back


class LocalSecurity(Security):
    """One certificate for all of Dask's roles, with TLS contexts that are created once per process.

    `certificate`, `key`: in PEM format. A pickled copy contains both, and creates new contexts.
    """

    def __init__(self, certificate: str, key: str) -> None:
        own: dict[str, Any] = {f"tls_{role}_cert": certificate for role in ("client", "scheduler", "worker")}
        own |= {f"tls_{role}_key": key for role in ("client", "scheduler", "worker")}
        super().__init__(
            require_encryption=True, tls_ca_file=certificate, tls_min_version=ssl.TLSVersion.TLSv1_3, **own
        )
        self._certificate, self._key = certificate, key
        self._contexts: dict[ssl.Purpose, ssl.SSLContext] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return LocalSecurity, (self._certificate, self._key)

    def get_connection_args(self, role: str) -> dict[str, Any]:
        """Dask's hook: return the arguments of outgoing connections."""
        return {**self.get_listen_args(role, ssl.Purpose.SERVER_AUTH), "extra_conn_args": self.extra_conn_args}

    def get_listen_args(self, role: str, purpose: ssl.Purpose = ssl.Purpose.CLIENT_AUTH) -> dict[str, Any]:
        """Dask's hook: return the arguments of a listener."""
        context = self._contexts.get(purpose)
        if context is None:
            context = self._contexts[purpose] = self._new_context(purpose)
        return {"ssl_context": context, "require_encryption": True}

    def _new_context(self, purpose: ssl.Purpose) -> ssl.SSLContext:
        context = ssl.create_default_context(purpose, cadata=self._certificate)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False  # hosts are given by address; the certificate alone authorizes a peer
        context.verify_mode = ssl.CERT_REQUIRED  # servers and clients need a certificate
        if purpose is ssl.Purpose.CLIENT_AUTH:
            context.num_tickets = 0  # no session is resumed
        with _private_file(f"{self._key}{self._certificate}".encode()) as path:
            context.load_cert_chain(path)
        return context


@contextlib.contextmanager
def _private_file(content: bytes) -> Iterator[str]:
    """Yield the path of a temporary file with `content` that only this user can read."""
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        fd = os.memfd_create("labkit-key", os.MFD_CLOEXEC)
        try:
            os.write(fd, content)
            yield f"/proc/self/fd/{fd}"
        finally:
            os.close(fd)
        return
    fd, path = tempfile.mkstemp(dir=temporary.program_folder())  # mode 0600
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(content)
        yield path
    finally:
        os.unlink(path)


def new_security() -> LocalSecurity:
    """Return new credentials for one cluster. Processes with these credentials trust each other, and no other process."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "labkit")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + VALID)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    public = certificate.public_bytes(serialization.Encoding.PEM).decode()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    return LocalSecurity(public, private)


def new_token() -> str:
    """Return a new token for a dashboard's address: 128 random bits as text."""
    return secrets.token_urlsafe(16)
