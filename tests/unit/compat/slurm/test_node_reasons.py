"""The reason of a node out of service: by whom it is, and since when."""

from __future__ import annotations

from eslurm.compat.slurm.node_fields import ALIKE, reason_since_us
from eslurm.v1 import controller_pb2 as pb


def test_a_reason_by_health_checks_has_their_time_and_user() -> None:
    by_check = pb.NodeInfo(reason="health: disk: full", since_us=5, reason_since_us=9, reason_by="health")
    assert (reason_since_us(by_check), ALIKE["User"](by_check), ALIKE["TimeStamp"](by_check)) == (
        9,
        "health",
        9,
    )
    by_person = pb.NodeInfo(reason="memory", since_us=5)
    assert (reason_since_us(by_person), ALIKE["UserLong"](by_person)) == (5, "Unknown")
    assert reason_since_us(pb.NodeInfo(since_us=5)) == 0
