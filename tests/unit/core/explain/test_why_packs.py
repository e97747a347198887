"""Why a pack waits: which of its jobs decides the start, and what the others wait for."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from eslurm.core.explain import packs
from eslurm.core.explain.inquiry import PACK_TRIES_MIN, Answer, would_wait_together
from eslurm.core.model.config import Partition
from eslurm.core.model.job import Dependency, JobSpec
from eslurm.core.model.messages import (
    Changed,
    JobRef,
    Refused,
    SubmitJobs,
    Submitted,
    UpdateJob,
    UpdateNodes,
)
from eslurm.core.model.pack import PackDraft
from eslurm.core.model.request import PartSpec, Request
from eslurm.core.plan.cycle.cycle import exhaust
from tests.kits.asking import HOUR, Site
from tests.kits.core import ALICE, ROOT, SECOND, World
from tests.kits.packs import member

WHOLE = Request(exclusive=True)
PAIR = Request(tasks=2, nodes_min=2, nodes_max=2, exclusive=True)
PARTITIONS = (
    Partition("cluster", ("cn0", "cn1"), default=True),
    Partition("booster", ("cn2", "cn3", "cn4")),
)


def site(policy: str = "planned") -> Site:
    return Site(World(nodes=5, restarts=False, policy=policy, partitions=PARTITIONS))


def one(request: Request, partition: str = "cluster", hours: float = 1, **more: object) -> JobSpec:
    spec = {"components": (request,), "partition": partition, "time_limit_s": int(hours * HOUR), **more}
    return member(**spec)


def submit(here: Site, *specs: JobSpec, delays: tuple[int, ...] = ()) -> tuple[int, ...]:
    answer = here.world.send(SubmitJobs(specs, (PackDraft(0, delays),) if delays else ()))
    assert isinstance(answer, Submitted), answer
    here.run()
    return answer.job_ids


def blocking(answer: Answer) -> list[str]:
    return [one.text for one in answer.reasons if not one.nodes_of]


@pytest.mark.parametrize("policy", ["planned", "conservative", "easy", "fcfs"])
def test_the_job_that_decides_is_named(policy: str) -> None:
    here = site(policy)
    (holder,) = submit(here, one(PAIR, "booster", 2))
    assert here.world.state_of(holder) == "RUNNING"
    jobs = submit(here, one(WHOLE), one(PAIR, "booster"), one(WHOLE), delays=(0, 1800, 5))
    end_us = here.world.now_us + 2 * HOUR * SECOND
    answer = here.why(jobs[0])
    assert answer.start_us == end_us - 1800 * SECOND, "the second begins when the nodes are free"
    (text,) = blocking(answer)
    assert text.startswith(f"part 1 (job {jobs[1]}, 00:30:00 after the first): "), text
    filters = [one for one in answer.reasons if one.nodes_of]
    assert {one.nodes_of for one in filters} == {3}, "of the nodes of its own partition"
    assert holder in [holder.job_id for one in filters for holder in one.holders]


def test_the_others_start_with_the_first() -> None:
    here = site()
    submit(here, one(PAIR, "booster", 2))
    jobs = submit(here, one(WHOLE), one(PAIR, "booster"), delays=(0, 1800))
    first, second = here.why(jobs[0]), here.why(jobs[1])
    assert second.start_us == first.start_us + 1800 * SECOND and not second.is_estimate
    assert len(second.nodes) == 2
    (reason,) = second.reasons
    assert (reason.kind, reason.until_us) == ("pack", second.start_us)
    assert reason.text == f"starts 00:30:00 after job {jobs[0]}, the first of its pack"
    assert not second.alternatives, "those of the first say which job is to change"


def test_a_pack_without_a_start_says_which_job_has_none() -> None:
    here = site()
    jobs = submit(here, one(WHOLE, held=True), one(PAIR, "booster"), delays=(0, 60))
    assert [one.kind for one in here.why(jobs[0]).reasons] == ["hold"]
    kinds = [one.kind for one in here.why(jobs[1]).reasons]
    assert sorted(kinds) == ["hold", "pack"]
    assert "no planned start: eswhy" in " ".join(blocking(here.why(jobs[1])))


def test_nodes_out_of_service_are_those_of_the_job_that_decides() -> None:
    here = site()
    here.world.send(UpdateNodes(ROOT, ("cn2", "cn3"), "drain", "new memory"))
    jobs = submit(here, one(WHOLE), one(PAIR, "booster"), delays=(0, 60))
    answer = here.why(jobs[0])
    assert answer.start_us == 0
    (text,) = blocking(answer)
    assert text.startswith(
        f"part 1 (job {jobs[1]}, 00:01:00 after the first): needs nodes that are not in service"
    )


def test_a_job_whose_pack_has_begun_starts_at_its_delay() -> None:
    here = site()
    jobs = submit(here, one(WHOLE), one(PAIR, "booster"), delays=(0, 600))
    assert here.world.state_of(jobs[0]) == "RUNNING"
    answer = here.why(jobs[1])
    place = here.world.job(jobs[1]).pack
    assert place is not None and place.anchor_us
    assert answer.start_us == place.anchor_us + 600 * SECOND
    (text,) = blocking(answer)
    assert text == "its pack has begun: it starts at its delay after the first job"


def test_a_pack_that_is_not_planned_yet_gets_an_estimate() -> None:
    here = site()
    submit(here, one(PAIR, "booster", 2))
    jobs = here.world.send(SubmitJobs((one(WHOLE), one(PAIR, "booster")), (PackDraft(0, (0, 1800)),))).job_ids
    answer = here.why(jobs[0])
    assert answer.is_estimate and answer.start_us == here.world.now_us + (2 * HOUR - 1800) * SECOND
    assert any(text.startswith("part 1 ") for text in blocking(answer))


def test_jobs_behind_a_pack_are_asked_about_with_its_places() -> None:
    here = site()
    submit(here, one(PAIR, "booster", 2))
    world = here.world
    world.send(SubmitJobs((one(WHOLE), one(PAIR, "booster", 3)), (PackDraft(0, (0, 1800)),)))
    later = world.send(SubmitJobs((one(Request(tasks=3, nodes_min=3, exclusive=True), "booster"),))).job_ids[
        0
    ]
    assert here.why(later).start_us >= world.now_us + 5 * HOUR * SECOND


def test_a_pack_that_is_only_asked_about_gets_a_start_for_each_job() -> None:
    here = site()
    submit(here, one(PAIR, "booster", 2))
    world = here.world
    before = (world.state.next_id, len(world.state.jobs))
    message = SubmitJobs((one(WHOLE), one(PAIR, "booster"), one(WHOLE)), (PackDraft(0, (0, 1800, 5)),))
    answers = exhaust(would_wait_together(world.state, here.schedule, message, world.now_us))
    start_us = world.now_us + (2 * HOUR - 1800) * SECOND
    assert [answer.start_us - start_us for answer in answers] == [0, 1800 * SECOND, 5 * SECOND]
    assert [len(answer.nodes) for answer in answers] == [1, 2, 1]
    (text,) = blocking(answers[0])
    assert text.startswith("part 1 (00:30:00 after the first): ")
    assert blocking(answers[1]) == ["starts 00:30:00 after the first job of the pack"]
    assert (world.state.next_id, len(world.state.jobs)) == before, "nothing is submitted"
    jobs = submit(here, *message.specs, delays=(0, 1800, 5))
    assert [here.why(job_id).start_us for job_id in jobs] == [answer.start_us for answer in answers]


def test_a_pack_that_would_be_refused_is_refused_when_asked_about() -> None:
    here = site()
    message = SubmitJobs((one(WHOLE), one(Request(nodes_min=9), "booster")), (PackDraft(0, (0, 5)),))
    with pytest.raises(Refused, match="part 1: "):
        exhaust(would_wait_together(here.world.state, here.schedule, message, here.world.now_us))


def test_a_job_behind_a_pack_names_those_that_have_not_ended() -> None:
    here = site("conservative")
    first, second = submit(here, one(WHOLE), one(WHOLE, hours=2), delays=(0, 1800))
    now_us = here.world.now_us
    (waiting,) = submit(here, one(WHOLE, dependencies=(Dependency("afterok", first),)))
    answer = here.why(waiting)
    (reason,) = [one for one in answer.reasons if one.kind == "dependency"]
    assert reason.text == f"waits for pack {first} (afterok): 2 of its 2 jobs have not ended"
    assert reason.until_us == now_us + 1800 * SECOND + 2 * HOUR * SECOND, "the end of the last one"
    assert {holder.job_id for holder in reason.holders} == {first, second}
    assert answer.start_us >= reason.until_us


def test_less_for_the_job_that_decides_lets_the_whole_pack_start_earlier() -> None:
    here = site()
    submit(here, one(PAIR, "booster", 2))
    jobs = submit(here, one(WHOLE), one(PAIR, "booster"), one(WHOLE), delays=(0, 1800, 5))
    before = here.why(jobs[0])
    (fewer,) = [way for way in before.alternatives if way.option.startswith("--nodes")]
    assert (fewer.job_id, fewer.start_us) == (jobs[1], here.world.now_us)
    assert fewer.text == f"job {jobs[1]}: 1 node instead of 2" and fewer.nodes == 1
    assert fewer.update.startswith("nodes=1"), fewer.update
    assert not here.why(jobs[0], with_alternatives=False).alternatives
    assert here.why(jobs[0]) == before, "asking changes nothing"
    # Taken, it holds.
    changed = here.world.send(UpdateJob(ALICE, JobRef(jobs[1]), request=fewer.spec.components[0]))
    assert isinstance(changed, Changed) and not changed.problems, changed
    here.run()
    assert here.world.state_of(jobs[0]) == "RUNNING"


def test_a_part_of_the_job_that_decides_is_named() -> None:
    here = site()
    submit(here, one(PAIR, "booster", 2))
    spec = one(WHOLE)
    several = replace(
        spec, components=(WHOLE, PAIR), parts=(PartSpec("cluster"), PartSpec("booster")), time_limit_s=3600
    )
    jobs = submit(here, one(WHOLE), several, delays=(0, 1800))
    (fewer,) = [way for way in here.why(jobs[0]).alternatives if way.option.startswith("--nodes")]
    assert (fewer.job_id, fewer.part) == (jobs[1], 1)
    assert fewer.text == f"job {jobs[1]}: part 1: 1 node instead of 2"


def test_a_change_that_the_pack_could_not_have_is_not_offered() -> None:
    """The partition `short` allows no delay, so the second job cannot go there."""
    partitions = (*PARTITIONS, Partition("short", ("cn5", "cn6"), delay_max_s=60))
    here = Site(World(nodes=7, restarts=False, policy="planned", partitions=partitions))
    submit(here, one(PAIR, "booster", 2))
    jobs = submit(here, one(WHOLE), one(PAIR, "booster"), delays=(0, 1800))
    options = [way.option for way in here.why(jobs[0]).alternatives]
    assert options and "--partition short" not in options
    jobs = submit(here, one(WHOLE), one(PAIR, "booster"), delays=(0, 30))
    assert "--partition short" in [way.option for way in here.why(jobs[0]).alternatives]


def test_a_large_pack_makes_few_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    here = site()
    submit(here, one(PAIR, "booster", 2))
    jobs = submit(
        here, one(PAIR, "booster"), *[one(WHOLE, hours=0.01)] * 60, delays=tuple(range(0, 3660, 60))
    )
    made: list[int] = []
    whole = packs.first_start

    def counted(*given: Any) -> Any:
        made.append(1)
        return whole(*given)

    monkeypatch.setattr(packs, "first_start", counted)
    here.why(jobs[0])
    assert 0 < len(made) <= PACK_TRIES_MIN
