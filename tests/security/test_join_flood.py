"""Strangers and users at the door where hosts join: what they take, and what they are refused.

Method: a real cluster; a stranger with nothing asks with fresh keys as fast as it can, and sends what is nearly right; a
user of the host (uid 65534) gives the administrators' commands.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from eslurm.core.control.waiting_members import WAITING_ADDRESS_MAX
from eslurm.links.join_client import JoinWish, Unreachable, ask
from eslurm.links.join_server import METHOD
from eslurm.security.joining import JoinSecret, Trust
from eslurm.security.membership import Identity
from eslurm.v1 import controller_pb2 as pb
from eslurm.v1 import join_pb2
from tests.integration.conftest import running
from tests.kits.cluster import LiveCluster
from tests.kits.daemons import PATIENCE_S, ROOT

PIN = "0" * 32


@pytest.fixture(scope="module")
def cluster_of_root() -> Iterator[LiveCluster]:
    if os.geteuid() != 0:
        pytest.skip("NOT VERIFIED: only root can attack as another user: run it as root")
    with running(nodes=1, agents=1, satellites=1) as cluster:
        yield cluster


@pytest.fixture
def cluster(cluster_of_root: LiveCluster) -> Iterator[LiveCluster]:
    yield cluster_of_root
    cluster_of_root.hang_up()


def stranger(number: int) -> JoinWish:
    return JoinWish(Identity.generate(), "agent", f"cn{number:04}", Trust(None, PIN))


async def flood(endpoint: str, count: int) -> Counter[str]:
    """So many hosts that nobody knows, at once."""

    async def one(number: int) -> str:
        try:
            return (await ask(endpoint, stranger(number))).state
        except Unreachable:
            return "sent away"

    return Counter(await asyncio.gather(*(one(number) for number in range(count))))


class Unanswered(Exception):
    """The controller has ended the stream without an answer: it has too many of them."""


async def say(endpoint: str, *frames: bytes) -> bytes:
    """The last thing that the controller says to these frames. Raises `Unanswered`, AioRpcError."""
    async with grpc.aio.insecure_channel(endpoint) as channel:
        call = channel.stream_stream(METHOD)()
        for frame in frames[:-1]:
            await call.write(frame)
            await call.read()
        await call.write(frames[-1])
        answer: Any = await call.read()
        if answer is grpc.aio.EOF:
            raise Unanswered(await call.details())
        return bytes(answer)


async def settled(endpoint: str, *frames: bytes) -> join_pb2.JoinAnswer:
    """The controller's answer to these frames, asked for again while it counts the flood of the test before."""
    while True:
        try:
            reply = join_pb2.JoinFrame.FromString(await say(endpoint, *frames)).reply
        except (grpc.aio.AioRpcError, Unanswered):
            await asyncio.sleep(0.2)
            continue
        answer = join_pb2.JoinAnswer.FromString(reply.answer)
        if answer.state != "busy":
            return answer
        await asyncio.sleep(answer.again_ms / 1000)


def test_a_flood_of_strangers_keeps_out_no_host_with_a_token(cluster: LiveCluster, tmp_path: Path) -> None:
    made = cluster.call("CreateJoinToken", pb.CreateJoinTokenRequest())
    token_file = tmp_path / "token"
    token_file.touch(0o600)
    token_file.write_text(made.token)
    states = asyncio.run(flood(cluster.endpoint, 150))
    assert states["pending"] <= WAITING_ADDRESS_MAX and not states["issued"], states
    assert set(states) <= {"pending", "busy", "sent away", "refused"}, states
    reply = cluster.call("Joins", pb.JoinsRequest())
    assert len(reply.pending) <= WAITING_ADDRESS_MAX
    # One of the very same address, with a token: it is told to come again, and gets in.
    words = ["join", cluster.endpoint, "--nodes", "cn0001", "--state-dir", str(tmp_path / "host")]
    program = "from escli.local.eslurm import main; raise SystemExit(main())"
    joined = subprocess.run(
        [sys.executable, "-P", "-c", program, *words, "--token-file", str(token_file)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(str(ROOT / one) for one in (".", "daemons", "cli"))},
        check=False,
    )
    assert joined.returncode == 0, joined
    assert cluster.end(cluster.wrap("true")) == "COMPLETED"
    lines = cluster.run("esctl", "audit", "--refused").out.splitlines()
    assert sum(" Join " in line for line in lines) < 50


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\xff\xff",
        b"x" * 10_000,
        join_pb2.JoinFrame(proof=join_pb2.JoinProof(signature=b"s" * 64)).SerializeToString(),
    ],
)
def test_what_is_no_request_is_refused(cluster: LiveCluster, frame: bytes) -> None:
    assert asyncio.run(settled(cluster.endpoint, frame)).state == "refused"


def test_a_key_that_is_not_held_is_refused_whatever_is_said(cluster: LiveCluster) -> None:
    """Another host's key, and a token's id without its secret, under names that would be refused, too: one answer."""
    known = JoinSecret.parse(cluster.call("CreateJoinToken", pb.CreateJoinTokenRequest()).token)

    async def text_of(**given: object) -> str:
        request = join_pb2.JoinRequest(role="agent", names="cn1", nonce=b"n" * 32, **given)  # type: ignore[arg-type]
        frames = (
            join_pb2.JoinFrame(request=request).SerializeToString(),
            join_pb2.JoinFrame(proof=join_pb2.JoinProof(signature=b"s" * 64)).SerializeToString(),
        )
        answer = await settled(cluster.endpoint, *frames)
        assert answer.state == "refused", answer
        return answer.text

    texts = {
        asyncio.run(text_of(public=Identity.generate().public)),
        asyncio.run(text_of(public=Identity.generate().public, token_id=known.id)),
        asyncio.run(text_of(public=b"")),
    }
    assert texts == {"the host has not proved that it holds its key"}


def test_a_user_neither_approves_nor_revokes_nor_makes_tokens(cluster: LiveCluster) -> None:
    for words in (
        ("token", "create"),
        ("token", "list"),
        ("token", "revoke", "00" * 16),
        ("pending",),
        ("list",),
        ("approve", "cn0001", "--fingerprint", "0" * 32),
        ("deny", "cn0001"),
        ("revoke", "cn0001"),
    ):
        ran = cluster.run_as_user("esctl", "node", *words)
        assert ran.code == 1 and "is for administrators" in ran.err and ran.out == "", ran
    assert cluster.nodes()["cn0001"].state == "UP"
