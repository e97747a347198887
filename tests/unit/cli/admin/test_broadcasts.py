"""`esctl broadcast`: what people read of a broadcast's tree."""

from __future__ import annotations

from escli.admin.broadcasts import described, listed
from eslurm.v1 import controller_pb2 as pb


def _broadcast() -> pb.BroadcastInfo:
    return pb.BroadcastInfo(
        id=4711,
        kind="heartbeat",
        started_us=1,
        took_us=153_400,
        nodes=4,
        ok=3,
        unreached=1,
        predicted=1,
        width=2,
        grouping="balanced",
        satellites=["s1"],
        unreached_nodes="cn3",
        levels=[pb.BroadcastLevel(hop=1, sends=1, acked_mean_us=900, acked_max_us=900, done_max_us=150_000)],
        spans=[
            pb.BroadcastSpan(parent="controller", child="s1", hop=1, nodes=4, acked_us=900, done_us=150_000, how="done"),
            pb.BroadcastSpan(parent="s1", child="cn1", hop=2, nodes=2, acked_us=800, done_us=1_000, how="done"),
            pb.BroadcastSpan(
                parent="s1", child="cn3", hop=2, nodes=2, acked_us=-1, done_us=-1, how="adopted: no acknowledgement"
            ),
            pb.BroadcastSpan(parent="cn3", child="cn4", hop=3, nodes=1, acked_us=700, done_us=900, how="done"),
        ],
    )  # fmt: skip


def test_one_line_says_when_how_long_and_by_whom() -> None:
    line = listed([_broadcast()]).splitlines()[1]
    assert line.startswith("4711 heartbeat ")
    assert "153.4 ms" in line
    assert line.endswith("s1")


def test_the_sums_come_before_the_tree() -> None:
    text = described(_broadcast(), with_tree=False)
    assert "3 ok, 0 failed, 1 unreached; 1 were predicted" in text
    assert "Unreached: cn3" in text
    assert "esctl broadcast --tree 4711" in text


def test_the_tree_marks_who_was_adopted_and_why() -> None:
    lines = described(_broadcast(), with_tree=True).splitlines()
    (suspect,) = [line for line in lines if "no acknowledgement" in line]
    assert suspect.strip().startswith("! cn3")
    below = lines[lines.index(suspect) + 1]
    assert below.strip().startswith("cn4")
    assert len(below) - len(below.lstrip()) > len(suspect) - len(suspect.lstrip())


def test_a_broadcast_without_satellites_was_the_controllers_own() -> None:
    one = _broadcast()
    del one.satellites[:]
    assert "Sent by the controller itself" in described(one, with_tree=False)
