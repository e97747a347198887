"""Certificates for tests, made once by `tests/certificates/make.sh`: placed where a test may replace them.

Invariant: a placed key is readable by its owner only (as root: and by the agents' group), whatever modes the checkout has.
"""

from __future__ import annotations

import os
from pathlib import Path

from eslurm.transport.tls_options import TlsFiles
from tests.kits.daemons import AGENT_UID

KEPT = Path(__file__).parents[1] / "certificates"
CERTIFICATE, KEY, CA = "host.pem", "host.key", "authorities.pem"


def place(
    directory: Path,
    pair: str = "server",
    ca: str = "ca",
    *,
    required: bool = False,
    name: str = "",
    only_calls: bool = False,
) -> TlsFiles:
    """The pair and the authorities (a+b) of these names, in `directory`."""
    replace_file(directory / CA, b"".join((KEPT / f"{one}.pem").read_bytes() for one in ca.split("+")))
    replace_pair(directory, pair)
    return TlsFiles(directory / CA, directory / CERTIFICATE, directory / KEY, required, name, only_calls)


def replace_pair(directory: Path, pair: str) -> None:
    """Another pair in the place of the one that is there, as an administrator would put it."""
    replace_file(directory / CERTIFICATE, (KEPT / f"{pair}.pem").read_bytes())
    replace_file(directory / KEY, (KEPT / f"{pair}.key").read_bytes())


def replace_file(path: Path, content: bytes) -> None:
    """At once, with a file of its own."""
    fresh = path.with_suffix(".new")
    fresh.touch(mode=0o600)
    fresh.write_bytes(content)
    if os.geteuid() == 0:
        os.chown(fresh, 0, AGENT_UID)
        fresh.chmod(0o640)
    os.replace(fresh, path)


def words(files: TlsFiles) -> list[str]:
    """The options that tell a daemon of them."""
    found = [
        "--tls-ca",
        str(files.ca),
        "--tls-certificate",
        str(files.certificate),
        "--tls-key",
        str(files.key),
    ]
    found += ["--tls-require-client-certificate"] * files.require_client_certificate
    return found + (["--tls-name", files.name] if files.name else [])
