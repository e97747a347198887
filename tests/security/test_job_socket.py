"""The job's socket is open to all users of the host: another user reaches no job through it, and holds up no one."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from eslurm.api.methods import RESIZE_JOB
from eslurm.api.unix_client import Client
from eslurm.ports.api import ApiRefused
from eslurm.v1 import controller_pb2 as pb
from esnoded.job_lines import LINE_BYTES_MAX
from tests.integration.conftest import running
from tests.kits.cluster import LiveCluster
from tests.kits.daemons import PATIENCE_S
from tests.security.stranger import as_stranger, finish, spawn

FOREVER = "while :; do sleep 0.05; done"


@pytest.fixture
def cluster(as_root: None) -> Iterator[LiveCluster]:
    with running(nodes=2, agents=1, satellites=0) as cluster:
        yield cluster


def find_socket(cluster: LiveCluster) -> str:
    [path] = cluster.directory.glob("agent0/**/job.sock")
    return str(path)


def dial(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(PATIENCE_S)
    connection.connect(path)
    return connection


def heard(connection: socket.socket) -> bytes:
    """The bytes that have come back; none on a connection that was reset."""
    try:
        return connection.recv(256)
    except ConnectionError:
        return b""


def ask(path: str, *lines: bytes) -> str:
    """All that comes back on one connection that sends these lines, and no more."""
    with dial(path) as connection:
        for line in lines:
            connection.sendall(line + b"\n")
        connection.shutdown(socket.SHUT_WR)
        said = b""
        while more := connection.recv(65_536):
            said += more
    return said.decode()


def test_another_user_s_job_is_not_to_be_had(cluster: LiveCluster) -> None:
    """Goal: in each verb, in the words of a job that does not exist; and the job goes on as it was."""
    job_id = cluster.submit("-t", "10", "-N1", ":", "-N1", "-w", "cn0002", "--wrap", FOREVER)
    cluster.reaches(job_id, "RUNNING")
    path = find_socket(cluster)
    lines = [
        f"{verb} job={job_id}{words}".encode()
        for verb, words in (
            ("show", ""),
            ("finish-part", " part=1 kill"),
            ("extend", " by=1"),
            ("grow", " by=1"),
            ("shrink", " nodes=cn0002"),
            ("set-dependency", " on="),
        )
    ]
    said = as_stranger(cluster.work, lambda: ask(path, b"hello", *lines)).splitlines()
    assert said[:3] == ["protocol=1", "jobs=", "ok"]
    assert [line.split()[:2] for line in said[3:]] == [["error", "NOT_FOUND"]] * 6
    info = cluster.job(job_id)
    assert (info.state, info.time_limit_s, [part.nodes for part in info.parts]) == ("RUNNING", 600, [1, 1])


def test_another_user_changes_no_nodes_of_a_job(cluster: LiveCluster) -> None:
    """Goal: by the controller's own socket, too; neither a node is taken from the job, nor one given to it."""
    job_id = cluster.submit("-t", "10", "-N2", "--wrap", FOREVER)
    cluster.reaches(job_id, "RUNNING")

    def attack() -> str:
        said = []
        for how in (
            {"by_nodes": 1},
            {"by_nodes": -1},
            {"nodes": ["cn0001"]},
            {"without": ["cn0002", "x" * 300]},
        ):
            with Client(str(cluster.socket), PATIENCE_S) as client:
                request = pb.ResizeJobRequest(job=pb.JobRef(job_id=job_id), **how)
                try:
                    client.call(RESIZE_JOB, request, PATIENCE_S)
                except ApiRefused as refused:
                    said.append(str(refused))
        return "\n".join(said)

    said = as_stranger(cluster.work, attack).splitlines()
    assert len(said) == 4 and all("belongs to root" in line for line in said[:3]) and "nodelist" in said[3]
    info = cluster.job(job_id)
    assert (info.state, info.nodes, info.growth_id, info.reason_text) == ("RUNNING", 2, 0, "")


