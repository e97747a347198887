"""The output of a step, for another uid of the host: neither the controller nor the step's command gives it away."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from eslurm.api import methods
from eslurm.api.unix_client import Client
from eslurm.core.model.step_attach import AttachHello
from eslurm.security.step_stream import ATTACHED, StreamSealer
from eslurm.v1 import controller_pb2 as pb
from tests.integration.conftest import running
from tests.kits.cluster import LiveCluster
from tests.kits.commands import preload
from tests.kits.daemons import PATIENCE_S
from tests.security.test_allocations import as_stranger

CONNECTIONS = 400
"""More than a step's command holds of those that have proven nothing."""


@pytest.fixture
def cluster(as_root: None) -> Iterator[LiveCluster]:
    preload()
    with running(nodes=2, agents=1, satellites=0) as cluster:
        yield cluster


def begin(cluster: LiveCluster) -> tuple[int, pb.AttachStepReply]:
    """A job with a step that says something until `go` exists; and what its own user gets to attach to it."""
    job_id = cluster.wrap(
        f"export ESLURM_SOCKET={cluster.socket}; "
        "esrun sh -c 'until test -e go; do echo secret; sleep 0.05; done; echo last' > said; echo code $? > end"
    )
    cluster.wait_lines("said")
    with Client([str(cluster.socket)], PATIENCE_S) as client:
        return job_id, client.call(
            methods.ATTACH_STEP, pb.AttachStepRequest(job_id=job_id, step=0), PATIENCE_S
        )


def end(cluster: LiveCluster, job_id: int) -> None:
    """Nothing has happened to the step."""
    (cluster.work / "go").touch()
    assert cluster.end(job_id) == "COMPLETED"
    assert cluster.lines("end") == ["code 0"] and cluster.lines("said")[-1] == "last"


def test_a_stranger_gets_no_place_from_the_controller(cluster: LiveCluster) -> None:
    job_id, own = begin(cluster)
    assert own.endpoint and len(own.secret) == 32

    def attach(client: Client) -> str:
        return str(client.call(methods.ATTACH_STEP, pb.AttachStepRequest(job_id=job_id, step=0), PATIENCE_S))

    said = as_stranger(cluster, attach)
    assert said.startswith("refused: ") and "belongs to root: only its user attaches" in said, said
    end(cluster, job_id)


def test_a_stranger_at_the_port_hears_nothing_and_ends_nothing(cluster: LiveCluster) -> None:
    """The port is no secret. Openings without a secret, under a wrong one, cut off, and of a flood of connections."""
    job_id, own = begin(cluster)
    host, _, port = own.endpoint.rpartition(":")

    def knock(_client: Client) -> str:
        sealer = StreamSealer(os.urandom(32), purpose=ATTACHED)
        hello = sealer.seal(msgspec.msgpack.encode(AttachHello()))
        openings = (
            b"",
            b"\0\0\0\1x",
            b"\xff" * 64,
            sealer.opening,
            sealer.opening + hello,
            sealer.opening[:20],
        )
        heard = 0
        held: list[socket.socket] = []
        for at in range(CONNECTIONS):
            one = socket.create_connection((host, int(port)), PATIENCE_S)
            with contextlib.suppress(OSError):
                one.sendall(openings[at % len(openings)])
            held.append(one)
        for one in held:
            # The step's command closes what has shown no secret by then.
            with contextlib.suppress(ConnectionError):
                heard += len(one.recv(65_536))
            one.close()
        return f"heard {heard}"

    before = len(cluster.lines("said"))
    assert as_stranger(cluster, knock) == "heard 0"
    # Its own user attaches as before, and the step goes on.
    cluster.until(lambda: len(cluster.lines("said")) > before + 2, "the step goes on")
    with socket.create_connection((host, int(port)), PATIENCE_S) as connection:
        sealer = StreamSealer(own.secret, purpose=ATTACHED)
        stream = sealer.back()
        connection.sendall(sealer.opening + sealer.seal(msgspec.msgpack.encode(AttachHello())))
        heard = b""
        while b"secret" not in heard:
            data = connection.recv(65_536)
            assert data
            heard += b"".join(stream.feed(data))
    end(cluster, job_id)


def test_no_file_and_no_list_of_processes_tells_the_secret(cluster: LiveCluster) -> None:
    job_id, own = begin(cluster)
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            assert own.secret not in path.read_bytes()
    end(cluster, job_id)
