"""The shared store that a configuration names.

What is wrong with these files never ends a controller: its federation says so, and the cluster goes on.
"""

from __future__ import annotations

from pathlib import Path

from eslurm.config.federation import FederationSection
from eslurm.federation.etcd.calls import EtcdSettings
from eslurm.federation.etcd.store import EtcdStore
from eslurm.ports.kv import KeyValueStore, KvDenied
from eslurm.security.files import UnsafeFile, read_private
from eslurm.transport.tls import Tls, TlsError
from eslurm.transport.tls_options import TlsFiles


def store_of(section: FederationSection, base: Path) -> KeyValueStore:
    """The store, not yet opened; files are relative to `base`. Raises `KvDenied` that names the file that cannot be used."""

    def password() -> str:
        path = base / section.password_file
        try:
            return read_private(path).decode().strip()
        except (UnsafeFile, UnicodeDecodeError) as error:
            raise KvDenied(f"federation.password_file: {error}") from None

    try:
        tls = Tls(_files(section, base)) if section.ca else None
        settings = EtcdSettings(
            tuple(section.endpoints), tls, section.user, password, probe=f"/eslurm/{section.name}/cells/"
        )
        return EtcdStore(settings)
    except (TlsError, ValueError, OSError) as error:
        raise KvDenied(f"federation: {error}") from None


def _files(section: FederationSection, base: Path) -> TlsFiles:
    if not section.certificate:
        return TlsFiles(base / section.ca)
    return TlsFiles(base / section.ca, base / section.certificate, base / section.key, only_calls=True)
