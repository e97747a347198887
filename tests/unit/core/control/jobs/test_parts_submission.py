"""Each part of a job is admitted to its own partition; the job has one time limit, and counts once in each partition."""

from __future__ import annotations

import pytest

from eslurm.core.control.accounts.defaults import with_defaults
from eslurm.core.control.jobs.comparing import asks_for_more
from eslurm.core.model.accounts import Access, Amount, Defaults, FreePool, Limit, Policy, Validity, kind_of
from eslurm.core.model.config import NodeConfig, Partition
from eslurm.core.model.job import JobSpec
from eslurm.core.model.messages import Changed, ChangePolicies, JobRef, PolicyChange, SubmitJobs, UpdateJob
from eslurm.core.model.request import PartSpec, Request
from tests.kits.core import ALICE, ROOT, SECOND, World, problem, refused
from tests.kits.parts import parted, place, span, submit

ONE = Request()
NODES = (
    *(NodeConfig(f"cn{number}", (4, 1000)) for number in range(2)),
    *(NodeConfig(f"cn{number}", (8, 4000), features=("fast",)) for number in (2, 3)),
)
CLUSTER = Partition("cluster", ("cn0", "cn1"), default=True, time_limit_default_s=600, time_limit_max_s=7200)
BOOSTER = Partition("booster", ("cn2", "cn3"), time_limit_max_s=3600)


def site(*partitions: Partition) -> World:
    return World(4, nodes_with=NODES, partitions=partitions or (CLUSTER, BOOSTER))


def rule(world: World, *policies: Policy) -> None:
    changes = tuple(PolicyChange("add", kind_of(one), one.name, one) for one in policies)
    assert isinstance(world.send(ChangePolicies(ROOT, changes)), Changed)


def admitted(world: World, spec: JobSpec) -> JobSpec:
    return world.job(submit(world, spec)).spec


def refusal(world: World, spec: JobSpec) -> str:
    return refused(world.send(SubmitJobs((spec,))))


def names(spec: JobSpec) -> list[str]:
    return [part.partition for part in spec.parts]


# ---- partitions ----


def test_each_part_gets_its_partition_by_name() -> None:
    """Goal: a part without a partition is in the job's; the job's is that of its first part. Admitting it again changes
    nothing."""
    world = site()
    spec = admitted(world, parted(ONE, ONE, partitions=("", "booster")))
    assert (spec.partition, names(spec)) == ("cluster", ["cluster", "booster"])
    other = admitted(world, parted(ONE, ONE, ONE, partitions=("booster", "", "cluster")))
    assert (other.partition, names(other)) == ("booster", ["booster", "cluster", "cluster"])
    assert admitted(world, other) == other


def test_requests_without_parts_are_parts_of_the_jobs_partition() -> None:
    world = site()
    draft = parted(ONE, ONE)
    assert (
        names(admitted(world, JobSpec(draft.name, ALICE, "", (ONE, ONE), b"", b"", "/"))) == ["cluster"] * 2
    )


def test_a_job_of_one_part_has_none() -> None:
    spec = admitted(site(), parted(ONE, partitions=("booster",)))
    assert (spec.partition, spec.parts) == ("booster", ())


def test_no_default_partition_is_needed_when_each_part_names_one() -> None:
    world = site(Partition("a", ("cn0",)), Partition("b", ("cn1",)))
    assert names(admitted(world, parted(ONE, ONE, partitions=("a", "b")))) == ["a", "b"]
    text = refusal(world, parted(ONE, ONE, partitions=("a", "")))
    assert text == "part 1: --partition: there is no default partition: name one"


def test_refusals_name_the_part() -> None:
    world = site()
    text = refusal(world, parted(ONE, ONE, partitions=("", "nowhere")))
    assert text.startswith("part 1: --partition: 'nowhere' does not exist: use one of booster, cluster")
    text = refusal(world, parted(ONE, Request(cpus_per_task=5), partitions=("booster", "cluster")))
    assert text.startswith("part 1: --cpus-per-task: one task needs 5 cores on one node")
    text = refusal(world, parted(Request(nodes_min=3, nodes_max=3), ONE))
    assert text.startswith("part 0: --nodes: needs 3 nodes")
    assert "part" not in refusal(world, parted(Request(cpus_per_task=5))).split("partition")[0]


def test_parts_and_requests_have_to_be_as_many() -> None:
    world = site()
    draft = parted(ONE, ONE)
    odd = JobSpec("job", ALICE, "", (ONE, ONE), b"", b"", "/", parts=(*draft.parts, PartSpec()))
    assert "2 requests and 3 parts" in refusal(world, odd)


# ---- one time limit ----


@pytest.mark.parametrize(
    ("partitions", "asked_s", "limit_s"),
    [
        (("cluster", "booster"), 0, 600),
        (("booster", "cluster"), 0, 600),
        (("booster", "booster"), 0, 3600),
        (("open", "open"), 0, 0),
        (("open", "booster"), 0, 3600),
        (("cluster", "booster"), 3600, 3600),
    ],
)
def test_the_limit_is_the_least_of_the_partitions(
    partitions: tuple[str, ...], asked_s: int, limit_s: int
) -> None:
    world = site(CLUSTER, BOOSTER, Partition("open", ("cn3",)))
    spec = admitted(world, parted(ONE, ONE, partitions=partitions, time_limit_s=asked_s))
    assert spec.time_limit_s == limit_s


def test_a_limit_above_one_partitions_maximum_names_the_part() -> None:
    text = refusal(site(), parted(ONE, ONE, partitions=("", "booster"), time_limit_s=3601))
    assert text.startswith("part 1: --time: 3601 s is more than partition booster allows (3600 s)")