def test_a_stranger_s_flood_and_garbage_keep_no_job_out(cluster: LiveCluster) -> None:
    """Goal: while another user holds all connections that it gets, and sends garbage, a job of a user is answered."""
    path = find_socket(cluster)

    def attack() -> str:
        held = []
        for number in range(64):
            connection = dial(path)
            # One that is refused is closed, perhaps before this has been sent.
            with contextlib.suppress(ConnectionError):
                connection.sendall((b"hello\n", b"\0" * LINE_BYTES_MAX * 2, b"show job=%\n")[number % 3])
            held.append(connection)
        refused = sum(b"EXHAUSTED" in heard(one) for one in held)
        Path("attacked").touch()
        with open("over") as waiting:
            waiting.read()
        return str(refused)

    os.mkfifo(cluster.work / "over")
    (cluster.work / "over").chmod(0o666)
    pid, read_fd = spawn(cluster.work, attack)
    cluster.until(lambda: (cluster.work / "attacked").exists(), "the attacker has its connections")
    assert ask(path, b"hello").endswith("ok\n")
    (cluster.work / "over").write_text("")
    assert int(finish(pid, read_fd)) > 0


def test_another_user_lends_no_core_of_a_job(cluster: LiveCluster) -> None:
    """Goal: a stranger's reports about a job that cooperates are those about no job at all, and lend nothing of it."""
    job_id = cluster.submit("-t", "10", "-c", "4", "-w", "cn0001", "--cooperate=full", "--wrap", FOREVER)
    cluster.reaches(job_id, "RUNNING")
    borrower = cluster.submit("-c", "2", "-w", "cn0001", "--borrow=requeue", "--wrap", "true")
    path = find_socket(cluster)
    lines = [
        f"report job={job_id} idle=4".encode(),
        b"report idle=4",
        f"report job={job_id} node=cn0001 worker=1 idle=2 remaining=1".encode(),
        f"report job={job_id} idle=0 wait=1".encode(),
    ]
    said = as_stranger(cluster.work, lambda: ask(path, *lines)).splitlines()
    assert [line.split()[:2] for line in said] == [["error", "NOT_FOUND"]] * 4
    assert (cluster.job(job_id).cores.idle, cluster.job(borrower).state) == (0, "PENDING")


def test_hostile_reports_of_a_job_end_no_agent(cluster: LiveCluster) -> None:
    """Goal: each is refused by name, the job and its agent go on, and the job can still lend what it has."""
    job_id = cluster.submit("-t", "10", "-c", "4", "-w", "cn0001", "--cooperate=full", "--wrap", FOREVER)
    cluster.reaches(job_id, "RUNNING")
    path = find_socket(cluster)
    hostile = [
        "idle=5",
        "idle=-1",
        "idle=99999999999999999999",
        "idle=1 worker=4096",
        "idle=1 worker=x",
        "idle=1 remaining=1e9",
        "idle=1 wait=100000",
        "idle=%00",
        "node=../../etc idle=1",
        "idle=1 idle=2",
        "idle=1 excluded=0",
    ]
    said = ask(path, *[f"report job={job_id} {words}".encode() for words in hostile]).splitlines()
    refused = [line.split()[:2] for line in said]
    assert len(refused) == len(hostile) and all(word == "error" for word, _ in refused), said
    assert {code for _, code in refused} <= {"INVALID", "NOT_FOUND"}
    crowd = [f"report job={job_id} idle=0 worker={number}".encode() for number in range(200)]
    assert ask(path, *crowd).count("ok\n") == len(crowd)
    assert "idle=4\n" in ask(path, f"report job={job_id} idle=4 remaining=10".encode())
    borrower = cluster.submit("-c", "2", "-w", "cn0001", "--borrow=requeue", "--wrap", "true")
    assert cluster.end(borrower) == "COMPLETED"
    assert cluster.job(job_id).state == "RUNNING"
