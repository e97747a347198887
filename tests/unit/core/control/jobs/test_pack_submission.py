"""Submission of packs: all of its jobs or none, and a refusal that names the part, the value and the way out."""

from __future__ import annotations

import pytest

from eslurm.core.control.jobs import pack_submission
from eslurm.core.control.jobs.pack_submission import overlapping
from eslurm.core.model.accounts import Account, Amount, Limit
from eslurm.core.model.config import NodeRule, Partition, Resource
from eslurm.core.model.job import ArraySpec
from eslurm.core.model.messages import (
    Changed,
    ChangePolicies,
    JobRef,
    PolicyChange,
    Refused,
    SubmitJobs,
    Submitted,
    UpdateJob,
)
from eslurm.core.model.pack import PackDraft, PackPlace
from eslurm.core.model.request import Request
from eslurm.core.model.request_limits import PACK_DELAY_MAX_S, PACK_MEMBERS_MAX
from eslurm.core.plan.placement import beside
from tests.kits.core import ALICE, ROOT, SECOND, World, depends, refused
from tests.kits.packs import member, pack, try_pack


def test_each_job_gets_its_place() -> None:
    world = World()
    specs = [member(name) for name in ("alone", "a", "b", "c", "d", "e")]
    drafts = (PackDraft(1, (0, 5)), PackDraft(3, (0, 0, 7)))
    answer = world.send(SubmitJobs(tuple(specs), drafts))
    assert isinstance(answer, Submitted)
    places = [world.job(job_id).pack for job_id in answer.job_ids]
    assert places == [
        None,
        PackPlace(2, 0, 2),
        PackPlace(2, 1, 2, 5 * SECOND),
        PackPlace(4, 0, 3),
        PackPlace(4, 1, 3),
        PackPlace(4, 2, 3, 7 * SECOND),
    ]
    assert world.state.packs == {2: (2, 3), 4: (4, 5, 6)}


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (member(array=ArraySpec(((0, 3),))), ("part 1: --array", "submit it apart")),
        (member(dependencies=depends("singleton")), ("part 1: --dependency", "give it to the first part")),
        (member(begin_us=10**16), ("part 1: --begin", "give it to the first part")),
        (member(start_at_us=10**16), ("part 1: --start-at", "use --begin")),
        (member(partition="nowhere"), ("part 1: --partition", "nowhere", "main")),
        (member(components=(Request(nodes_min=9, nodes_max=9),)), ("part 1: ", "9")),
        (
            member(deadline_us=1_040 * SECOND, time_limit_s=20),
            ("part 1: --deadline", "begins 30 s after", "later"),
        ),
    ],
)
def test_what_a_part_cannot_ask_for(second: object, said: tuple[str, ...]) -> None:
    world = World()
    text = refused(try_pack(world, member(), second, delays=(0, 30)))  # type: ignore[arg-type]
    for words in said:
        assert words in text
    assert not world.state.jobs


def test_the_first_part_has_no_fixed_start_either() -> None:
    text = refused(try_pack(World(), member(start_at_us=10**16), member(), delays=(0, 30)))
    assert "part 0: --start-at: a pack has no fixed start: use --begin" in text


@pytest.mark.parametrize(
    ("draft", "said"),
    [
        (PackDraft(0, (0,)), "it has 1 parts: give 2 to 128"),
        (PackDraft(0, ()), "it has 0 parts"),
        (PackDraft(0, (0,) * (PACK_MEMBERS_MAX + 1)), "it has 129 parts"),
        (PackDraft(2, (0, 1)), "jobs 2 to 3 of a call of 3"),
        (PackDraft(-1, (0, 1)), "jobs -1 to 0"),
        (PackDraft(0, (5, 10)), "part 0: --delay: 5 s"),
        (PackDraft(0, (0, -1)), "part 1: --delay: -1 s is not within"),
        (PackDraft(0, (0, PACK_DELAY_MAX_S + 1)), "part 1: --delay: "),
    ],
)
def test_what_is_no_pack(draft: PackDraft, said: str) -> None:
    world = World()
    assert said in refused(world.send(SubmitJobs((member(), member(), member()), (draft,))))
    assert not world.state.jobs


def test_a_job_is_in_one_pack_only() -> None:
    drafts = (PackDraft(0, (0, 1)), PackDraft(1, (0, 1)))
    answer = World().send(SubmitJobs((member(), member(), member()), drafts))
    assert refused(answer) == "pack: job 1 of the call is in two packs"


