"""Why a job of several parts waits: which part decides, which could start now, and what would help that part."""

from __future__ import annotations

from msgspec.structs import replace

from eslurm.core.explain.inquiry import would_wait
from eslurm.core.model.config import Partition
from eslurm.core.model.messages import UpdateNodes
from eslurm.core.model.partition import PartitionView
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.cycle import exhaust
from eslurm.core.plan.placement.compiled_request import compile_request, part_words
from eslurm.core.resources.nodes import Topology
from tests.kits.asking import HOUR, Site
from tests.kits.core import ROOT, SECOND, World
from tests.kits.parts import parted, submit

WHOLE = Request(exclusive=True)
PAIR = Request(tasks=2, nodes_min=2, nodes_max=2, exclusive=True)
PARTITIONS = (
    Partition("cluster", ("cn0", "cn1"), default=True),
    Partition("booster", ("cn2", "cn3", "cn4")),
)


def site() -> Site:
    return Site(World(nodes=5, restarts=False, policy="planned", partitions=PARTITIONS))


def alone(here: Site, hours: float, partition: str) -> int:
    """A job of one part on two nodes."""
    spec = replace(parted(PAIR, time_limit_s=int(hours * HOUR)), partition=partition, parts=())
    job = submit(here.world, spec)
    here.run()
    return job


def full_booster(here: Site, hours: float = 1) -> int:
    """A job on two of the three nodes of `booster`."""
    job = alone(here, hours, "booster")
    assert here.world.state_of(job) == "RUNNING"
    return job


def test_the_part_that_decides_is_named_and_those_that_could_start() -> None:
    here = site()
    holder = full_booster(here)
    job = submit(
        here.world,
        parted(WHOLE, Request(), PAIR, partitions=["cluster", "cluster", "booster"], time_limit_s=HOUR),
    )
    here.run()
    answer = here.why(job)
    end_us = here.world.now_us + HOUR * SECOND
    assert answer.start_us == end_us
    (reason,) = [one for one in answer.reasons if not one.nodes_of]
    assert reason.text == (
        "part 2: needs 2 idle nodes with 1 core each; 1 is idle; parts 0 and 1 could start now"
    )
    assert (reason.kind, reason.part, reason.until_us) == ("resources", 2, end_us)
    filters = [one for one in answer.reasons if one.nodes_of]
    assert {(one.part, one.nodes_of) for one in filters} == {(2, 3)}, "of the nodes of its own partition"
    (busy,) = [one for one in filters if one.kind == "resources"]
    assert (busy.nodes_failing, [one.job_id for one in busy.holders]) == (2, [holder])
    assert sum(one.nodes_failing for one in filters) <= 3


def test_the_part_that_waits_longest_comes_first() -> None:
    here = site()
    full_booster(here, hours=1)
    alone(here, 3, "cluster")
    half = Request(tasks=2, nodes_min=2, nodes_max=2, cpus_per_task=2)
    names = ["cluster", "booster", "booster"]
    job = submit(here.world, parted(WHOLE, half, half, partitions=names, time_limit_s=HOUR))
    here.run()
    answer = here.why(job, with_alternatives=False)
    blocking = [one for one in answer.reasons if not one.nodes_of]
    assert [one.part for one in blocking] == [0, 1]
    assert blocking[0].text.startswith("part 0: ") and blocking[1].text.startswith("parts 1 and 2: ")
    assert blocking[0].until_us - blocking[1].until_us == 2 * HOUR * SECOND
    assert {one.part for one in answer.reasons if one.nodes_of} == {0}


def test_parts_that_could_start_alone_but_not_together_say_so() -> None:
    here = site()
    full_booster(here)
    job = submit(here.world, parted(WHOLE, WHOLE, partitions=["booster", "booster"], time_limit_s=HOUR))
    here.run()
    (reason,) = here.why(job, with_alternatives=False).reasons
    assert reason.text == "its 2 parts need more than is free when they begin together"
    assert (reason.part, reason.until_us) == (-1, here.world.now_us + HOUR * SECOND)


def test_a_part_without_nodes_in_service_is_named() -> None:
    here = site()
    job = submit(here.world, parted(WHOLE, PAIR, partitions=["cluster", "booster"], time_limit_s=HOUR))
    here.world.send(UpdateNodes(ROOT, ("cn2", "cn3"), "drain", "new memory"))
    here.run()
    answer = here.why(job, with_alternatives=False)
    (reason,) = [one for one in answer.reasons if not one.nodes_of]
    assert (reason.kind, reason.part, reason.until_us) == ("nodes_unavailable", 1, 0)
    assert reason.text == (
        "part 1: needs nodes that are not in service; 2 of the 3 nodes it may use are out; part 0 could start now"
    )
    assert [one.text for one in answer.reasons if one.nodes_of] == [
        "out of service: 2 drained (cn[2-3]: new memory)"
    ]


def test_alternatives_vary_the_part_that_decides() -> None:
    here = site()
    full_booster(here, hours=2)
    spec = parted(WHOLE, PAIR, partitions=["cluster", "booster"], time_limit_s=HOUR)
    job = submit(here.world, spec)
    here.run()
    found = {one.update: one for one in here.why(job).alternatives}
    fewer = found["nodes=1"]
    assert (fewer.part, fewer.text.partition(":")[0], fewer.start_us) == (1, "part 1", here.world.now_us)
    assert [one.nodes_min for one in fewer.spec.components] == [1], "as the part by itself"
    assert all(one.part in (1, -1) for one in found.values())


def test_a_submission_on_trial_names_the_part() -> None:
    here = site()
    full_booster(here)
    spec = parted(WHOLE, PAIR, partitions=["cluster", "booster"], time_limit_s=HOUR)
    answer = exhaust(would_wait(here.world.state, here.schedule, spec, here.world.now_us))
    assert answer.start_us == here.world.now_us + HOUR * SECOND
    assert len(answer.nodes) == 3
    assert [one.part for one in answer.reasons if not one.nodes_of] == [1]


def test_numbers_of_parts_are_told_shortly() -> None:
    user = compile_request(Request(), PartitionView("main"), Topology(()))
    gateways = replace(user, role="gateway")
    assert part_words([2], [user] * 3) == "part 2"
    assert part_words([0, 1], [user] * 3) == "parts 0 and 1"
    assert part_words([0, 1, 2, 3, 5, 7], [user] * 9) == "parts 0-3, 5 and 7"
    assert part_words(range(1, 128), [user] * 128) == "parts 1-127"
    assert part_words([1, 2], [user, user, gateways]) == "part 1 and its gateways"
    assert part_words([0], [user, gateways]) == "its nodes"
    assert part_words([1], [user, gateways]) == "its gateways"
