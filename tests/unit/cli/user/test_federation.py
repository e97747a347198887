"""`esinfo --federation` and `esctl federation status`: what they print."""

from __future__ import annotations

from typing import Any

import pytest

from escli import exits
from escli.failures import CommandFailed
from escli.user.federation import ask, store_table, text
from eslurm.v1 import controller_pb2 as pb

REPLY = pb.FederationReply(
    name="lab",
    cell="alpha",
    state="member",
    age_ms=100,
    cells=[
        pb.CellInfo(
            name="alpha",
            number=1,
            state="alive",
            endpoint="10.0.1.1:7400",
            age_ms=0,
            nodes=50,
            nodes_free=12,
            cores=100,
            cores_free=24,
            jobs_running=38,
            jobs_waiting=4,
            silent_ms=-1,
        ),
        pb.CellInfo(
            name="beta",
            number=2,
            state="silent",
            age_ms=47_000,
            nodes=8,
            cores=16,
            silent_ms=42_000,
            draining=True,
        ),
        pb.CellInfo(
            name="gamma", state="unknown", age_ms=-1, silent_ms=-1, problem="its summary: 9 bytes\x1b[2J"
        ),
    ],
    members=[
        pb.StoreMemberInfo(endpoint="https://e1:2379", version="3.4.23", is_leader=True, size_bytes=5 << 20),
        pb.StoreMemberInfo(endpoint="https://e2:2379", version="3.4.23", size_bytes=1, alarms=["NOSPACE"]),
        pb.StoreMemberInfo(endpoint="https://e3:2379", error="connection refused"),
    ],
)


def test_the_cells_are_a_table() -> None:
    assert text(REPLY).splitlines() == [
        "FEDERATION lab   CELL alpha   STORE 2 of 3 answer   STATE member",
        "CELL   STATE        NODES(F/T) CORES(F/T) JOBS(R/W)   AGE ENDPOINT      PROBLEM",
        "alpha* alive             12/50     24/100      38/4  0.0s 10.0.1.1:7400 -",
        "beta   silent+drain        0/8       0/16       0/0 47.0s -             lease ended 0:42 ago",
        "gamma  unknown               -          -         -     - -             its summary: 9 bytes\\x1b[2J",
    ]
    assert text(REPLY, header=False).splitlines()[0].startswith("alpha*")


def test_the_servers_of_the_store_are_a_table() -> None:
    assert store_table(REPLY).splitlines() == [
        "STORE           STATE    VERSION SIZE ALARMS  PROBLEM",
        "https://e1:2379 leader   3.4.23    5M -       -",
        "https://e2:2379 follower 3.4.23    1M NOSPACE -",
        "https://e3:2379 away     -          - -       connection refused",
    ]


def test_a_cell_that_is_away_says_why() -> None:
    away = pb.FederationReply(
        name="lab", cell="alpha", state="away", problem="etcd at https://e1:2379: no leader"
    )
    assert text(away).splitlines()[:2] == [
        "FEDERATION lab   CELL alpha   STORE away   STATE away",
        "etcd at https://e1:2379: no leader",
    ]


def test_a_cluster_that_is_no_member_is_told() -> None:
    class Plain:
        def call(self, _method: str, _request: Any) -> pb.FederationReply:
            return pb.FederationReply()

    with pytest.raises(CommandFailed) as failed:
        ask(Plain())  # type: ignore[arg-type]
    assert failed.value.code == exits.FAILED
