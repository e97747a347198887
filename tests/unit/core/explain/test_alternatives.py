"""Alternatives for jobs with devices, chunks, features and licences: those offered, those not, and the bound of tries."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from msgspec.structs import replace

from eslurm.core.explain.alternatives import ALTERNATIVES_MAX, TRIES_MAX, alternatives
from eslurm.core.explain.request_variants import PARTITIONS_MAX, Choices
from eslurm.core.model.accounts import Amount, Limit, Policy, Reservation, Validity
from eslurm.core.model.config import NodeConfig, Partition, Resource
from eslurm.core.model.job import ArraySpec, JobSpec
from eslurm.core.model.messages import ConfigLoaded, SubmitJobs, Submitted
from eslurm.core.model.request import Chunk, Request
from eslurm.core.plan.profile.search import Start
from eslurm.core.resources.timeline import INFINITY_US
from tests.kits.asking import HOUR, Site
from tests.kits.core import ALICE, SECOND, World, depends
from tests.unit.core.control.accounts.test_policies import put

RESOURCES = (Resource("gpu", devices=True), Resource("fpga"), Resource("matlab", wide_total=4))
NODES = (
    NodeConfig("cn0", (8, 4000, 4), ("ib",), device_type="a100"),
    NodeConfig("cn1", (8, 4000, 4), ("ib",), device_type="a100"),
    NodeConfig("cn2", (8, 4000, 4), (), device_type="v100"),
    NodeConfig("cn3", (8, 4000, 0), (), 0),
)
A100, V100, PLAIN = ("cn0", "cn1"), ("cn2",), ("cn3",)
EVERY = Partition("main", (*A100, *V100, *PLAIN), default=True)


def site(*policies: Policy, partitions: tuple[Partition, ...] = (EVERY,), **config: object) -> Site:
    world = World(0, restarts=False, policy="planned")
    changes = {"nodes": NODES, "partitions": partitions, "resources": RESOURCES, **config}
    world.send(ConfigLoaded(replace(world.state.config, **changes)))
    for number in range(len(NODES)):
        world.register(number)
    if policies:
        world.send(put(*policies))
    return Site(world)


def gpus(items: int, constraint: str = "", **fields: object) -> Request:
    """One node with so many GPUs."""
    return Request(
        nodes_min=1,
        nodes_max=1,
        per_node=(("gpu", items),),
        constraint=constraint,
        **fields,  # type: ignore[arg-type]
    )


def submit(here: Site, request: Request, hours: int, partition: str = "", **fields: object) -> int:
    if "tasks" in fields:
        fields = {"array": ArraySpec(fields["tasks"], fields.get("limit", 0))}  # type: ignore[arg-type]
    spec = JobSpec(
        "job",
        ALICE,
        partition,
        (request,),
        b"s" * 32,
        b"e" * 32,
        "/tmp",
        hours * HOUR,
        **fields,  # type: ignore[arg-type]
    )
    answer = here.world.send(SubmitJobs((spec,)))
    assert isinstance(answer, Submitted), answer
    return answer.job_ids[0]


def occupy(here: Site, items: int, *names: str, hours: int = 1, cores: int = 1) -> None:
    """So many GPUs and cores of each of these nodes are in use."""
    for name in names:
        request = Request(include=(name,), cpus_per_task=cores, per_node=(("gpu", items),) if items else ())
        submit(here, request, hours)
    here.run()


def offered(here: Site, request: Request, hours: int = 1, **fields: object) -> list[tuple[str, str, int]]:
    """(text, option, seconds from now) of what is offered to such a job that waits."""
    job = submit(here, request, hours, **fields)  # type: ignore[arg-type]
    here.run()
    found = here.why(job).alternatives
    here.world.cancel(job)
    return [(one.text, one.option, (one.start_us - here.world.now_us) // SECOND) for one in found]


# ---- devices ----


def test_fewer_devices_a_node_another_type_and_any_type() -> None:
    here = site()
    occupy(here, 2, *A100, hours=4)
    occupy(here, 1, *V100, hours=4)
    assert offered(here, gpus(4, "gpu:a100&ib"), 8) == [
        ("2 GPUs a node instead of 4", "--gpus-per-node a100:2", 0),
    ]
    assert offered(here, gpus(3, "gpu:a100"), 8) == [
        ("gpu:v100 instead of gpu:a100", "--gpus-per-node v100:3", 0),
        ("2 GPUs a node instead of 3", "--gpus-per-node a100:2", 0),
    ]


def test_types_may_be_mixed_over_nodes() -> None:
    here = site()
    occupy(here, 4, "cn0", hours=4)
    request = Request(nodes_min=2, nodes_max=2, tasks=2, per_node=(("gpu", 2),), constraint="gpu:a100")
    assert offered(here, request, 8)[:2] == [
        ("any type of gpu instead of gpu:a100", "--gpus-per-node 2", 0),
        ("1 node instead of 2", "--nodes 1 --ntasks 1 --gpus-per-node a100:2", 0),
    ]


def test_devices_by_task_and_several_resources() -> None:
    here = site()
    occupy(here, 2, *A100, *V100, hours=4)
    by_task = Request(tasks=4, per_task=(("gpu", 2),))
    assert offered(here, by_task, 8) == [
        ("3 tasks instead of 4", "--ntasks 3 --gpus-per-task 2", 0),
        ("1 GPU a task instead of 2", "--gpus-per-task 1", 0),
    ]


def test_another_partition_with_another_type() -> None:
    partitions = (
        Partition("ampere", A100, default=True),
        Partition("volta", V100),
        Partition("cpu", PLAIN),
    )
    here = site(partitions=partitions)
    for name in A100:
        submit(here, Request(include=(name,), per_node=(("gpu", 4),)), 4)
    here.run()
    assert offered(here, gpus(2, "gpu:a100"), 8) == [
        (
            "gpu:v100 instead of gpu:a100 in partition volta",
            "--partition volta --gpus-per-node v100:2",
            0,
        )
    ]
    assert offered(here, gpus(2), 8) == [("in partition volta", "--partition volta", 0)]


def test_a_limit_on_devices_is_a_reason_to_ask_for_fewer() -> None:
    here = site(Limit("gpus", "user", "alice", "gpu", Amount(3)))
    occupy(here, 1, "cn0", hours=4)
    assert offered(here, gpus(3), 8) == [("2 GPUs a node instead of 3", "--gpus-per-node 2", 0)]


def test_cores_and_memory_that_block_a_device() -> None:
    here = site()
    occupy(here, 1, *A100, *V100, hours=4, cores=6)
    assert offered(here, gpus(1, cpus_per_task=4), 8) == [
        ("2 cores a task instead of 4", "--cpus-per-task 2", 0)
    ]


# ---- features, licences, nodes ----


def test_the_features_that_exclude_most_are_left_out_one_by_one() -> None:
    here = site()
    occupy(here, 0, *A100, hours=4, cores=8)
    found = offered(here, Request(cpus_per_task=1, constraint="ib&!old"), 8)
    assert found == [("without ib", "--constraint '!old'", 0)]
    assert offered(here, Request(constraint="ib"), 8) == [("without --constraint", "without --constraint", 0)]
    assert offered(here, Request(constraint="ib|(gpu:a100&ib)"), 8) == [
        ("without --constraint", "without --constraint", 0)
    ]


def test_a_type_of_device_stays_when_features_are_left_out() -> None:
    nodes = (NODES[0], replace(NODES[1], features=()), *NODES[2:])
    here = site(nodes=nodes)
    occupy(here, 4, "cn0", hours=4)
    assert offered(here, gpus(2, "gpu:a100&ib"), 8) == [
        ("without --constraint", "--gpus-per-node a100:2, without --constraint", 0)
    ]
    assert offered(here, gpus(2, "gpu:a100&ib&!old"), 8) == [
        ("without ib", "--gpus-per-node a100:2, --constraint '!old'", 0)
    ]


def test_fewer_licences() -> None:
    here = site()
    submit(here, Request(wide=(("matlab", 2),)), 4)
    here.run()
    assert offered(here, Request(wide=(("matlab", 3),)), 8) == [
        ("2 matlab instead of 3", "--licenses matlab:2", 0)
    ]


def test_a_job_in_a_reservation_may_leave_it() -> None:
    here = site()
    later = here.world.now_us + 10 * HOUR * SECOND
    here.world.send(
        put(Reservation("course", Validity(later, later + 10 * HOUR * SECOND), ("cn0",), users=("alice",)))
    )
    assert offered(here, gpus(1), reservation="course") == [
        ("without --reservation", "without --reservation", 0)
    ]


# ---- chunks ----


def chunked(*chunks: Chunk, **fields: object) -> Request:
    return Request(
        tasks=sum(chunk.count for chunk in chunks),
        cpus_per_task=chunks[0].cores,
        chunks=chunks,
        **fields,  # type: ignore[arg-type]
    )


def test_fewer_and_smaller_chunks() -> None:
    here = site()
    occupy(here, 2, *A100, *V100, hours=4, cores=2)
    request = chunked(Chunk(4, 3, 0, (("gpu", 2),)))
    assert offered(here, request, 8) == [
        ("3 chunks instead of 4", "--rset '3:ncpus=3:gpus=2'", 0),
        ("1 GPU a chunk instead of 2", "--rset '4:ncpus=3:gpus=1'", 0),
    ]


def test_each_kind_of_chunk_by_itself() -> None:
    here = site()
    occupy(here, 3, *A100, hours=4)
    occupy(here, 4, *V100, hours=4)
    request = chunked(Chunk(2, 2), Chunk(1, 4, 1024, (("gpu", 2),), "ib"))
    assert offered(here, request, 8) == [
        ("chunk 2: 1 GPU instead of 2", "--rset '2:ncpus=2+1:ncpus=4:mem=1024m:gpus=1:ib=true'", 0)
    ]
    typed = chunked(Chunk(2, 2), Chunk(1, 4, 0, (("gpu", 1),), "gpu:v100"))
    assert offered(here, typed, 8) == [
        ("gpu:a100 instead of gpu:v100", "--rset '2:ncpus=2+1:ncpus=4:gpus=1:gpu_type=a100'", 0),
    ]


def test_chunks_on_the_same_nodes_on_shared_nodes_and_without_features() -> None:
    here = site()
    occupy(here, 4, *A100, *V100, hours=4)
    scattered = chunked(Chunk(4, 1), place="scatter", exclusive=True)
    found = offered(here, scattered, 8)
    assert ("without --exclusive", "--rset '4:ncpus=1,place=scatter'", 0) in found
    full = site()
    occupy(full, 0, "cn3", hours=4, cores=8)
    assert ("without place=scatter", "--rset '4:ncpus=1'", 0) in offered(
        full, chunked(Chunk(4, 1), place="scatter"), 8
    )
    occupy(full, 0, *A100, hours=4, cores=8)
    assert ("without ib", "--rset '1:ncpus=4'", 0) in offered(full, chunked(Chunk(1, 4, 0, (), "ib")), 8)
    assert (
        "without --constraint",
        "--rset '1:ncpus=4', without --constraint",
        0,
    ) in offered(full, chunked(Chunk(1, 4), constraint="ib"), 8)


def test_less_memory_where_memory_blocks() -> None:
    here = site()
    for name in EVERY.nodes:
        submit(here, Request(include=(name,), memory_per_node_mib=2000), 4)
    here.run()
    request = chunked(Chunk(2, 1), Chunk(1, 1, 3200))
    assert offered(here, request, 8)[0] == (
        "chunk 2: 2000 MiB of memory instead of 3200",
        "--rset '2:ncpus=1+1:ncpus=1:mem=2000m'",
        0,
    )


def test_on_large_clusters_amounts_are_tried_that_others_ask_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eslurm.core.explain.inquiry.NODES_FEW", 1)
    here = site()
    occupy(here, 0, *EVERY.nodes, hours=4, cores=4)
    assert offered(here, Request(cpus_per_task=8), 8) == []
    submit(here, Request(nodes_min=4, nodes_max=4, tasks=8, cpus_per_task=3), 1)
    submit(here, chunked(Chunk(4, 5, 100), Chunk(1, 2, 700)), 1)
    texts = [text for text, _, _ in offered(here, Request(cpus_per_task=8), 4)]
    assert "3 cores a task instead of 8" in texts, texts
    texts = [text for text, _, _ in offered(here, chunked(Chunk(1, 8, 900)), 4)]
    assert "2 cores a chunk instead of 8" in texts, texts
    monkeypatch.undo()
    texts = [text for text, _, _ in offered(here, Request(cpus_per_task=8), 4)]
    assert "4 cores a task instead of 8" in texts, texts


# ---- what is not offered ----


def test_nothing_helps_who_is_held_or_waits_for_others() -> None:
    here = site()
    occupy(here, 4, *A100, hours=4)
    first = here.world.submit(time_limit_s=HOUR)
    here.run()
    for fields in (
        {"held": True},
        {"dependencies": depends("afterok", first)},
        {"begin_us": here.world.now_us + HOUR * SECOND},
    ):
        assert offered(here, gpus(4, "gpu:a100"), 8, **fields) == [], fields
    array = submit(here, gpus(1), 1, tasks=((0, 5),), limit=1)
    here.run()
    assert here.kinds(array) == ["array_limit"] and here.why(array).alternatives == ()


def test_an_array_is_offered_what_its_next_task_could_have() -> None:
    here = site()
    occupy(here, 3, *A100, *V100, hours=4)
    assert offered(here, gpus(2), 8, tasks=((0, 3),)) == [
        ("1 GPU a node instead of 2", "--gpus-per-node 1", 0)
    ]


def test_partitions_with_too_many_jobs_or_for_others_are_not_offered() -> None:
    partitions = (
        Partition("main", A100, default=True),
        Partition("volta", V100),
        Partition("short", V100, time_limit_max_s=60),
    )
    for most, expected in ((1, []), (2, ["--partition volta"])):
        here = site(Limit("few", "partition", "volta", "jobs", Amount(most)), partitions=partitions)
        for name in A100:
            submit(here, Request(include=(name,), exclusive=True), 4)
        submit(here, Request(), 4, "volta")
        here.run()
        assert [option for _, option, _ in offered(here, Request(), 8)] == expected, most


# ---- how much is tried ----


def spec_of(request: Request) -> JobSpec:
    return JobSpec("x", ALICE, "main", (request,), b"s", b"e", "/tmp", 36_000)


LARGEST = Request(
    tasks=800,
    chunks=tuple(
        [Chunk(100, 64, 64_000, (("gpu", 8), ("fpga", 4)), f"gpu:t{at}&rack={at}") for at in range(8)]
    ),
    constraint="&".join(f"f{number}" for number in range(20)),
    place="scatter",
    exclusive=True,
    include=("a",),
    exclude=("b",),
    wide=(("matlab", 9), ("ansys", 9)),
)
MANY = Choices(
    [f"p{number}" for number in range(100)], lambda _partition, _resource: [f"t{at}" for at in range(50)]
)


@pytest.mark.parametrize("start_us", [0, 500 * SECOND])
@pytest.mark.parametrize("is_accepted", [True, False])
def test_however_much_could_be_different_so_many_plans_are_made(start_us: int, is_accepted: bool) -> None:
    planned = checked = between = 0

    def plan(spec: JobSpec) -> Generator[None, None, Start | None]:
        nonlocal planned, between
        planned += 1
        between += 1
        yield
        # The less is asked for the earlier.
        total = sum(chunk.count for chunk in spec.components[0].chunks)
        return Start(start_us * total // 800, [])

    def admit(spec: JobSpec) -> JobSpec | None:
        nonlocal checked, between
        checked += 1
        between += 1
        return replace(spec, comment=f"{spec.comment}.") if is_accepted else None

    slices = alternatives(spec_of(LARGEST), 36_000 * SECOND, 0, plan, admit, MANY)
    while True:
        between = 0
        try:
            next(slices)
        except StopIteration as finished:
            found = finished.value
            break
        assert between <= 1, "a slice is one plan or one check"
    assert planned <= TRIES_MAX and checked <= 3 * 50 + 2 * TRIES_MAX
    assert len(found) == (ALTERNATIVES_MAX if is_accepted else 0)


def test_so_many_partitions_are_tried_and_those_that_refuse_do_not_count() -> None:
    tried: list[str] = []

    def plan(spec: JobSpec) -> Generator[None, None, Start | None]:
        tried.append(spec.partition)
        yield from ()
        return None

    def admit(spec: JobSpec) -> JobSpec | None:
        return spec if spec.partition > "p2" else None

    choices = Choices([f"p{number}" for number in range(100)])
    slices = alternatives(spec_of(Request()), INFINITY_US, 0, plan, admit, choices)
    while next(slices, slices) is not slices:
        pass
    others = [name for name in tried if name != "main"]
    assert len(others) == PARTITIONS_MAX and min(others) > "p2"
