"""Another uid on the controller's host: what is root's is not to be had, and each try leaves a line in the audit log."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from eslurm.api.methods import BY_NAME
from eslurm.api.unix_client import Client
from eslurm.ports.api import Status
from eslurm.transport.framing import FLAG_RETRY, REPLY_HEADER, REQUEST_HEADER, VERSION
from eslurm.v1 import controller_pb2 as pb
from tests.integration.conftest import running
from tests.kits.cluster import LiveCluster
from tests.kits.commands import become_user
from tests.kits.daemons import PATIENCE_S

SECTIONS = '[privacy]\nprivate = ["jobs", "usage", "users", "reservations", "configuration"]'
REQUEST_ID = bytes(range(100, 116))


@pytest.fixture
def cluster(as_root: None) -> Iterator[LiveCluster]:
    with running(nodes=1, agents=1, satellites=0, sections=SECTIONS) as cluster:
        yield cluster


def as_stranger(cluster: LiveCluster, work: Callable[[], bytes]) -> bytes:
    """Call `work` in a process of another uid; the result is that of `work`."""
    read_fd, write_fd = os.pipe()
    pid = os.fork()
    if not pid:
        said = b"nothing was said"
        try:
            with open(os.devnull, "wb") as null:
                become_user(cluster.work, null, null)
            said = work()
        except OSError as error:
            said = (error.strerror or "").encode()
        finally:
            os.write(write_fd, said)
            os._exit(0)
    os.close(write_fd)
    with open(read_fd, "rb") as answer:
        said = answer.read()
    os.waitpid(pid, 0)
    return said


def raw_call(cluster: LiveCluster, method: str, request: bytes) -> bytes:
    """One call that claims to be a retry of root's; its status and body."""
    frame = REQUEST_HEADER.pack(
        len(request), VERSION, FLAG_RETRY, BY_NAME[method].number, 1, 60_000, REQUEST_ID
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(PATIENCE_S)
        connection.connect(str(cluster.socket))
        connection.sendall(frame + request)
        data = b""
        while (
            len(data) < REPLY_HEADER.size or len(data) < REPLY_HEADER.size + REPLY_HEADER.unpack_from(data)[0]
        ):
            data += connection.recv(65536)
    return bytes([REPLY_HEADER.unpack_from(data)[2]]) + data[REPLY_HEADER.size :]


def test_root_s_answers_jobs_and_log_are_root_s(cluster: LiveCluster) -> None:
    job = pb.JobRequest(
        name="xylophone", script=b"#!/bin/sh\nsleep 600\n", work_dir=str(cluster.work), held=True
    )
    submission = pb.SubmitRequest(jobs=[job])
    with Client([str(cluster.socket)], PATIENCE_S) as client:
        reply = client.call(BY_NAME["Submit"], submission, PATIENCE_S, request_id=REQUEST_ID)
    (roots,) = reply.job_ids
    trace = cluster.job(roots).trace
    assert trace and trace != REQUEST_ID.hex()

    # Root's request id, claimed as a retry: a job of one's own, and no error inside for another method.
    answered = as_stranger(cluster, lambda: raw_call(cluster, "Submit", submission.SerializeToString()))
    assert Status(answered[0]) is Status.OK
    (mine,) = pb.SubmitReply.FromString(answered[1:]).job_ids
    assert mine != roots and cluster.job(mine).uid == 65534
    cancel = pb.CancelRequest(jobs=[pb.JobRef(job_id=roots)]).SerializeToString()
    answered = as_stranger(cluster, lambda: raw_call(cluster, "Cancel", cancel))
    assert Status(answered[0]) is Status.OK
    (problem,) = pb.ChangeReply.FromString(answered[1:]).problems
    assert problem.code == "not_found" and cluster.job(roots).state == "PENDING"

    # Commands: nothing of root's is shown, changed or waited for; one's own works.
    queue = cluster.run_as_user("esqueue", "-h", "-o", "%i %u")
    assert queue.out.splitlines() == [f"{mine} nobody"]
    for command, *words in (
        ("escancel", str(roots)),
        ("esctl", "release", str(roots)),
        ("esctl", "show", "job", str(roots)),
        ("eswhy", str(roots)),
        ("esctl", "takeover"),
        ("esctl", "audit"),
        ("esctl", "log", "export"),
        ("esctl", "drain", "cn0001", "reason=x"),
        ("esctl", "show", "config"),
        ("esctl", "user", "add", "mallory"),
    ):
        ran = cluster.run_as_user(command, *words)
        assert ran.code and ran.err, (command, words, ran)
    assert cluster.job(roots).state == "PENDING"
    assert not cluster.run_as_user("escancel", str(mine)).code

    # The file is not to be read, and each try is in it.
    (path,) = cluster.socket.parent.glob("audit*.log")
    assert b"Permission denied" in as_stranger(cluster, path.read_bytes)
    wanted = {"Cancel", "Hold", "UpdateNodes", "Audit", "ExportLog", "ChangePolicies"}

    def all_lines() -> list[dict[str, Any]] | None:
        """A thread writes them, a moment after the answers."""
        found = cluster.run("esctl", "audit", "--user", "65534", "--json").out.splitlines()
        lines = [json.loads(line) for line in found]
        return lines if {one["method"] for one in lines if one["result"] == "refused"} >= wanted else None

    lines = cluster.until(all_lines, "each refusal is in the audit log")
    assert all(one["uid"] == 65534 and one["identified"] == "socket" for one in lines)
