"""Every waiting job gets its reason, and offered alternatives are true: each alternative is planned again by brute force."""

from __future__ import annotations

import random
from collections.abc import Sequence

from eslurm.core.control.jobs.admission import on_submit
from eslurm.core.explain.inquiry import Answer, why_waiting
from eslurm.core.explain.part_variants import with_part
from eslurm.core.model.config import Partition
from eslurm.core.model.job_states import JobState
from eslurm.core.model.messages import SubmitJobs
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.cycle import exhaust
from eslurm.core.plan.cycle.schedule import Schedule
from eslurm.core.plan.placement.compiled_request import compile_job
from eslurm.core.plan.placement.mapping import choose
from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.resources.vector import Vector, add, fits, subtract
from tests.kits.asking import Site
from tests.kits.chaos import Chaos
from tests.kits.core import ALICE, BOB, SECOND, World
from tests.kits.parts import parted
from tests.support.seeds import Seeds

Hold = tuple[int, Vector, int, int]
"""(position, amounts, from, until)."""


class NaiveRoom:
    """The amounts that are free all through a booking, worked out from a list of all holds."""

    def __init__(
        self, topology: Topology, usable: int, holds: list[Hold], start_us: int, stop_us: int
    ) -> None:
        self.topology = topology
        self.usable = usable
        self.wide_free: Vector = ()
        met = [hold for hold in holds if hold[2] < stop_us and start_us < hold[3]]
        instants = {start_us, *(hold[2] for hold in met if hold[2] > start_us)}
        self._free: list[Vector] = []
        self.idle = 0
        for position, total in enumerate(topology.totals):
            own = [hold for hold in met if hold[0] == position]
            least = total
            for at_us in instants:
                used: Vector = (0,) * len(total)
                for _, amounts, from_us, until_us in own:
                    if from_us <= at_us < until_us:
                        used = add(used, amounts)
                free = subtract(total, used)
                least = tuple(min(pair) for pair in zip(least, free, strict=True))
            self._free.append(least)
            self.idle |= (least == total) << position

    def free_on(self, position: int) -> Vector:
        return self._free[position]

    def fitting(self, amounts: Vector) -> int:
        return sum(fits(amounts, free) << position for position, free in enumerate(self._free))


def naive_start_us(site: Site, job_id: int, request: Request, partition: str, limit_s: int) -> int | None:
    """The first start beside everything else that runs or is planned: every instant at which anything changes is tried."""
    return naive_joint_start_us(site, job_id, (request,), (partition,), limit_s)


def naive_joint_start_us(
    site: Site, job_id: int, requests: Sequence[Request], partitions: Sequence[str], limit_s: int
) -> int | None:
    """The same for the parts of a job together."""
    state, now_us = site.world.state, site.world.now_us
    topology = state.ledger.topology
    holds: list[Hold] = []
    for running in state.live.values():
        for node, amounts in running.spans:
            holds.append((topology.positions[node], amounts, 0, running.until_us))
    for other, bookings in site.schedule.bookings.items():
        for booking in bookings if other != job_id else ():
            holds += [
                (topology.positions[span.node], span.amounts, booking.start_us, booking.stop_us)
                for span in booking.spans
            ]
    duration_us = limit_s * SECOND or INFINITY_US
    views = [state.partition_views[partition] for partition in partitions]
    need = compile_job(requests, views, topology, (), limit_s * SECOND)
    for at_us in sorted({now_us, *(hold[3] for hold in holds if now_us < hold[3] < INFINITY_US)}):
        stop_us = min(at_us + duration_us, INFINITY_US)
        if choose(NaiveRoom(topology, state.ledger.usable, holds, at_us, stop_us), need) is not None:
            return at_us
    return None


def check(answer: Answer, nodes: int) -> None:
    blocking = [one for one in answer.reasons if not one.nodes_of]
    filters = [one for one in answer.reasons if one.nodes_of]
    assert blocking, answer
    assert all(one.text for one in answer.reasons)
    assert list(answer.reasons) == blocking + filters
    assert sum(one.nodes_failing for one in filters) <= nodes
    assert {one.nodes_of for one in filters} <= {nodes}


def end_overdue(world: World) -> None:
    for job in list(world.state.jobs.values()):
        if job.state is JobState.RUNNING and job.attempt is not None and job.attempt.until_us <= world.now_us:
            world.end(job.job_id)


def a_request(rng: random.Random) -> Request:
    width = rng.choice((0, 0, 1, 2, 3))
    tasks = rng.choice((1, 2, 4, 6)) if not width else width * rng.choice((1, 2))
    return Request(
        tasks=tasks,
        cpus_per_task=rng.choice((1, 1, 2)),
        nodes_min=width,
        nodes_max=width,
        memory_per_node_mib=rng.choice((0, 0, 300, 800)),
        exclusive=rng.random() < 0.1,
        exclude=("cn1",) if rng.random() < 0.1 else (),
    )