def test_delays_are_bounded_by_the_partition_and_the_cluster() -> None:
    partitions = (
        Partition("main", ("cn0",), default=True),
        Partition("short", ("cn1",), delay_max_s=60),
    )
    world = World(2, partitions=partitions, delay_max_s=600)
    said = refused(try_pack(world, member(), member(), delays=(0, 601)))
    assert "part 1: --delay: 601 s is more than the cluster allows (600 s): ask for less" in said
    said = refused(try_pack(world, member(), member(partition="short"), delays=(0, 61)))
    assert "part 1: --delay: 61 s is more than partition short allows (60 s)" in said
    assert isinstance(try_pack(world, member(), member(partition="short"), delays=(0, 60)), Submitted)


def test_parts_that_run_at_the_same_time_have_to_fit_together() -> None:
    """Goal: a pack that can never run is refused, and says which of its parts."""
    whole = (Request(nodes_min=3, nodes_max=3, exclusive=True),)
    world = World(4)
    first, second, third = (
        member(time_limit_s=40),
        member(time_limit_s=100, components=whole),
        member(time_limit_s=100, components=whole),
    )
    said = refused(try_pack(world, first, second, third, delays=(0, 10, 50)))
    assert "parts 1 and 2: --exclusive: they need 6 nodes beside each other; partition main has 4" in said
    assert "they run at the same time" in said
    # The second has ended by then.
    assert isinstance(try_pack(world, first, second, third, delays=(0, 10, 110)), Submitted)


def test_a_pack_without_a_place_on_empty_nodes_is_refused() -> None:
    """Goal: a pack that fits by its sums, and no node has room for all of it, does not stand before others for ever."""
    world = World(4, 4)
    first = member(
        components=(Request(nodes_min=3, nodes_max=3, tasks=3, cpus_per_task=4),), time_limit_s=100
    )
    second = member(components=(Request(nodes_min=2, nodes_max=2, tasks=2),), time_limit_s=30)
    said = refused(try_pack(world, first, second, delays=(0, 60)))
    assert "parts 0 and 1: they do not fit the nodes of partition main: ask for less" in said
    assert isinstance(try_pack(world, first, second, delays=(0, 100)), Submitted)


def test_parts_that_fit_in_pairs_and_never_in_their_chain_are_refused() -> None:
    """Goal: the first part overlaps each of the others, and fits beside either of them on other nodes only."""
    world = World(2, 4)
    first, on_one, on_two = (
        member(time_limit_s=limit_s, components=(Request(cpus_per_task=3, include=include),))
        for limit_s, include in ((100, ()), (10, ("cn0",)), (10, ("cn1",)))
    )
    assert isinstance(try_pack(world, first, on_one, on_one, delays=(0, 10, 50)), Submitted)
    said = refused(try_pack(world, first, on_one, on_two, delays=(0, 10, 50)))
    assert "parts 0, 1 and 2: they do not fit the nodes of partition main: ask for less" in said


def test_a_search_that_comes_to_no_end_says_no_more_than_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "STEPS_MAX", 3)
    monkeypatch.setattr(beside, "FIRST_MAX", 3)
    world = World(4, 4)
    wide = member(components=(Request(nodes_min=3, nodes_max=3, tasks=3, cpus_per_task=4),))
    two = member(components=(Request(nodes_min=2, nodes_max=2, tasks=2),))
    said = refused(try_pack(world, wide, two, delays=(0, 1)))
    assert "parts 0 and 1: no place beside each other is found on the empty nodes of partition main" in said


def test_a_job_that_may_have_more_nodes_leaves_them_to_the_others() -> None:
    world = World(4, 4)
    wide = member(components=(Request(nodes_min=1, nodes_max=4, tasks=4, cpus_per_task=1, exclusive=True),))
    assert isinstance(try_pack(world, wide, wide, delays=(0, 60)), Submitted)
    # It needs more than the least that it names: two nodes.
    two = member(components=(Request(nodes_min=1, nodes_max=4, tasks=2, cpus_per_task=4),))
    assert isinstance(try_pack(world, wide, two, delays=(0, 60)), Submitted)


def test_short_jobs_count_on_the_nodes_for_short_jobs() -> None:
    world = World(2, 4, node_rules=(NodeRule(("cn1",), time_max_s=60),))
    whole = (Request(cpus_per_task=4),)
    short, long = member(components=whole, time_limit_s=50), member(components=whole, time_limit_s=5000)
    assert isinstance(try_pack(world, long, short, delays=(0, 10)), Submitted)
    assert "parts 0 and 1" in refused(try_pack(world, long, long, delays=(0, 10)))


