"""Certificates of a federation's etcd, as Python's own TLS sees them."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from escli.local.cells.certificates import Authority, Pair


def context(role: ssl._SSLMethod, trusted: Authority, pair: Pair | None, directory: Path) -> ssl.SSLContext:
    made = ssl.SSLContext(role)
    made.verify_flags |= ssl.VERIFY_X509_STRICT
    made.load_verify_locations(cadata=trusted.pem.decode())
    made.verify_mode = ssl.CERT_REQUIRED
    if pair is not None:
        (directory / "pem").write_bytes(pair.certificate + pair.key)
        made.load_cert_chain(directory / "pem")
    return made


def shake(server: ssl.SSLContext, client: ssl.SSLContext) -> bool:
    """Check whether both ends accept each other."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(down, up, server_hostname="127.0.0.1"),
        server.wrap_bio(up, down, server_side=True),
    ]
    for _ in range(9):
        for end in list(ends):
            try:
                end.do_handshake()
                ends.remove(end)
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:
                return False
    return not ends


@pytest.fixture
def authorities() -> tuple[Authority, Authority]:
    return Authority("cells"), Authority("members")


def test_cells_and_their_etcd_know_each_other(
    authorities: tuple[Authority, Authority], tmp_path: Path
) -> None:
    cells, members = authorities
    etcd, alpha = cells.issue("etcd1", "server"), cells.issue("alpha", "client")
    server = context(ssl.PROTOCOL_TLS_SERVER, cells, etcd, tmp_path)
    assert shake(server, context(ssl.PROTOCOL_TLS_CLIENT, cells, alpha, tmp_path))
    assert not shake(server, context(ssl.PROTOCOL_TLS_CLIENT, cells, None, tmp_path))
    stranger = Authority("cells").issue("alpha", "client")
    assert not shake(server, context(ssl.PROTOCOL_TLS_CLIENT, cells, stranger, tmp_path))
    # A cell's certificate opens no member's port, and a cell cannot pass for the etcd.
    peers = context(ssl.PROTOCOL_TLS_SERVER, members, members.issue("etcd1", "both"), tmp_path)
    assert not shake(peers, context(ssl.PROTOCOL_TLS_CLIENT, members, alpha, tmp_path))
    impostor = context(ssl.PROTOCOL_TLS_SERVER, cells, alpha, tmp_path)
    assert not shake(impostor, context(ssl.PROTOCOL_TLS_CLIENT, cells, alpha, tmp_path))


def test_members_know_each_other(authorities: tuple[Authority, Authority], tmp_path: Path) -> None:
    members = authorities[1]
    first, second = members.issue("etcd1", "both"), members.issue("etcd2", "both")
    server = context(ssl.PROTOCOL_TLS_SERVER, members, first, tmp_path)
    assert shake(server, context(ssl.PROTOCOL_TLS_CLIENT, members, second, tmp_path))