def test_every_alternative_is_true_and_useful(seeds: Seeds) -> None:
    told = 0
    for seed in seeds(40):
        rng = random.Random(seed)
        names = tuple(f"cn{number}" for number in range(5))
        partitions = (Partition("main", names, default=True), Partition("side", names[3:]))
        world = World(
            5, restarts=False, policy=rng.choice(("planned", "conservative")), partitions=partitions
        )
        site = Site(world)
        for _ in range(12):
            world.try_submit(
                request=a_request(rng),
                user=rng.choice((ALICE, BOB)),
                time_limit_s=rng.choice((0, 600, 1800, 7200)) if rng.random() < 0.9 else 36_000,
            )
            if rng.random() < 0.5:
                site.run()
                world.pass_time(rng.choice((1, 200, 900)))
                end_overdue(world)
        site.run()
        for job_id, job in list(world.state.jobs.items()):
            if job.state is not JobState.PENDING:
                continue
            before = dict(site.schedule.bookings)
            answer = site.why(job_id)
            assert site.schedule.bookings == before
            site.schedule.book.check()
            check(answer, 5)
            planned_us = answer.start_us or INFINITY_US
            for one in answer.alternatives:
                told += 1
                spec = one.spec
                again_us = naive_start_us(site, job_id, spec.components[0], spec.partition, spec.time_limit_s)
                assert one.start_us == again_us, (seed, job_id, one)
                assert one.start_us < planned_us - 59 * SECOND
                decided, _ = on_submit(world.state, SubmitJobs((spec,)), world.now_us)
                assert decided, "accepted; a refusal is raised"
            starts = [one.start_us for one in answer.alternatives]
            assert starts == sorted(starts) and len(starts) <= 3
    assert told > 40


def numbers_in(text: str) -> set[int]:
    """The parts that a reason names: `parts 0-2, 4 and 6`."""
    found: set[int] = set()
    for word in text.removeprefix("parts ").removeprefix("part ").replace(" and ", ", ").split(", "):
        first, _, last = word.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def test_parts_are_told_what_keeps_them_and_alternatives_for_one_are_true(seeds: Seeds) -> None:
    together = told = ready_told = 0
    for seed in seeds(40):
        rng = random.Random(seed)
        names = tuple(f"cn{number}" for number in range(5))
        partitions = (Partition("main", names, default=True), Partition("side", names[3:]))
        site = Site(World(5, restarts=False, policy="planned", partitions=partitions))
        world = site.world
        for _ in range(12):
            count = rng.choice((1, 2, 3))
            requests = tuple(rng.choices([a_request(rng) for _ in range(2)], k=count))
            inside = [rng.choice(("main", "main", "side")) for _ in requests]
            limit_s = rng.choice((600, 1800, 7200))
            world.send(SubmitJobs((parted(*requests, partitions=inside, time_limit_s=limit_s),)))
            if rng.random() < 0.5:
                site.run()
                world.pass_time(rng.choice((1, 200, 900)))
                end_overdue(world)
        site.run()
        for job_id, job in list(world.state.jobs.items()):
            spec = job.spec
            if job.state is not JobState.PENDING or not spec.parts:
                continue
            answer = site.why(job_id)
            blocking = [one for one in answer.reasons if not one.nodes_of]
            filters = [one for one in answer.reasons if one.nodes_of]
            assert blocking and all(one.text for one in answer.reasons), (seed, job_id)
            limit_s = spec.time_limit_s
            blocked = {
                part
                for part, (request, own) in enumerate(zip(spec.components, spec.parts, strict=True))
                if naive_start_us(site, job_id, request, own.partition, limit_s) != world.now_us
            }
            said = [one for one in blocking if one.part >= 0]
            named = set[int]().union(*(numbers_in(one.text.partition(":")[0]) for one in said))
            assert named == blocked, (seed, job_id, blocking)
            ready = [one.text for one in said if one.text.endswith(" could start now")]
            assert len(ready) == bool(blocked and len(blocked) < len(spec.parts))
            for text in ready:
                ready_told += 1
                words = text.rpartition("; ")[2].removesuffix(" could start now")
                assert numbers_in(words) == set(range(len(spec.parts))) - blocked
            together += not blocked
            if filters:
                (part,) = {one.part for one in filters}
                assert part in blocked
                size = 5 if spec.parts[part].partition == "main" else 2
                assert {one.nodes_of for one in filters} == {size}
                assert sum(one.nodes_failing for one in filters) <= size
            for one in answer.alternatives:
                told += 1
                varied = with_part(spec, said[0].part, one.spec)
                inside = [own.partition for own in varied.parts]
                again_us = naive_joint_start_us(site, job_id, varied.components, inside, varied.time_limit_s)
                assert one.start_us == again_us, (seed, job_id, one)
                decided, _ = on_submit(world.state, SubmitJobs((varied,)), world.now_us)
                assert decided, "accepted; a refusal is raised"
    assert told > 20 and ready_told > 20 and together


def test_nobody_waits_without_a_reason(seeds: Seeds) -> None:
    asked = 0
    for seed in seeds(12):
        chaos = Chaos(seed, checked=False)
        for event in range(160):
            chaos.act()
            if event % 8:
                continue
            world = chaos.world
            for job in list(world.state.jobs.values()):
                if job.state is JobState.PENDING:
                    asked += 1
                    slices = why_waiting(world.state, Schedule(), job, world.now_us)
                    check(exhaust(slices), len(world.state.partition_nodes[job.spec.partition]))
    assert asked > 100
