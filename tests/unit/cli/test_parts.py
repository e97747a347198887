"""Lists that are longer than one call takes."""

from __future__ import annotations

from typing import Any

import pytest

from escli.api import Api
from escli.parts import in_parts, join
from eslurm.api.methods import BY_NAME
from eslurm.v1 import controller_pb2 as pb


def test_a_long_list_goes_in_several_calls_and_a_short_one_as_it_is() -> None:
    short = pb.CancelRequest(jobs=[pb.JobRef(job_id=1)])
    assert list(in_parts("Cancel", short)) == [short]
    long = pb.CancelRequest(jobs=[pb.JobRef(job_id=number) for number in range(25_000)], signal=9)
    parts = list(in_parts("Cancel", long))
    assert [len(part.jobs) for part in parts] == [10_000, 10_000, 5_000] and {
        part.signal for part in parts
    } == {9}
    assert [ref.job_id for part in parts for ref in part.jobs] == list(range(25_000))


def test_answers_are_joined_as_if_there_had_been_one() -> None:
    first = pb.ChangeReply(count=3, problems=[pb.Problem(what="1")], revision=7)
    join(first, pb.ChangeReply(count=2, problems=[pb.Problem(what="2")], revision=8))
    assert (first.count, [one.what for one in first.problems], first.revision) == (5, ["1", "2"], 8)
    nodes = pb.NodesReply(nodes=[pb.NodeInfo(name="a")], partitions=[pb.PartitionInfo(name="p")])
    join(nodes, pb.NodesReply(nodes=[pb.NodeInfo(name="b")], partitions=[pb.PartitionInfo(name="p")]))
    assert [one.name for one in nodes.nodes] == ["a", "b"] and len(nodes.partitions) == 1


def test_each_part_is_a_call_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: no part is taken for a repetition of another. Method: the ids that the calls are made with."""
    made: list[tuple[int, bytes | None]] = []

    def call(_self: Api, method: Any, request: Any, _timeout_s: float, request_id: bytes | None) -> Any:
        made.append((len(request.jobs), request_id))
        return method.reply(count=1)

    monkeypatch.setattr(Api, "_call", call)
    jobs = [pb.JobRef(job_id=number) for number in range(12_000)]
    reply = Api.call(Api.__new__(Api), "Cancel", pb.CancelRequest(jobs=jobs), request_id=b"1" * 16)
    assert made == [(10_000, b"1" * 16), (2_000, None)] and reply.count == 2
    assert BY_NAME["Cancel"].mutating, "so a call without an id gets one"
