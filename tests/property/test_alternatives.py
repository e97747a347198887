"""Alternatives hold: a job that is changed by the offered command starts exactly at the promised time, and no
other later than was planned.

Every kind of request waits on a cluster with two types of GPUs: nodes and tasks, chunks, devices by node and by task,
features, licences, limits and pools, and a partition for short jobs. Alternatives are not undone: the world goes on with
them, so that what is offered next is beside what was offered before.
"""

from __future__ import annotations

import random
from collections import Counter

from msgspec.structs import replace

from eslurm.core.control.jobs.comparing import asks_for_more
from eslurm.core.explain.alternatives import ALTERNATIVES_MAX, Alternative
from eslurm.core.model.accounts import Access, Amount, FreePool, Limit
from eslurm.core.model.config import NodeConfig, Partition, Resource
from eslurm.core.model.job import Job, JobSpec
from eslurm.core.model.job_states import JobState
from eslurm.core.model.messages import Changed, ConfigLoaded, SubmitJobs
from eslurm.core.model.request import Chunk, Request
from eslurm.core.resources.timeline import INFINITY_US
from tests.kits.asking import HOUR, Site
from tests.kits.core import ALICE, BOB, SECOND, World
from tests.support.seeds import Seeds
from tests.support.updating import read_update
from tests.unit.core.control.accounts.test_policies import put

RESOURCES = (Resource("gpu", devices=True), Resource("matlab", wide_total=3))
NODES = (
    NodeConfig("cn0", (8, 4000, 4), ("ib",), device_type="a100"),
    NodeConfig("cn1", (8, 4000, 4), (), device_type="a100"),
    NodeConfig("cn2", (8, 2000, 2), ("ib", "old"), device_type="v100"),
    NodeConfig("cn3", (8, 2000, 2), ("old",), device_type="v100"),
    NodeConfig("cn4", (8, 2000, 0), ("ib",)),
    NodeConfig("cn5", (8, 2000, 0), ()),
)
NAMES = tuple(node.name for node in NODES)
PARTITIONS = (
    Partition("main", NAMES, default=True),
    Partition("volta", NAMES[2:4]),
    Partition("quick", NAMES[:2], time_limit_max_s=1800),
)


def a_site(rng: random.Random) -> Site:
    world = World(0, restarts=False, policy=rng.choice(("planned", "conservative")))
    config = replace(world.state.config, nodes=NODES, partitions=PARTITIONS, resources=RESOURCES)
    world.send(ConfigLoaded(config))
    for number in range(len(NODES)):
        world.register(number)
    if rng.random() < 0.5:
        pool = FreePool("short", "cores", Amount(8), (Access(time_max_s=HOUR),))
        world.send(put(Limit("gpus", "user", "*", "gpu", Amount(6)), pool))
    return Site(world)


def a_chunk(rng: random.Random) -> Chunk:
    gpus = rng.choice((0, 0, 1, 2, 4))
    return Chunk(
        count=rng.choice((1, 1, 2, 3)),
        cores=rng.choice((1, 2, 4, 8)),
        memory_mib=rng.choice((0, 300, 1500)),
        resources=(("gpu", gpus),) if gpus else (),
        constraint=rng.choice(("gpu:a100", "gpu:v100", "ib", "")) if gpus and rng.random() < 0.6 else "",
    )


def a_request(rng: random.Random) -> Request:
    common = {
        "exclusive": rng.random() < 0.15,
        "exclude": ("cn1",) if rng.random() < 0.1 else (),
        "wide": (("matlab", rng.choice((1, 2, 3))),) if rng.random() < 0.15 else (),
    }
    features = [word for word in ("ib", "!old") if rng.random() < 0.15]
    if rng.random() < 0.4:
        chunks = tuple(a_chunk(rng) for _ in range(rng.choice((1, 1, 2))))
        return Request(
            tasks=sum(chunk.count for chunk in chunks),
            cpus_per_task=chunks[0].cores,
            chunks=chunks,
            constraint="&".join(features),
            place=rng.choice(("free", "free", "scatter", "pack")),
            **common,  # type: ignore[arg-type]
        )
    width = rng.choice((0, 1, 2, 3))
    gpus = (("gpu", rng.choice((1, 2, 4))),) if rng.random() < 0.6 else ()
    if gpus and rng.random() < 0.6:
        features.append(rng.choice(("gpu:a100", "gpu:v100")))
    return Request(
        tasks=rng.choice((1, 2, 4)) if not width else width * rng.choice((1, 2)),
        cpus_per_task=rng.choice((1, 2, 4)),
        nodes_min=width,
        nodes_max=width,
        memory_per_node_mib=rng.choice((0, 0, 300, 1500)),
        per_node=gpus if width else (),
        per_task=() if width else gpus,
        constraint="&".join(features),
        **common,  # type: ignore[arg-type]
    )


def a_spec(rng: random.Random) -> JobSpec:
    return JobSpec(
        "job",
        rng.choice((ALICE, BOB)),
        rng.choice(("", "", "", "volta", "quick")),
        (a_request(rng),),
        b"s" * 32,
        b"e" * 32,
        "/tmp",
        rng.choice((600, 1800, 7200, 36_000)),
    )


def end_overdue(world: World) -> None:
    for job in list(world.state.jobs.values()):
        if job.state is JobState.RUNNING and job.attempt is not None and job.attempt.until_us <= world.now_us:
            world.end(job.job_id)


