"""A user who asks for more than anybody may have: refused, at once, and the cluster goes on for everybody else."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eslurm.api.methods import BY_NAME
from eslurm.api.unix_client import Client
from eslurm.ports.api import ApiRefused
from eslurm.telemetry.vitals import rss_bytes
from eslurm.transport.framing import NO_REQUEST_ID, REPLY_HEADER, REQUEST_HEADER, VERSION
from eslurm.v1 import controller_pb2 as pb
from tests.integration.conftest import running
from tests.kits.cluster import LiveCluster
from tests.kits.daemons import PATIENCE_S
from tests.security.stranger import as_stranger, finish, spawn

MIB = 1024 * 1024
CONNECTIONS = 300


@pytest.fixture(scope="module")
def live() -> Iterator[LiveCluster]:
    if os.geteuid() != 0:
        pytest.skip("NOT VERIFIED: only root can attack as another user: run it as root")
    with running(nodes=2, agents=1, satellites=0, policy={"pending_jobs_user_max": 20}) as cluster:
        yield cluster


def calls(live: LiveCluster, method: str, *requests: Any) -> Callable[[], str]:
    """Make each of these calls; the result has one line for each answer, OK for a call that was taken."""

    def call() -> str:
        client = Client([str(live.socket)], PATIENCE_S)
        said = []
        for request in requests:
            try:
                client.call(BY_NAME[method], request, PATIENCE_S)
                said.append("OK")
            except ApiRefused as refused:
                said.append(refused.text)
        return "\n".join(said)

    return call


def job(live: LiveCluster, **fields: object) -> pb.SubmitRequest:
    given: dict[str, Any] = {"script": b"#!/bin/sh\ntrue\n", "work_dir": str(live.work), **fields}
    return pb.SubmitRequest(jobs=[pb.JobRequest(**given)])


def controller_rss(live: LiveCluster) -> int:
    process = live.daemons["esctld"].process
    assert process is not None
    return rss_bytes(Path(f"/proc/{process.pid}"))


def test_a_submission_that_no_link_takes_ends_no_controller(live: LiveCluster) -> None:
    """Goal: forty arguments of 100 kB are refused, and the leader is the same process afterwards."""
    before = live.call("Ping", pb.PingRequest()).started_us
    said = as_stranger(live.work, calls(live, "Submit", job(live, arguments=["x" * 100_000] * 40)))
    assert "longer than 262144 bytes" in said
    # Nearly as large as it may be: it is launched, and runs.
    accepted = as_stranger(
        live.work, calls(live, "Submit", job(live, arguments=["x" * 100_000, "y" * 100_000]))
    )
    assert accepted == "OK"
    live.until(lambda: not live.call("Jobs", pb.JobsRequest()).jobs, "it has run")
    assert live.call("Ping", pb.PingRequest()).started_us == before


def test_a_million_references_cost_nothing(live: LiveCluster) -> None:
    """Goal: refused by the header, or by a count that ends early, with no memory and no time of the controller's."""
    refs = [pb.JobRef(job_id=number) for number in range(1, 100_001)]
    rss = controller_rss(live)
    said = as_stranger(
        live.work,
        calls(
            live,
            "Cancel",
            pb.CancelRequest(jobs=refs),
            pb.CancelRequest(jobs=refs * 10),
            pb.CancelRequest(jobs=refs[:10_001]),
            pb.CancelRequest(jobs=refs[:10_000]),
        ),
    ).splitlines()
    assert "more than 20000 parts" in said[0]
    assert "Cancel takes at most 1048576" in said[1]
    assert said[2] == "Cancel: jobs has 10001 entries, at most 10000 go in one call: make several"
    assert said[3] == "OK"
    assert controller_rss(live) - rss < 50 * MIB


def test_one_user_does_not_fill_the_queue(live: LiveCluster) -> None:
    held = [job(live, held=True)] * 21
    said = as_stranger(live.work, calls(live, "Submit", *held)).splitlines()
    assert said[:20] == ["OK"] * 20 and "has 20 waiting jobs, 1 would come, and 20 may wait" in said[20]
    root = live.submit("-H", "--wrap", "true")
    live.do("escancel", str(root))
    live.do("escancel", "--user", "nobody")


def test_nobody_waits_for_the_steps_of_others(live: LiveCluster) -> None:
    mine = live.wrap("sleep 60")
    live.reaches(mine, "RUNNING")
    said = as_stranger(
        live.work, calls(live, "WaitStep", pb.WaitStepRequest(job_id=mine, step=0, timeout_s=1))
    )
    assert said.startswith(f"job {mine} belongs to root: only")
    live.do("escancel", str(mine))


def test_idle_connections_of_one_user_keep_nobody_out(live: LiveCluster) -> None:
    """Goal: root and operators are served while one uid holds all that it may. Method: 300 connections that say nothing."""
    release_r, release_w = os.pipe()

    def hoard() -> str:
        ping = REQUEST_HEADER.pack(0, VERSION, 0, 1, 1, 20_000, NO_REQUEST_ID)
        held = []
        for _ in range(CONNECTIONS):
            one = socket.socket(socket.AF_UNIX)
            one.settimeout(PATIENCE_S)
            one.connect(str(live.socket))
            held.append(one)
        served = 0
        for one in held:
            try:
                one.sendall(ping)
                answer = one.recv(REPLY_HEADER.size, socket.MSG_WAITALL)
            except OSError:
                continue
            # A refusal of the connection comes on stream 0.
            served += len(answer) == REPLY_HEADER.size and REPLY_HEADER.unpack(answer)[4] == 1
        os.write(ready_w, b"x")
        os.read(release_r, 1)
        return str(served)

    ready_r, ready_w = os.pipe()
    pid, answer = spawn(live.work, hoard)
    os.close(ready_w)
    try:
        assert os.read(ready_r, 1), "it has come so far"
        for _ in range(20):
            assert live.run("esctl", "ping").code == 0
        with socket.socket(socket.AF_UNIX) as own:
            own.connect(str(live.socket))
        others = live.run("esqueue")
        assert others.code == 0
    finally:
        os.write(release_w, b"x")
        served = finish(pid, answer)
        for descriptor in (release_r, release_w, ready_r):
            os.close(descriptor)
    assert 100 < int(served) < 200, "its part, and no more"


def test_idle_connections_from_elsewhere_keep_nobody_out(live: LiveCluster) -> None:
    """Goal: 1,500 connections to the port of the links take neither the door nor the links; soon most are closed."""
    host, _, port = live.endpoint.rpartition(":")

    def hoard() -> str:
        held = []
        for _ in range(1_500):
            one = socket.socket()
            one.settimeout(PATIENCE_S)
            one.connect((host, int(port)))
            held.append(one)
        os.write(ready_w, b"x")
        deadline_s = time.monotonic() + PATIENCE_S
        living = held
        while len(living) > 64 and time.monotonic() < deadline_s:
            living = [one for one in living if not _ended(one)]
            time.sleep(0.05)
        return f"{len(held)} {len(living)}"

    ready_r, ready_w = os.pipe()
    pid, answer = spawn(live.work, hoard)
    os.close(ready_w)
    try:
        assert os.read(ready_r, 1), "it has come so far"
        assert live.run("esctl", "ping").code == 0
        live.reaches(live.user_job("true"), "COMPLETED")
    finally:
        said = finish(pid, answer)
        os.close(ready_r)
    came, left = map(int, said.split())
    assert came >= 512 and left <= 64


def _ended(one: socket.socket) -> bool:
    one.setblocking(False)
    try:
        while one.recv(4096):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True
