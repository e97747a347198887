"""The parts of one job as a whole: never refused singly for what they ask together, ranked by all their partitions."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from eslurm.core.control.jobs.preemption import claim_of, running_work
from eslurm.core.model.accounts import Amount, Limit
from eslurm.core.model.config import NodeConfig, Partition
from eslurm.core.model.messages import Changed, ChangePolicies, PolicyChange, SubmitJobs
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.victims import ABOVE_ALL, Standing
from eslurm.core.state.queue_entries import running_of
from tests.kits.core import ROOT, World, refused
from tests.kits.parts import parted, place, span, submit
from tests.kits.running import start

NODES = tuple(NodeConfig(f"cn{number}", (4, 1000)) for number in range(4))
LOW = Partition("low", ("cn0", "cn1"), default=True, preempt_mode="requeue")
MIDDLE = Partition("middle", ("cn0", "cn1", "cn2", "cn3"), tier=1, preempt_mode="cancel")
TOP = Partition("top", ("cn2", "cn3"), tier=2)
ONE = Request()


def site() -> World:
    return World(4, nodes_with=NODES, partitions=(LOW, MIDDLE, TOP))


def refusal(world: World, *requests: Request, partitions: tuple[str, ...]) -> str:
    return refused(world.send(SubmitJobs((parted(*requests, partitions=partitions),))))


def test_parts_that_never_fit_together_are_refused_at_submission() -> None:
    whole = Request(nodes_min=2, nodes_max=2, exclusive=True)
    text = refusal(site(), whole, ONE, partitions=("low", "low"))
    assert text.startswith(
        "parts 0 and 1: --exclusive: they need 3 nodes beside each other; partition low has 2"
    )
    assert submit(site(), parted(whole, ONE, partitions=("low", "middle")))


def test_limits_that_forbid_the_sum_refuse_the_job() -> None:
    world = site()
    limits = (
        Limit("alice", "user", "alice", "cores", Amount(6)),
        Limit("middle", "partition", "middle", "cores", Amount(4)),
    )
    changes = tuple(PolicyChange("add", "limit", one.name, one) for one in limits)
    assert isinstance(world.send(ChangePolicies(ROOT, changes)), Changed)
    three, four = Request(cpus_per_task=3), Request(cpus_per_task=4)
    assert submit(world, parted(three, three, partitions=("middle", "top")))
    text = refusal(world, three, ONE, three, partitions=("low", "low", "top"))
    assert text.startswith("limit alice: user alice may use 6 cores at a time, 7 are asked for")
    text = refusal(world, three, Request(cpus_per_task=2), partitions=("middle", "middle"))
    assert text.startswith("limit middle: partition middle may use 4 cores at a time, 5 are asked for")
    text = refusal(world, ONE, Request(tasks=2, cpus_per_task=4), partitions=("low", "middle"))
    assert text.startswith("part 1: limit")
    assert submit(world, parted(ONE, four, partitions=("low", "middle")))


@pytest.mark.parametrize(
    ("names", "standing"),
    [
        (("low",), Standing(0, 0, "requeue")),
        (("top", "low"), Standing(0, 2, "off")),
        (("low", "middle"), Standing(0, 1, "requeue")),
        (("middle", "top"), Standing(1, 2, "off")),
        (("middle", "gone"), Standing(0, 1, "off")),
    ],
)
def test_a_job_claims_by_its_lowest_and_gives_way_by_its_highest_partition(
    names: tuple[str, ...], standing: Standing
) -> None:
    known = {one.name: one for one in (LOW, MIDDLE, TOP)}
    assert Standing.of([known.get(name) for name in names]) == standing


def test_a_job_of_several_parts_preempts_no_more_than_each_of_them_may() -> None:
    world = site()
    victims = [submit(world, parted(ONE, partitions=(name,))) for name in ("low", "middle")]
    for number, job_id in enumerate(victims):
        place(world, job_id, span(number, 1))
    both = submit(world, parted(ONE, ONE, partitions=("low", "middle")))
    place(world, both, span(0, 1), span(1, 1, 1))
    for job_id in (*victims, both):
        start(world, job_id)
    work = {one.job_id: one for one in running_work(world.state)}
    modes = {
        names: [claim_of(world.state, world.job(job_id)).mode(work[one]) for one in (*victims, both)]
        for names in (("top",), ("middle", "top"), ("low", "top"))
        for job_id in [submit(world, parted(*[ONE] * len(names), partitions=names))]
    }
    assert modes == {
        ("top",): ["requeue", "cancel", "requeue"],
        ("middle", "top"): ["requeue", "off", "off"],
        ("low", "top"): ["off", "off", "off"],
    }


def test_a_running_job_says_what_each_part_holds() -> None:
    """Goal: limits of partitions count a running job part by part, also when some of its nodes are given back."""
    world = site()
    job_id = submit(world, parted(ONE, ONE, partitions=("low", "middle")))
    attempt = place(world, job_id, span(0, 2), span(0, 1, 1), span(1, 1, 1))
    assert attempt is not None
    assert running_of(world.job(job_id), attempt).parts == ((0, 0, (2, 0)), (1, 0, (1, 0)), (1, 1, (1, 0)))
    less = replace(attempt, held=frozenset({1}))
    assert running_of(world.job(job_id), less).parts == ((1, 1, (1, 0)),)
    still = replace(attempt, room_for=99)
    assert running_of(world.job(job_id), still).parts[0] == (0, 0, (0, 0))
    plain = submit(world, parted(ONE, partitions=("low",)))
    held = place(world, plain, span(0, 1))
    assert held is not None and running_of(world.job(plain), held).parts == ()


def test_a_job_with_a_part_that_no_other_preempts_is_above_all() -> None:
    world = site()
    job_id = submit(world, parted(ONE, ONE, partitions=("low", "top")))
    assert claim_of(world.state, world.job(job_id)).level == ABOVE_ALL
    job_id = submit(world, parted(ONE, ONE, partitions=("low", "middle")))
    assert claim_of(world.state, world.job(job_id)).level == 0
