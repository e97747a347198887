"""The files of TLS, and the options that name them, the same for every daemon.

Invariant: either all needed files are named or none; half of them is an error, never a daemon without TLS. Imports nothing
heavy: command lines are read before gRPC is imported.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from eslurm.config.sections import TlsSection

CERTIFICATE = "this host's certificate (PEM), followed by those between it and the authority; default: no TLS"
KEY = "the certificate's private key (PEM, without a password)"
CA = "certificates (PEM) of the authorities whose word is taken for other hosts"
REQUIRE = "serve only who shows a certificate of such an authority"
NAME = "what all daemons' certificates name; default: each names its own host, as others dial it"


class TlsFiles(msgspec.Struct, frozen=True):
    """Paths of the files. Without `certificate` and `key` they are enough to call others, not to listen."""

    ca: Path
    certificate: Path | None = None
    key: Path | None = None
    require_client_certificate: bool = False
    name: str = ""
    """Required name in others' certificates; empty: the dialled host."""
    only_calls: bool = False
    """The pair is a client's: no server needs to take it for its own, and its authority may be another than in `ca`."""


def add_tls_options(parser: ArgumentParser) -> None:
    """The options of a daemon that listens, or calls others, with TLS."""
    parser.add_argument("--tls-certificate", type=Path, default=None, metavar="FILE", help=CERTIFICATE)
    parser.add_argument("--tls-key", type=Path, default=None, metavar="FILE", help=KEY)
    parser.add_argument("--tls-ca", type=Path, default=None, metavar="FILE", help=CA)
    parser.add_argument("--tls-require-client-certificate", action="store_true", help=REQUIRE)
    parser.add_argument("--tls-name", default="", metavar="NAME", help=NAME)


def tls_files(
    given: Any, section: TlsSection | None = None, base: Path | None = None, *, listens: bool = True
) -> TlsFiles | None:
    """The files from the options, else from the configuration, relative to `base`. None: no TLS.

    A process that only calls (not `listens`) needs a certificate of its own where one is required.

    `given` has the options as attributes: tls_certificate, tls_key, tls_ca, tls_require_client_certificate, tls_name.
    Raises ValueError that names the missing one.
    """
    found: dict[str, Path] = {}
    for name in ("certificate", "key", "ca"):
        path: Path | None = getattr(given, f"tls_{name}")
        configured: str = getattr(section, name) if section is not None else ""
        if path is None and configured:
            path = (base or Path()) / configured
        if path is not None:
            found[name] = path
    is_required: bool = given.tls_require_client_certificate
    peers_name: str = given.tls_name
    if section is not None:
        is_required = is_required or section.require_client_certificate
        peers_name = peers_name or section.name
    if not (found or is_required or peers_name):
        return None
    is_whole = listens or is_required
    missing = [
        name for name in ("certificate", "key", "ca") if name not in found and (is_whole or name == "ca")
    ]
    if missing:
        raise ValueError(
            f"--tls-{missing[0]} is missing (in the configuration: tls.{missing[0]}): TLS needs a certificate, its key"
            " and the authorities' certificates; without any of them there is none"
        )
    if not is_whole:
        return TlsFiles(found["ca"], name=peers_name)
    return TlsFiles(found["ca"], found["certificate"], found["key"], is_required, peers_name)
