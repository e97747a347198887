"""The parts of the recovery benchmark that a wrong figure could come from. Method: known worlds, known verdicts."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.cluster import Cluster, Shape
from benchmarks.recovery.chaos import judge
from benchmarks.recovery.prepared import OWNER, prepare
from benchmarks.recovery.submitters import Acknowledged
from benchmarks.recovery.wires import Wires
from benchmarks.recovery.witness import Sightings, Witness
from eslurm.core.state.cluster import State
from eslurm.ports.store import AccountingQuery
from eslurm.replay import state_check
from eslurm.store.rows import load
from eslurm.store.sql import SqlStore
from eslurm.v1 import controller_pb2 as pb

# ---- chaos: the verdict ----


def seen(began: list[int], ended: list[int], twice: list[int] | None = None, alike: int = 0) -> Sightings:
    return Sightings(Counter(began), Counter(ended), Counter(twice or []), alike)


def acknowledged(*ids: int) -> list[Acknowledged]:
    return [Acknowledged(f"job-{job_id}", job_id, 0.0) for job_id in ids]


def ended(job_id: int, state: str = "COMPLETED", name: str = "") -> pb.AttemptInfo:
    return pb.AttemptInfo(job_id=job_id, attempt=1, state=state, name=name or f"job-{job_id}")


def test_every_job_accounted_once_is_neither_lost_nor_doubled() -> None:
    accounted = [ended(1), ended(2, "REQUEUED"), ended(2), ended(3, "NODE_FAIL")]
    verdict = judge(acknowledged(1, 2, 3), accounted, seen([1, 2, 2], [1, 2]))
    assert (verdict.lost, verdict.twice, verdict.reran) == (0, 0, 1)
    assert verdict.states == {"COMPLETED": 2, "NODE_FAIL": 1}


@pytest.mark.parametrize(
    "accounted",
    [
        [],
        [ended(1, "REQUEUED")],
        [ended(1, name="job-9")],
        [ended(1)],
    ],
    ids=["unknown", "never ended", "another job has its number", "said to be done and was not"],
)
def test_a_job_is_lost(accounted: list[pb.AttemptInfo]) -> None:
    verdict = judge(acknowledged(1), accounted, seen([1], []))
    assert verdict.lost == 1 and not verdict.states


@pytest.mark.parametrize(
    ("accounted", "sightings"),
    [
        ([ended(1), ended(1, "FAILED")], seen([1], [1])),
        ([ended(1), ended(2, name="job-1")], seen([1, 2], [1, 2])),
        ([ended(1)], seen([1], [1], twice=[1])),
        ([ended(1)], seen([1, 1], [1, 1], alike=1)),
    ],
    ids=["two last states", "one submission, two jobs", "beside itself", "one attempt begun twice"],
)
def test_a_job_is_there_twice(accounted: list[pb.AttemptInfo], sightings: Sightings) -> None:
    assert judge(acknowledged(1), accounted, sightings).twice == 1


def test_jobs_say_themselves_when_they_run_twice(tmp_path: Path) -> None:
    witness = Witness(tmp_path / "seen")
    script = tmp_path / "job"
    script.write_bytes(witness.script(0.3))
    script.chmod(0o700)
    # They run until they are let go, whatever time they were given.
    gate, sleep = tmp_path / "gate", tmp_path / "sleep"
    sleep.write_text(f"#!/bin/sh\nuntil [ -e {gate} ]; do /bin/sleep 0.01; done\n")
    sleep.chmod(0o700)

    def start(job: int, restarts: int) -> subprocess.Popen[bytes]:
        path = f"{tmp_path}:{os.defpath}"
        environment = {"SLURM_JOB_ID": str(job), "SLURM_RESTART_COUNT": str(restarts), "PATH": path}
        return subprocess.Popen([script], env=environment)

    first, other = start(7, 0), start(8, 0)
    try:
        while not witness.sightings().began[7]:
            assert first.poll() is None
        second = start(7, 1)
        assert second.wait() == 3
    finally:
        gate.touch()
    assert (first.wait(), other.wait()) == (0, 0)
    # After the first has ended the same job may run again.
    again = start(7, 0)
    assert again.wait() == 0
    found = witness.sightings()
    assert found.twice == {7: 1} and found.began == {7: 2, 8: 1} and found.ended == {7: 2, 8: 1}
    assert found.restarted_alike == 1


# ---- chaos: wires ----


def test_a_wire_passes_stalls_and_is_cut() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        wires = Wires([f"127.0.0.1:{server.getsockname()[1]}"])
        host, port = wires.endpoints[0].split(":")
        try:
            with socket.create_connection((host, int(port)), 10) as near, server.accept()[0] as far:
                near.sendall(b"one")
                assert far.recv(10) == b"one"
                wires.set(0, "stalled")
                near.sendall(b"two")
                far.settimeout(0.2)
                with pytest.raises(TimeoutError):
                    far.recv(10)
                far.settimeout(10)
                wires.set(0, "whole")
                assert far.recv(10) == b"two"
                wires.set(0, "cut")
                assert _ends(near) and _ends(far)
            with socket.create_connection((host, int(port)), 10) as refused:
                assert _ends(refused)
        finally:
            wires.close()


def _ends(connection: socket.socket) -> bool:
    connection.settimeout(10)
    try:
        return connection.recv(10) == b""
    except ConnectionResetError:
        return True


# ---- restarts: the prepared store ----


def test_a_prepared_store_is_what_the_core_would_have_left(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, Shape(nodes=2, cores=4, agents=0, satellites=1, absent=2))
    cluster.write_files()
    url = f"sqlite:///{tmp_path / 'esctld.db'}"
    prepare(tmp_path / "eslurm.toml", url, pending=50, running=100, finished=400)

    async def read() -> tuple[State, int, int]:
        store = SqlStore(url, "bench")
        try:
            everything = await store.accounting(OWNER, AccountingQuery(limit=1000))
            one = await store.accounting(OWNER, AccountingQuery(user="user7", limit=1000))
            return await load(store, OWNER), len(everything.attempts), len(one.attempts)
        finally:
            await store.close()

    state, attempts, of_one_user = asyncio.run(read())
    state_check.check(state)
    assert (state.pending_count, state.active_count) == (50, 100)
    assert (attempts, of_one_user) == (401, 10)
    assert min(state.jobs) > 401


def test_more_running_jobs_than_fit_are_refused(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, Shape(nodes=1, agents=0, satellites=0, absent=1))
    cluster.write_files()
    with pytest.raises(ValueError, match="do not fit"):
        prepare(tmp_path / "eslurm.toml", f"sqlite:///{tmp_path / 'esctld.db'}", pending=0, running=65)
