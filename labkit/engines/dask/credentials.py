"""Credentials of a local cluster: a certificate for this cluster only, and a token for its dashboard.

All connections of a local cluster's Dask processes (scheduler, workers, nannies, client) use TLS, in both directions with a
certificate: a peer without the private key is refused during the handshake, before any of its bytes reach Dask. The key is
made when the cluster starts and exists in the memory of its processes; it reaches a new process through a pipe, never
through a command line or an environment. While a process loads the key it is for about a millisecond in a file, mode 0600
in a folder of mode 0700, because Python's `ssl` reads keys from files only.

P-256 instead of `Security.temporary`'s RSA: 2048-bit RSA keys take 50 to 300 ms to make, and a handshake a millisecond more.
"""

from __future__ import annotations

import datetime
import os
import secrets
import stat
import tempfile
from pathlib import Path

import dask
from distributed.security import Security

__all__ = ["new_security", "new_token", "private_folder"]

VALID = datetime.timedelta(days=3650)  # a cluster may be left running; nothing uses the key after it has ended
SKEW = datetime.timedelta(days=1)  # a clock that is set back must not make the certificate one of the future


def new_security() -> Security:
    """Credentials for one cluster: every process that has them trusts the others, and nothing else."""
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
    roles = ("client", "scheduler", "worker")
    own = {f"tls_{role}_{what}": text for role in roles for what, text in (("cert", public), ("key", private))}
    return Security(require_encryption=True, tls_ca_file=public, **own)


def new_token() -> str:
    """A token for a dashboard's address: 128 random bits as text."""
    return secrets.token_urlsafe(16)


def private_folder() -> str:
    """A folder for the scratch space of Dask's processes, which only this user can read or change.

    Dask puts the folder into every worker's `sys.path`, and its own default, `dask-scratch-space` in the system's folder
    for temporary files, may belong to another user, who could then put modules there. The folder is the same for all
    clusters of a user, so that Dask finds and removes what killed processes have left. Dask's setting
    `temporary-directory` says where it is made.
    """
    base = Path(dask.config.get("temporary-directory", None) or tempfile.gettempdir())
    if not hasattr(os, "getuid"):  # Windows: the folder for temporary files is the user's own
        return str(base)
    folder = base / f"labkit-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            return tempfile.mkdtemp(prefix="labkit-", dir=base)  # made by another user, or open to others
    return str(folder)
