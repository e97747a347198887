"""A user who may submit says what no honest command says. Nothing of it reaches a node, and no other job feels it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from eslurm.api.methods import BY_NAME
from eslurm.api.unix_client import Client
from eslurm.ports.api import ApiRefused
from eslurm.v1 import controller_pb2 as pb
from tests.integration.conftest import running
from tests.kits.cluster import LiveCluster, is_alive
from tests.kits.commands import become_user
from tests.kits.daemons import PATIENCE_S

GATE = "echo $$ > pid; until test -e gate; do sleep 0.05; done"


@pytest.fixture
def cluster(as_root: None) -> Iterator[LiveCluster]:
    with running(nodes=2, agents=1, satellites=0) as cluster:
        yield cluster


def call_as_stranger(cluster: LiveCluster, method: str, request: object) -> str:
    """The API server's answer to another uid; empty when it took the call."""
    read_fd, write_fd = os.pipe()
    pid = os.fork()
    if not pid:
        text = "nothing was said"
        try:
            with open(os.devnull, "wb") as null:
                become_user(cluster.work, null, null)
            client = Client([str(cluster.socket)], PATIENCE_S)
            try:
                client.call(BY_NAME[method], request, PATIENCE_S)
                text = ""
            except ApiRefused as refused:
                text = refused.text
        finally:
            os.write(write_fd, text.encode())
            os._exit(0)
    os.close(write_fd)
    with open(read_fd) as answer:
        text = answer.read()
    os.waitpid(pid, 0)
    return text


def job(cluster: LiveCluster, **fields: object) -> pb.SubmitRequest:
    given: dict[str, object] = {"script": b"#!/bin/sh\ntrue\n", "work_dir": str(cluster.work), **fields}
    return pb.SubmitRequest(jobs=[pb.JobRequest(**given)])  # type: ignore[arg-type]


def test_nothing_of_it_ends_the_job_of_somebody_else(cluster: LiveCluster) -> None:
    victim = cluster.wrap(GATE)
    cluster.reaches(victim, "RUNNING")
    (pid,) = cluster.wait_lines("pid")
    supervisor = cluster.supervisor("agent0")
    mine = cluster.user_job("until test -e gate; do sleep 0.05; done")
    cluster.reaches(mine, "RUNNING")

    for fields, said in (
        ({"warn_signal": 999, "time_limit_s": 60}, "--signal: 999 is not a signal"),
        ({"umask": 2**31}, "--umask: "),
        ({"work_dir": "/tmp\0"}, "contains a NUL"),
        ({"output": "o\0"}, "contains a NUL"),
        ({"wckey": "a\nb"}, "--wckey: "),
        ({"command": "/a" * 4096}, "--command: "),
        ({"arguments": ["a\0"]}, "contains a NUL"),
        ({"mail_type": "end", "mail_user": "-oQ/tmp"}, "is neither a user nor a plain mail address"),
        ({"mail_type": "end", "mail_user": "|/bin/sh"}, "is neither a user nor a plain mail address"),
        ({"mail_type": "end", "mail_user": "a@b\r\nRCPT TO:<c@d>"}, "--mail-user: "),
        ({"mail_type": "end", "mail_user": ",".join(f"u{n}" for n in range(9))}, "--mail-user: "),
        ({"mail_type": "end", "mail_user": "a" * 300}, "--mail-user: "),
        ({"mail_type": "x" * 200}, "is no event"),
        ({"warn_script": "/a\0", "time_limit_s": 60}, "contains a NUL"),
        (
            {"retry_on": ["timeout"], "time_limit_s": 1, "retries_max": 2**32 - 1},
            "is no number from 1 to 100",
        ),
        ({"retry_on": ["timeout"], "time_limit_s": 1, "retries_max": 100}, "(policy.retries_max)"),
        ({"retry_on": ["timeout"], "time_limit_s": 1, "grow_time_percent": 2**32 - 1}, "is no factor"),
        ({"retry_on": ["time\0out"] * 9999, "time_limit_s": 1}, "is no cause of a retry"),
        ({"retry_on": ["oom"], "max_memory_mib": 2**64 - 1}, "--max-mem"),
    ):
        assert said in call_as_stranger(cluster, "Submit", job(cluster, **fields))
    assert "is not a signal" in call_as_stranger(
        cluster, "Cancel", pb.CancelRequest(jobs=[pb.JobRef(job_id=mine)], signal=999)
    )
    assert "reach: 'all+'" in call_as_stranger(
        cluster, "Cancel", pb.CancelRequest(jobs=[pb.JobRef(job_id=mine)], signal=10, reach="all+")
    )
    # Refused job by job: the call as a whole is taken.
    call_as_stranger(
        cluster, "Cancel", pb.CancelRequest(jobs=[pb.JobRef(job_id=victim)], signal=9, reach="all")
    )
    good: dict[str, object] = {
        "job_id": mine,
        "argv": ["true"],
        "work_dir": "/tmp",
        "cookie": bytes(32),
        "endpoint": "127.0.0.1:9",
    }
    for fields, said in (
        ({"endpoint": "/run/dbus/system_bus_socket"}, "is not ADDRESS:PORT"),
        ({"endpoint": "127.0.0.1:99999"}, "port 99999"),
        ({"endpoint": "127.0.0.1\0:9"}, "is not a numeric address"),
        ({"endpoint": "192.0.2.1:9"}, "no known address"),
        ({"endpoint": "localhost:9"}, "is not a numeric address"),
        ({"cookie": b"c"}, "cookie: 1 bytes instead of 32"),
        ({"argv": ["a", "\0"]}, "contains a NUL"),
        ({"work_dir": "/\0"}, "contains a NUL"),
    ):
        request = pb.CreateStepRequest(**(good | fields))  # type: ignore[arg-type]
        assert said in call_as_stranger(cluster, "CreateStep", request)

    # What is right goes through beside it.
    assert call_as_stranger(cluster, "Submit", job(cluster, warn_signal=64, time_limit_s=60)) == ""
    assert call_as_stranger(cluster, "CreateStep", pb.CreateStepRequest(**good)) == ""  # type: ignore[arg-type]
    assert cluster.supervisor("agent0") == supervisor and is_alive(pid)
    (cluster.work / "gate").touch()
    assert (cluster.end(victim), cluster.end(mine)) == ("COMPLETED", "COMPLETED")
    assert cluster.supervisor("agent0") == supervisor
