"""A federation of root's on one machine (`eslurm up --cells`): all users of the host reach its etcd, none is served."""

from __future__ import annotations

import json
import os
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from escli.local.cells.certificates import Authority, Pair
from tests.integration.test_up_cells import Federation, federation, processes_below
from tests.security.stranger import as_stranger
from tests.security.test_users_of_daemons import KEPT_BY_ROOT, daemons_of

__all__ = ["federation"]
pytestmark = [pytest.mark.usefixtures("as_root"), pytest.mark.timeout(300)]
TIMEOUT_S = 20.0
REQUESTS = {
    # Read all keys; what members ask each other.
    "listen": b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n",
    "peer": b"GET /members HTTP/1.1\r\nHost: x\r\n\r\n",
}


def denied(what: Callable[[], object]) -> bool:
    try:
        what()
    except PermissionError:
        return True
    return False


def answer_of(listen: str, request: bytes, pair: Pair | None, work: Path, *, tls: bool = True) -> bytes:
    """The answer to one request; empty when it is refused."""
    host, port = listen.split(":")
    with socket.create_connection((host, int(port)), TIMEOUT_S) as plain:
        if not tls:
            plain.sendall(request)
            return plain.recv(4096)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        if pair is not None:
            (work / "pair.pem").write_bytes(pair.certificate + pair.key)
            context.load_cert_chain(work / "pair.pem")
        try:
            with context.wrap_socket(plain) as speaking:
                speaking.sendall(request)
                return speaking.recv(4096)
        except (ssl.SSLError, ConnectionError):
            return b""


def test_another_user_reaches_neither_etcd_nor_its_files(federation: Federation, hostile: Path) -> None:
    federation.up("--cells", "2", "-n", "2")
    directory = federation.directory
    member = json.loads((directory / "federation.json").read_text())["members"][0]
    alpha = directory / "alpha"
    key = Pair((alpha / "etcd.pem").read_bytes(), (alpha / "etcd.key").read_bytes())
    # With a cell's own pair the same question is answered, so the refusals below are of the stranger.
    assert b"health" in answer_of(member["listen"], REQUESTS["listen"], key, federation.work)

    def attack() -> str:
        own = Authority("local: cells").issue("alpha", "both")
        for port, request in REQUESTS.items():
            for pair in (None, own):
                if got := answer_of(member[port], request, pair, hostile):
                    return f"{port} answers {got!r}"
            if b"200" in (got := answer_of(member[port], request, None, hostile, tls=False)):
                return f"{port} answers {got!r} without TLS"
        store = directory / "etcd"
        for path in (directory, store, store / "etcd1", alpha):
            if not denied(lambda path=path: os.listdir(path)):
                return f"{path} is listed"
            if not denied(lambda path=path: (path / "mine").touch()):
                return f"{path} is written to"
        secrets = [directory / "federation.json", alpha / "etcd.key", alpha / "eslurm.toml"]
        secrets += [store / "etcd1.key", store / "etcd1-peer.key", store / "etcd1/member/snap/db"]
        for path in secrets:
            if not denied(path.read_bytes):
                return f"{path} is read"
        return "nothing"

    assert as_stranger(hostile, attack) == "nothing"
    # Another cell's controller is another user, and reads no key but its own.
    beta = (directory / "beta/etcd.key").stat().st_gid
    assert beta not in (0, (alpha / "etcd.key").stat().st_gid)


def test_no_daemon_of_a_federation_is_root(federation: Federation) -> None:
    federation.up("--cells", "2", "-n", "2")
    users: dict[str, set[int]] = {}
    for name in ("alpha", "beta"):
        cell = federation.directory / name
        cluster = json.loads((cell / "cluster.json").read_text())["cluster"]
        found = daemons_of(cluster, cell)
        assert {program for program, *_ in found} >= {"esctld", "essatd", "esnoded"}
        users[name] = {uid for program, uids, _ in found for uid in uids if program not in KEPT_BY_ROOT}
    pid = federation.etcd()["pid"]
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    users["etcd"] = {int(uid) for uid in status["Uid"].split()}
    assert int(status["CapPrm"], 16) == int(status["CapEff"], 16) == 0
    assert status["NoNewPrivs"] == "1" and status["Groups"].strip() == ""
    everyone = [uid for uids in users.values() for uid in uids]
    assert 0 not in everyone
    # None of them is shared by two cells, or with etcd.
    assert len(everyone) == len(set(everyone))
    assert processes_below(federation.directory)