def start_us_of(site: Site, job: Job) -> int:
    """The job's start, or its planned start."""
    if job.attempt is not None:
        return job.attempt.placed_us
    return min((one.start_us for one in site.schedule.bookings.get(job.job_id, ())), default=INFINITY_US)


def update(site: Site, job_id: int, words: str) -> Changed:
    """Change a job as `esctl update job N ...` does for the job's own user."""
    world = site.world
    answer = world.send(read_update(world.state, f"job {job_id} {words}", world.job(job_id).spec.user))
    assert isinstance(answer, Changed)
    return answer


def starts(site: Site) -> dict[int, int]:
    return {job_id: start_us_of(site, job) for job_id, job in site.world.state.jobs.items()}


def waiting_world(seed: int) -> tuple[random.Random, Site]:
    """Some jobs run and more wait."""
    rng = random.Random(seed)
    site = a_site(rng)
    for _ in range(14):
        site.world.send(SubmitJobs((a_spec(rng),)))
        if rng.random() < 0.4:
            site.run()
            site.world.pass_time(rng.choice((1, 200, 900)))
            end_overdue(site.world)
    site.run()
    return rng, site


def an_alternative(rng: random.Random, site: Site, job_id: int) -> Alternative | None:
    """One of those that are offered to a job that still waits."""
    job = site.world.state.find_job(job_id)
    if job is None or job.state is not JobState.PENDING:
        return None
    answer = site.why(job_id)
    starts = [one.start_us for one in answer.alternatives]
    assert starts == sorted(starts) and len(starts) <= ALTERNATIVES_MAX
    assert all(one <= (answer.start_us or INFINITY_US) - 60 * SECOND for one in starts)
    return rng.choice(answer.alternatives) if answer.alternatives else None


def test_a_job_that_takes_an_alternative_starts_when_it_was_promised(seeds: Seeds) -> None:
    told: Counter[str] = Counter()
    for seed in seeds(24):
        rng, site = waiting_world(seed)
        for job_id in list(site.world.state.jobs):
            offered = an_alternative(rng, site, job_id)
            if offered is None:
                continue
            before = starts(site)
            assert update(site, job_id, offered.update).count == 1, (seed, job_id, offered)
            site.run()
            after = starts(site)
            assert after[job_id] == offered.start_us, (seed, job_id, offered)
            assert all(after[one] <= was_us for one, was_us in before.items()), (seed, job_id, offered)
            told[offered.update.partition("=")[0]] += 1
    assert sum(told.values()) > 25
    assert {"rset", "gpus-per-node", "partition", "nodes"} <= set(told), told


def less(rng: random.Random, spec: JobSpec) -> str:
    """A change after which the job mostly asks for less."""
    request = spec.components[0]
    ways = [f"time=0:{rng.choice((5, 9, 25)):02d}:00"]
    if request.nodes_min > 1:
        nodes = request.nodes_min - 1
        ways.append(f"nodes={nodes} ntasks={request.tasks * nodes // request.nodes_min}")
    if not request.chunks and request.cpus_per_task > 1:
        ways.append("cpus-per-task=1")
    if request.wide:
        ways.append("licenses=")
    if request.exclusive:
        ways.append("exclusive=no")
    return rng.choice(ways)


def test_jobs_that_change_together_keep_their_own_starts_and_those_of_others(seeds: Seeds) -> None:
    shrunk = 0
    for seed in seeds(12):
        rng, site = waiting_world(seed)
        for _ in range(3):
            before, specs = starts(site), {}
            for job_id in before:
                job = site.world.job(job_id)
                if job.state is JobState.PENDING and rng.random() < 0.7:
                    specs[job_id] = job.spec
                    update(site, job_id, less(rng, job.spec))
            site.run()
            after = starts(site)
            for job_id, was_us in before.items():
                if job_id in specs and asks_for_more(specs[job_id], site.world.job(job_id).spec):
                    continue
                shrunk += job_id in specs
                assert after[job_id] <= was_us, (seed, job_id, specs)
            for _ in range(3):
                site.world.send(SubmitJobs((a_spec(rng),)))
            site.world.pass_time(rng.choice((1, 300, 1500)))
            end_overdue(site.world)
            site.run()
    assert shrunk > 40, shrunk


def test_who_asks_for_more_takes_nothing_from_others(seeds: Seeds) -> None:
    larger = 0
    for seed in seeds(10):
        rng, site = waiting_world(seed)
        waiting = [job_id for job_id, job in site.world.state.jobs.items() if job.state is JobState.PENDING]
        for job_id in waiting:
            job, before = site.world.job(job_id), starts(site)
            if job.state is not JobState.PENDING:
                continue
            words = rng.choice(("time=3:00:00", "licenses=matlab:3", "exclusive=yes", "exclude=cn0"))
            answer = update(site, job_id, words)
            site.run()
            after = starts(site)
            assert all(after[one] <= was_us for one, was_us in before.items() if one != job_id), (
                seed,
                job_id,
            )
            if answer.count and site.world.job(job_id).spec != job.spec:
                # Less time than before is no more; all else is told to whoever asks for it.
                larger += bool(answer.notes)
                assert after[job_id] <= before[job_id] or answer.notes, (seed, job_id, answer)
    assert larger > 20
