"""Request ids: bound to the caller and the call, and no part of what others see of a job."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from eslurm.api import methods
from eslurm.core.model.job import Principal
from eslurm.core.model.messages import Submitted
from eslurm.lab.sim.memory_store import MemoryStore
from eslurm.lab.sim.store_image import StoreImage
from eslurm.ports.api import Answered, Caller, Status
from eslurm.v1 import controller_pb2 as pb
from tests.kits.api import REQUEST_ID
from tests.kits.leading import CLUSTER
from tests.support.loops import run
from tests.unit.esctld.test_term import Term, configured

ROOT = Principal("root", 0, 0, (0,))
MALLORY = Principal("mallory", 65534, 65534, (65534,))


def caller(principal: Principal, *, retry: bool = False) -> Caller:
    return Caller(principal, REQUEST_ID, retry, 60_000_000, "socket")


def submission() -> pb.SubmitRequest:
    return pb.SubmitRequest(
        jobs=[pb.JobRequest(name="job", script=b"#!/bin/sh\n", work_dir="/tmp", held=True)]
    )


async def submit(term: Term, principal: Principal, *, retry: bool = False) -> list[int]:
    answered: Answered = await term.ask(methods.SUBMIT, submission(), caller(principal, retry=retry))
    assert answered.status is Status.OK, answered.text
    return list(pb.SubmitReply.FromString(answered.reply).job_ids)


@pytest.mark.parametrize("retry", [False, True])
def test_another_user_s_call_with_the_same_id_is_a_call_of_its_own(tmp_path: Path, retry: bool) -> None:
    async def main() -> None:
        term = Term(StoreImage(CLUSTER), configured(), tmp_path)
        async with term.serving():
            mine = await submit(term, ROOT)
            assert await submit(term, ROOT, retry=True) == mine
            theirs = await submit(term, MALLORY, retry=retry)
            assert theirs != mine
            [job] = [term.state.jobs[one] for one in theirs]
            assert job.spec.user.uid == MALLORY.uid

    run(main())


def test_another_method_with_the_same_id_is_a_call_of_its_own(tmp_path: Path) -> None:
    async def main() -> None:
        term = Term(StoreImage(CLUSTER), configured(), tmp_path)
        async with term.serving():
            mine = await submit(term, ROOT)
            request = pb.CancelRequest(jobs=[pb.JobRef(job_id=mine[0])])
            for retry in (False, True):
                answered = await term.ask(methods.CANCEL, request, caller(ROOT, retry=retry))
                assert answered.status is Status.OK, answered.text
                assert pb.ChangeReply.FromString(answered.reply).count == 1

    run(main())


def test_a_job_s_trace_tells_nothing_of_the_request_id(tmp_path: Path) -> None:
    async def main() -> None:
        term = Term(StoreImage(CLUSTER), configured(), tmp_path)
        async with term.serving():
            await submit(term, ROOT)
            answered = await term.ask(methods.JOBS, pb.JobsRequest(), caller(MALLORY))
            [job] = pb.JobsReply.FromString(answered.reply).jobs
            assert len(job.trace) == 32 and int(job.trace, 16) and job.trace != REQUEST_ID.hex()

    run(main())


class Upgraded(MemoryStore):
    """Holds answers of an earlier build, which kept them under the bare ids."""

    def __init__(self, image: StoreImage) -> None:
        super().__init__(image, CLUSTER)
        self.kept: bytes | None = None

    async def lookup_request(self, request_id: bytes) -> bytes | None:
        if request_id == REQUEST_ID:
            return self.kept
        return await super().lookup_request(request_id)


def test_an_answer_of_an_earlier_build_is_for_its_own_user_and_call(tmp_path: Path) -> None:
    """Its ids stand in the jobs' traces, so they are no secret."""

    async def main() -> None:
        term = Term(StoreImage(CLUSTER), configured(), tmp_path)
        store = term.store = Upgraded(term.image)
        async with term.serving():
            other_id = REQUEST_ID[::-1]
            first = caller(ROOT)._replace(request_id=other_id)
            answered = await term.ask(methods.SUBMIT, submission(), first)
            mine = list(pb.SubmitReply.FromString(answered.reply).job_ids)
            store.kept = msgspec.msgpack.encode(Submitted(tuple(mine)))
            assert await submit(term, MALLORY, retry=True) != mine
            request = pb.CancelRequest(jobs=[pb.JobRef(job_id=mine[0])])
            answered = await term.ask(methods.CANCEL, request, caller(MALLORY, retry=True))
            [problem] = pb.ChangeReply.FromString(answered.reply).problems
            assert problem.code == "denied"
            assert await submit(term, ROOT, retry=True) == mine

    run(main())
