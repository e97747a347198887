"""The calls Why and Plan, and `--test-only`, on a controller that plans."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from esctld.lead.planner import Planner
from esctld.serve.why import ASKING_MAX, OCCURRENCES_MAX, TESTS_MAX, Inquiries
from eslurm.calendar import SiteCalendar
from eslurm.core.model.accounts import Reservation, Validity
from eslurm.core.model.config import ClusterConfig, NodeConfig, Partition
from eslurm.core.model.forecast import Forecast
from eslurm.core.model.job import JobSpec, Principal
from eslurm.core.model.messages import (
    Changed,
    ChangePolicies,
    HoldJobs,
    JobRef,
    PlanMade,
    PolicyChange,
    RefusalCode,
    Refused,
    Reports,
    SetForecasts,
    SubmitJobs,
    Submitted,
)
from eslurm.core.model.protocol import Registration, Report
from eslurm.core.model.request import Request
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.lab.sim.store_image import StoreImage
from eslurm.ports.api import ApiError, Caller
from eslurm.telemetry.metrics import ControllerMetrics
from eslurm.v1 import controller_pb2 as pb
from tests.kits.leading import CLUSTER, LeadingController
from tests.support.loops import run

ADA = Principal("ada", 1000, 1000)
ROOT = Principal("root", 0, 0)
CALLER = Caller(ADA, b"", False, None, "socket")
NAMES = ("cn1", "cn2")
CONFIG = ClusterConfig(
    CLUSTER,
    tuple(NodeConfig(name, (4, 1000)) for name in NAMES),
    (Partition("main", NAMES, default=True), Partition("half", NAMES[:1])),
    policy="planned",
)
HOUR_S = 3600


def spec(nodes: int, hours: int = 1, **fields: object) -> JobSpec:
    request = Request(nodes_min=nodes, nodes_max=nodes, exclusive=True)
    made = JobSpec("job", ADA, "", (request,), b"s" * 32, b"e" * 32, "/tmp", hours * HOUR_S)
    return replace(made, **fields)


class Desk:
    """A controller with a planner whose cycles are made by hand, and its inquiries."""

    def __init__(self, leading: LeadingController) -> None:
        self.leading = leading
        self.planner = Planner(ControllerMetrics())
        self.planner.attach(leading.dispatcher)
        self.inquiries = Inquiries(leading.dispatcher, self.planner)

    async def submit(self, *specs: JobSpec) -> tuple[int, ...]:
        answer = await self.leading.dispatcher.request(SubmitJobs(specs))
        assert isinstance(answer, Submitted)
        return answer.job_ids

    async def cycle(self) -> None:
        await self.planner._cycle(self.leading.dispatcher)
        plan = self.planner.plan
        assert plan is not None
        await self.leading.dispatcher.decided(PlanMade(plan.placements, plan.generation))
        if plan.placements:
            await self.cycle()

    async def why(self, job_id: int, **fields: bool) -> pb.WhyReply:
        return await self.inquiries.why(pb.WhyRequest(job=pb.JobRef(job_id=job_id), **fields), CALLER)


async def opened(leading: LeadingController) -> Desk:
    reports = tuple(
        Report(
            "agent", at + 1, Registration(name, f"u-{name}", "b", "s", leading.epoch, "h:1", (4, 1000), ())
        )
        for at, name in enumerate(NAMES)
    )
    await leading.dispatcher.request(Reports(reports))
    return Desk(leading)


def test_a_planned_job_an_estimate_and_a_running_one() -> None:
    async def main() -> None:
        async with LeadingController(StoreImage(CLUSTER), config=CONFIG) as leading:
            desk = await opened(leading)
            first, second = await desk.submit(spec(2), spec(1, 2))
            await desk.cycle()
            reply = await desk.why(second)
            assert [one.kind for one in reply.reasons] == ["resources", "resources"]
            assert reply.reasons[1].holders[0].job_id == first and reply.reasons[1].nodes_failing == 2
            assert reply.planned_start_us == reply.job.planned_start_us > reply.now_us
            assert reply.planned_nodes == reply.job.planned_nodes == "cn1"
            assert (reply.ahead, reply.priority, reply.job.job_id) == (0, 1000, second)
            running = await desk.why(first)
            assert running.job.state == "LAUNCHING" and not running.reasons
            await leading.dispatcher.request(HoldJobs(ADA, (JobRef(second),)))
            held = await desk.why(second, no_alternatives=True)
            assert "hold" in [one.kind for one in held.reasons]
            with pytest.raises(Refused, match="job 99 does not exist") as refused:
                await desk.why(99)
            assert refused.value.code is RefusalCode.NOT_FOUND

    run(main())


def test_starts_lie_between_two_times_where_forecasts_say_so() -> None:
    async def main() -> None:
        async with LeadingController(StoreImage(CLUSTER), config=CONFIG) as leading:
            desk = await opened(leading)
            first, second = await desk.submit(spec(2), spec(1))
            await desk.cycle()
            assert not (await desk.why(second)).start_latest_us
            assert not (await desk.inquiries.test([spec(1)])).test_latest_us
            said = Forecast(600, 1200, 1800, 1200)
            await leading.dispatcher.request(SetForecasts(ROOT, ((first, said),)))
            await desk.cycle()
            attempt = leading.state.jobs[first].attempt
            assert attempt is not None
            earliest_us = attempt.placed_us + 600_000_000
            reply = await desk.why(second)
            assert reply.start_earliest_us == earliest_us
            assert reply.start_earliest_us <= reply.planned_start_us <= reply.start_latest_us
            assert reply.start_latest_us >= attempt.placed_us + 1_800_000_000
            tested = await desk.inquiries.test([spec(1)])
            assert tested.test_earliest_us == earliest_us and tested.test_latest_us >= tested.test_start_us
            plan = await desk.inquiries.plan(pb.PlanRequest(), CALLER)
            running, planned = plan.jobs
            assert running.job_id == first and not running.start_latest_us
            assert (planned.start_earliest_us, planned.start_latest_us) == (
                reply.start_earliest_us,
                reply.start_latest_us,
            )
            fixed = await desk.inquiries.test([spec(1, begin_us=leading.dispatcher.now_us() + 10**9)])
            assert not fixed.test_latest_us

    run(main())


def test_the_plan_with_its_reservations() -> None:
    async def main() -> None:
        async with LeadingController(StoreImage(CLUSTER), config=CONFIG) as leading:
            desk = await opened(leading)
            empty = await desk.inquiries.plan(pb.PlanRequest(), CALLER)
            assert (empty.policy, empty.made_us, len(empty.jobs), empty.nodes) == ("planned", 0, 0, 2)
            with pytest.raises(Refused, match="partition: 'x' does not exist: use one of half, main"):
                await desk.inquiries.plan(pb.PlanRequest(partition="x"), CALLER)
            now_us = leading.dispatcher.now_us()
            day_us = 24 * HOUR_S * 1_000_000
            repair = Reservation(
                "repair", Validity(now_us + day_us, now_us + 2 * day_us), ("cn2",), maintenance=True
            )
            await leading.dispatcher.request(
                ChangePolicies(ROOT, (PolicyChange("add", "reservation", "repair", repair),))
            )
            first, second, third = await desk.submit(spec(2), spec(1, 2, partition="half"), spec(2))
            await desk.cycle()
            reply = await desk.inquiries.plan(pb.PlanRequest(), CALLER)
            assert [(one.job_id, one.running) for one in reply.jobs] == [
                (first, True),
                (second, False),
                (third, False),
            ]
            assert reply.jobs[2].nodes == "cn[1-2]" and reply.jobs[2].cores == 8 and reply.waiting == 0
            assert reply.jobs[2].start_us == reply.jobs[1].end_us
            (kept,) = reply.reservations
            assert (kept.name, kept.nodes, kept.user) == ("repair", "cn2", "(maintenance)")
            half = await desk.inquiries.plan(pb.PlanRequest(partition="half"), CALLER)
            assert [one.job_id for one in half.jobs] == [second]
            soon = await desk.inquiries.plan(pb.PlanRequest(until_us=now_us + 1), CALLER)
            assert [one.job_id for one in soon.jobs] == [first] and not soon.reservations
            two = await desk.inquiries.plan(pb.PlanRequest(limit=2), CALLER)
            assert len(two.jobs) == 2

    run(main())


def test_on_a_full_cluster_easy_tells_when_the_first_would_start() -> None:
    async def main() -> None:
        config = replace(CONFIG, policy="easy")
        async with LeadingController(StoreImage(CLUSTER), config=config) as leading:
            desk = await opened(leading)
            running, first, _ = await desk.submit(spec(2), spec(2), spec(1))
            await desk.cycle()
            reply = await desk.inquiries.plan(pb.PlanRequest(), CALLER)
            assert [(one.job_id, one.running) for one in reply.jobs] == [(running, True), (first, False)]
            assert reply.jobs[1].start_us == reply.jobs[0].end_us == (await desk.why(first)).planned_start_us
            assert (reply.jobs[1].nodes, reply.waiting) == ("cn[1-2]", 1)
            assert not desk.planner.schedule.bookings

    run(main())


def test_what_recurs_for_ever_is_told_as_far_ahead_as_plans_are_made() -> None:
    async def main() -> None:
        async with LeadingController(StoreImage(CLUSTER), config=CONFIG) as leading:
            desk = await opened(leading)
            leading.state.calendar = SiteCalendar()
            # Half a day from now: one that is in force counts once more.
            hour = (datetime.now(UTC).hour + 12) % 24
            daily, often = Validity(cron=f"0 {hour} * * *", duration_s=HOUR_S), Validity(cron="0,30 * * * *")
            changes = tuple(
                PolicyChange("add", "reservation", name, Reservation(name, validity, (node,), ("ada",)))
                for name, validity, node in (("daily", daily, "cn1"), ("often", often, "cn2"))
            )
            assert await leading.dispatcher.request(ChangePolicies(ROOT, changes)) == Changed(2)
            reply = await desk.inquiries.plan(pb.PlanRequest(until_us=INFINITY_US), CALLER)
            counts = Counter(one.name for one in reply.reservations)
            # One more while one is open: between three and four o'clock.
            assert counts.keys() == {"daily", "often"} and counts["often"] == OCCURRENCES_MAX
            assert counts["daily"] in (400, 401)
            month = await desk.inquiries.plan(pb.PlanRequest(), CALLER)
            assert Counter(one.name for one in month.reservations)["daily"] in (31, 32)

    run(main())


def test_a_job_that_is_only_asked_about() -> None:
    async def main() -> None:
        async with LeadingController(StoreImage(CLUSTER), config=CONFIG) as leading:
            desk = await opened(leading)
            now = await desk.inquiries.test([spec(2)])
            assert now.test_answer == "would be accepted and start at once"
            assert now.test_nodes == "cn[1-2]" and not now.test_reasons
            await desk.submit(spec(2))
            await desk.cycle()
            later = await desk.inquiries.test([spec(2)])
            assert later.test_answer == "would be accepted and wait"
            assert later.test_reasons[0].kind == "resources"
            held = await desk.inquiries.test([spec(1, held=True)])
            assert (held.test_answer, held.test_start_us) == ("would be accepted and held", 0)
            with pytest.raises(Refused, match="--nodes"):
                await desk.inquiries.test([spec(3)])

    run(main())


def test_each_job_of_a_test_has_its_own_answer() -> None:
    async def main() -> None:
        async with LeadingController(StoreImage(CLUSTER), config=CONFIG) as leading:
            desk = await opened(leading)
            reply = await desk.inquiries.test([spec(1), spec(3), spec(1, held=True)])
            assert [one.refused for one in reply.tests] == [False, True, False]
            assert reply.tests[0].answer == reply.test_answer == "would be accepted and start at once"
            assert reply.tests[0].nodes == "cn1" and not reply.tests[0].reasons
            assert reply.tests[1].answer.startswith("would be refused: --nodes: ")
            assert reply.tests[2].answer == "would be accepted and held"
            assert not leading.dispatcher.view.jobs
            with pytest.raises(Refused, match=f"{TESTS_MAX + 1} jobs in one call are more than {TESTS_MAX}"):
                await desk.inquiries.test([spec(1)] * (TESTS_MAX + 1))

    run(main())


def test_one_question_at_a_time_and_not_too_many_that_wait() -> None:
    async def main() -> None:
        async with LeadingController(StoreImage(CLUSTER), config=CONFIG) as leading:
            desk = await opened(leading)
            (job,) = await desk.submit(spec(2, held=True))
            await desk.cycle()
            desk.planner._resting.clear()
            asked = [asyncio.create_task(desk.why(job)) for _ in range(ASKING_MAX)]
            await asyncio.sleep(0)
            with pytest.raises(ApiError, match="try again in a moment"):
                await desk.inquiries.plan(pb.PlanRequest(), CALLER)
            asked[1].cancel()
            desk.planner._resting.set()
            answers = await asyncio.gather(*asked, return_exceptions=True)
            assert [isinstance(one, pb.WhyReply) for one in answers].count(False) == 1
            assert (await desk.why(job)).reasons[0].kind == "hold"

    run(main())


def test_nobody_is_answered_from_the_middle_of_a_cycle() -> None:
    async def main() -> None:
        async with LeadingController(StoreImage(CLUSTER), config=CONFIG) as leading:
            desk = await opened(leading)
            (job,) = await desk.submit(spec(2, held=True))
            planning = asyncio.create_task(desk.planner.run())
            await asyncio.sleep(0)
            desk.planner.look()
            for _ in range(20):
                await desk.planner.at_rest()
                reply = await desk.why(job)
                assert reply.reasons[0].kind == "hold"
                leading.state.want_plan()
                desk.planner.look()
            planning.cancel()
            await asyncio.gather(planning, return_exceptions=True)

    run(main())
