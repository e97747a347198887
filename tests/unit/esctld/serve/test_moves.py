"""MovePack and ExtendJob: the reply waits for the planner, and a client that goes away changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from esctld.serve import moves
from eslurm.api import methods
from eslurm.core.model.messages import Reports
from eslurm.core.model.protocol import Registration, Report
from eslurm.lab.sim.store_image import StoreImage
from eslurm.ports.api import Caller, Status
from eslurm.v1 import controller_pb2 as pb
from tests.kits.leading import CLUSTER
from tests.support.loops import run
from tests.unit.esctld.test_privacy import ADA, BEN, Site
from tests.unit.esctld.test_term import configured

SECOND_US = 1_000_000


class PackSite(Site):
    """A pack of ada's that has begun; its other jobs start 600 s and 900 s after the first."""

    pack: tuple[int, ...] = ()

    async def begin(self) -> None:
        body = Registration("cn1", "uid", "boot", "s1", self.state.epoch, "127.0.0.1:1", (4, 1000))
        await self.controller._dispatcher.decided(Reports((Report("agent", 1, body),)))
        jobs = [
            pb.JobRequest(name="part", script=b"#!/bin/sh\n", work_dir="/tmp", time_limit_s=60)
            for _ in range(3)
        ]
        request = pb.SubmitRequest(jobs=jobs, packs=[pb.PackRequest(first=0, delays_s=[0, 600, 900])])
        self.pack = tuple((await self.read(ADA, methods.SUBMIT, request)).job_ids)
        while not self.state.jobs_on:
            await self.controller._dispatcher.moved()

    def wishes(self) -> int:
        """The number of serials of wishes that the pack has been asked for."""
        place = self.state.get_job(self.pack[1]).pack
        return place.wish.serial if place is not None and place.wish is not None else 0


@asynccontextmanager
async def site(directory: Path) -> AsyncIterator[PackSite]:
    term = PackSite(StoreImage(CLUSTER), configured(), directory)
    async with term.serving():
        await term.begin()
        yield term


def within(tmp_path: Path, main: Callable[[PackSite], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with site(tmp_path) as term:
            await main(term)

    run(whole())


def move(job_id: int, earlier_s: int = 0, **more: Any) -> pb.MovePackRequest:
    return pb.MovePackRequest(job=pb.JobRef(job_id=job_id), earlier_s=earlier_s, **more)


def test_the_reply_says_before_and_after_of_each_job(tmp_path: Path) -> None:
    async def main(term: PackSite) -> None:
        first, second, third = term.pack
        reply = await term.read(ADA, methods.MOVE_PACK, move(first, 300))
        assert not reply.open
        assert (reply.pack_id, reply.earlier_us, reply.text) == (first, 300 * SECOND_US, "300 s earlier")
        assert [(one.job_id, one.pack_index, one.before_us - one.after_us) for one in reply.starts] == [
            (second, 1, 300 * SECOND_US),
            (third, 2, 300 * SECOND_US),
        ]
        info = await term.read(ADA, methods.JOBS, pb.JobsRequest(jobs=[pb.JobRef(job_id=second)]))
        assert info.jobs[0].delay_s == 300

    within(tmp_path, main)


def test_a_dry_run_says_the_same_and_asks_for_nothing(tmp_path: Path) -> None:
    async def main(term: PackSite) -> None:
        first = term.pack[0]
        reply = await term.read(ADA, methods.MOVE_PACK, move(first, 300, dry_run=True))
        assert (reply.earlier_us, reply.text) == (300 * SECOND_US, "300 s earlier")
        assert not term.wishes()
        status, text = await term.refusal(BEN, methods.MOVE_PACK, move(first, 300, dry_run=True))
        assert (status, "belongs to ada" in text) == (Status.PERMISSION_DENIED, True)

    within(tmp_path, main)


def test_a_retry_waits_for_the_same_wish(tmp_path: Path) -> None:
    async def main(term: PackSite) -> None:
        caller = Caller(ADA, b"r" * 16, False, 60_000_000, "socket")
        again = caller._replace(retry=True)
        request = move(term.pack[0], 300)
        first = await term.ask(methods.MOVE_PACK, request, caller)
        serial = term.wishes()
        second = await term.ask(methods.MOVE_PACK, request, again)
        assert serial and term.wishes() == serial
        one, other = (pb.MovePackReply.FromString(answered.reply) for answered in (first, second))
        assert list(one.starts) == list(other.starts)
        assert one.earlier_us == other.earlier_us == 300 * SECOND_US

    within(tmp_path, main)


def test_a_client_that_goes_away_leaves_the_wish_to_be_granted(tmp_path: Path) -> None:
    async def main(term: PackSite) -> None:
        asked = asyncio.create_task(term.read(ADA, methods.MOVE_PACK, move(term.pack[0], 300)))
        while not term.wishes():
            await term.controller._dispatcher.moved()
        asked.cancel()
        with suppress(asyncio.CancelledError):
            await asked
        while term.state.wishing:
            await term.controller._dispatcher.moved()
        place = term.state.get_job(term.pack[1]).pack
        assert place is not None and place.delay_us == 300 * SECOND_US

    within(tmp_path, main)


def test_a_wish_that_is_not_decided_in_time_is_said_to_be_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(term: PackSite) -> None:
        monkeypatch.setattr(moves, "WAIT_MAX_S", 0)
        # The planner has not had its turn when the wish is committed.
        reply = await term.read(ADA, methods.MOVE_PACK, move(term.pack[0], 300))
        assert reply.open and not reply.text
        assert reply.earlier_us == 0
        while term.state.wishing:
            await term.controller._dispatcher.moved()

    within(tmp_path, main)


def test_values_are_checked_at_the_door(tmp_path: Path) -> None:
    async def main(term: PackSite) -> None:
        job = term.pack[0]
        ref = pb.JobRef(job_id=job)
        for method, request, says in (
            (methods.MOVE_PACK, move(job, 5, to_us=9), "give one of them"),
            (methods.MOVE_PACK, move(job, to_us=-1), "to: -1 is not within"),
            (methods.MOVE_PACK, move(job, 4_294_967_295), "earlier-by: 4294967295 is not within"),
            (methods.EXTEND_JOB, pb.ExtendJobRequest(job=ref), "give either"),
            (methods.EXTEND_JOB, pb.ExtendJobRequest(job=ref, by_s=1, to_s=1), "give either"),
            (methods.EXTEND_JOB, pb.ExtendJobRequest(job=ref, by_s=4_294_967_295), "by: 4294967295 is not"),
        ):
            status, text = await term.refusal(ADA, method, request)
            assert (status, says in text) == (Status.INVALID_ARGUMENT, True), text
        assert not term.wishes()

    within(tmp_path, main)