def test_a_call_with_too_much_to_check_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: packs beyond what is checked would pass unchecked."""
    monkeypatch.setattr(pack_submission, "TOGETHER_MAX", 5)
    world = World()
    same = (member(time_limit_s=9), member(time_limit_s=9)) * 3
    drafts = (PackDraft(0, (0, 1)), PackDraft(2, (0, 1)), PackDraft(4, (0, 1)))
    assert isinstance(world.send(SubmitJobs(same, drafts)), Submitted)
    different = tuple(member(time_limit_s=9 + number) for number in range(6))
    assert "submit the packs in several calls" in refused(world.send(SubmitJobs(different, drafts)))


def test_licences_count_in_sum() -> None:
    world = World(resources=(Resource("gold", wide_total=3),))
    two = (Request(wide=(("gold", 2),)),)
    first, second = member(components=two, time_limit_s=50), member(components=two, time_limit_s=50)
    assert "gold" in refused(try_pack(world, first, second, delays=(0, 49)))
    assert isinstance(try_pack(world, first, second, delays=(0, 50)), Submitted)


def test_stays_that_overlap() -> None:
    assert overlapping([(0, 10), (5, 10), (10, 0), (20, 1)]) == [(0, 1), (1, 2), (2, 3)]
    assert overlapping([(0, 0), (5, 1), (9, 9)]) == [(0, 1), (0, 2)]
    assert overlapping([(0, 5), (5, 5)]) == []


def test_a_pack_is_held_as_a_whole_if_any_part_asks_for_it() -> None:
    world = World()
    try_pack(world, member(), member(held=True), delays=(0, 5))
    assert [job.hold for job in world.state.jobs.values()] == ["user", "user"]
    assert not len(world.state.queue)


def test_each_job_counts_in_the_queue() -> None:
    world = World(pending_jobs_max=3)
    pack(world, 0, 1)
    assert isinstance(try_pack(world, member(), member(), delays=(0, 1)), Refused)


def test_a_pack_waits_for_the_dependency_of_its_first_part() -> None:
    world = World()
    other = world.submit()
    answer = try_pack(world, member(dependencies=depends("afterok", other)), member(), delays=(0, 5))
    assert isinstance(answer, Submitted)
    first, second = answer.job_ids
    assert first in world.state.later
    assert second not in world.state.queue and second not in world.state.later
    world.start()
    world.end(other)
    entry = world.state.queue.find(first)
    assert entry is not None and len(entry.followers) == 1


def test_a_dependency_that_can_never_be_met_ends_all_of_it() -> None:
    world = World()
    other = world.submit()
    answer = try_pack(world, member(dependencies=depends("afterok", other)), member(), delays=(0, 5))
    assert isinstance(answer, Submitted)
    world.start()
    world.end(other, 1)
    assert [world.state_of(job_id) for job_id in answer.job_ids] == ["CANCELLED", "CANCELLED"]
    assert world.state.packs == {}


def test_a_pack_waits_for_the_begin_time_of_its_first_part() -> None:
    world = World()
    begin_us = world.now_us + 60 * SECOND
    answer = try_pack(world, member(begin_us=begin_us), member(), delays=(0, 5))
    assert isinstance(answer, Submitted)
    entry = world.state.later.find(answer.job_ids[0])
    assert entry is not None and entry.not_before_us == begin_us and len(entry.followers) == 1
    world.pass_time(61)
    assert answer.job_ids[0] in world.state.queue


def test_limits_count_in_sum() -> None:
    world = World()
    limit = Limit("few", "user", "alice", "cores", Amount(6))
    change = PolicyChange("add", "limit", limit.name, limit)
    assert isinstance(world.send(ChangePolicies(ROOT, (change,))), Changed)
    four = (Request(cpus_per_task=4),)
    first, second = member(components=four, time_limit_s=50), member(components=four, time_limit_s=50)
    assert refused(try_pack(world, first, second, delays=(0, 49))) == (
        "parts 0 and 1: limit few: user alice may use 6 cores at a time, 8 are asked for: ask for at most 6; "
        "with these delays and time limits they run at the same time"
    )
    answer = try_pack(world, first, second, delays=(0, 50))
    assert isinstance(answer, Submitted), answer
    text = str(world.send(UpdateJob(ALICE, JobRef(answer.job_ids[0]), time_limit_s=60)))
    assert "parts 0 and 1: limit few: " in text, "nor by a change"


def test_jobs_of_other_accounts_are_counted_by_themselves() -> None:
    world = World()
    limit = Limit("few", "account", "small", "cores", Amount(6))
    changes = [PolicyChange("add", "account", name, Account(name)) for name in ("small", "other")]
    changes.append(PolicyChange("add", "limit", limit.name, limit))
    answer = world.send(ChangePolicies(ROOT, tuple(changes)))
    assert isinstance(answer, Changed), answer
    four = (Request(cpus_per_task=4),)
    small, other = member(components=four, account="small"), member(components=four, account="other")
    assert isinstance(try_pack(world, small, other, delays=(0, 0)), Submitted)
    assert "limit few" in refused(try_pack(world, small, small, delays=(0, 0)))