# ---- defaults and forced values ----


def test_defaults_fill_what_a_part_leaves_out() -> None:
    record = Defaults("d", values=(("constraint", "fast"), ("mem-per-cpu", "7"), ("partition", "booster")))
    asks = Request(constraint="slow", memory_per_node_mib=9)
    filled = with_defaults(parted(ONE, asks, ONE, partitions=("", "cluster", "")), [record])
    assert [one.constraint for one in filled.components] == ["fast", "slow", "fast"]
    assert [one.memory_per_cpu_mib for one in filled.components] == [7, 0, 7]
    assert (filled.partition, names(filled)) == ("booster", ["", "cluster", ""])
    assert with_defaults(filled, [record]) == filled


def test_a_default_partition_is_for_the_parts_that_name_none() -> None:
    """Goal: the record for the user comes before the site's default partition, as for a job of one part."""
    world = site()
    assert names(admitted(world, parted(ONE, ONE, partitions=("booster", "")))) == ["booster", "cluster"]
    rule(world, Defaults("d", values=(("partition", "booster"),)))
    assert names(admitted(world, parted(ONE, ONE, partitions=("cluster", "")))) == ["cluster", "booster"]


def test_forced_values_hold_for_every_part() -> None:
    record = Defaults("d", forced=(("constraint", "fast"), ("mem-per-cpu", "7"), ("partition", "booster")))
    asks = Request(constraint="slow", memory_per_node_mib=9)
    forced = with_defaults(parted(ONE, asks, partitions=("", "cluster")), [record])
    assert [one.constraint for one in forced.components] == ["fast", "fast"]
    assert [(one.memory_per_cpu_mib, one.memory_per_node_mib) for one in forced.components] == [(7, 0)] * 2
    assert (forced.partition, names(forced)) == ("booster", ["", ""])
    world = site()
    rule(world, record)
    assert names(admitted(world, parted(ONE, ONE, partitions=("cluster", "")))) == ["booster"] * 2


# ---- counts ----


def test_a_job_counts_once_for_its_user_and_once_in_each_partition() -> None:
    """Goal: limits of jobs see one job, in each of its partitions. Method: the same at its end."""
    world = site()
    job_id = submit(world, parted(ONE, ONE, ONE, partitions=("", "booster", "booster")))
    counts = world.state.job_counts.counts
    assert counts["user", "alice"] == counts["partition", "cluster"] == counts["partition", "booster"] == 1
    world.cancel(job_id)
    assert not world.state.job_counts.counts


def test_a_limit_of_jobs_holds_in_each_partition() -> None:
    world = site()
    rule(
        world,
        Limit("few", "partition", "booster", "jobs", Amount(1)),
        Limit("some", "user", "alice", "jobs", Amount(2)),
    )
    submit(world, parted(ONE, ONE, ONE, partitions=("", "booster", "booster")))
    text = refusal(world, parted(ONE, ONE, partitions=("", "booster")))
    assert "limit few" in text and "1 are there and 1 would come" in text
    submit(world, parted(ONE, ONE))
    assert "limit some" in refusal(world, parted(ONE, ONE))


def test_an_update_counts_only_new_partitions() -> None:
    """Goal: a waiting job whose partition is at its limit may still change; a part that moves there may not."""
    world = site()
    first = submit(world, parted(ONE, ONE, partitions=("", "booster")))
    second = submit(world, parted(ONE, ONE))
    rule(world, Limit("few", "partition", "booster", "jobs", Amount(1)))
    assert world.send(UpdateJob(ALICE, JobRef(first), time_limit_s=60)) == Changed(1)
    answer = world.send(UpdateJob(ALICE, JobRef(second, part=1), partition="booster"))
    assert "limit few" in problem(answer)


def test_a_limit_that_never_lets_a_part_in_names_it() -> None:
    world = site()
    rule(world, Limit("small", "partition", "booster", "cores", Amount(1)))
    text = refusal(world, parted(Request(tasks=3), Request(tasks=2), partitions=("", "booster")))
    assert text.startswith("part 1: ") and "limit small" in text
    submit(world, parted(Request(tasks=3), ONE, partitions=("", "booster")))


# ---- closed times ----


@pytest.mark.parametrize(("node", "below"), [(0, 3), (1, 3), (1, 4)])
def test_an_extension_ends_where_the_nodes_of_any_part_close(node: int, below: int) -> None:
    """Goal: a pool for small jobs closes its node to a job whose parts together are large, as in plans."""
    world = site()
    job_id = submit(world, parted(ONE, Request(tasks=2), time_limit_s=100))
    place(world, job_id, span(0, 1), span(node, 2, 1))
    world.deliver()
    world.deliver()
    closes = Validity(world.now_us + 105 * SECOND, world.now_us + 900 * SECOND)
    rule(world, FreePool("later", nodes=f"cn{node}", validity=closes, access=(Access(items_below=below),)))
    answer = world.send(UpdateJob(ALICE, JobRef(job_id), time_limit_s=110))
    if below > 3:
        assert answer == Changed(1)
        return
    assert f"cn{node}" in problem(answer) and "at most 105 s" in problem(answer)
    assert world.send(UpdateJob(ALICE, JobRef(job_id), time_limit_s=104)) == Changed(1)


def test_another_partition_of_a_part_is_more() -> None:
    before = parted(ONE, ONE, partitions=("cluster", "booster"), time_limit_s=60)
    after = parted(ONE, ONE, partitions=("cluster", "cluster"), time_limit_s=60)
    assert asks_for_more(before, after) and not asks_for_more(before, before)
