"""What is offered instead holds: a job that asks for it in its place starts exactly when that was promised.

Every kind of request waits on a cluster with two types of GPUs: nodes and tasks, chunks, devices by node and by task,
features, licences, limits and pools, and a partition for short jobs. Alternatives are not undone: the world goes on with
them, so that what is offered next is beside what was offered before.
"""

from __future__ import annotations

import random
from collections import Counter

from msgspec.structs import replace

from eslurm.core import facts
from eslurm.core.account.model import Access, Amount, FreePool, Limit
from eslurm.core.apply import apply
from eslurm.core.config import NodeConfig, Partition, Resource
from eslurm.core.job.model import Job, JobSpec
from eslurm.core.job.request import Chunk, Request
from eslurm.core.job.states import JobState
from eslurm.core.messages import ConfigLoaded, SubmitJobs, Submitted
from eslurm.core.plan.alternatives import ALTERNATIVES_MAX, Alternative
from eslurm.core.resources.timeline import INFINITY_US
from tests.support.seeds import Seeds
from tests.unit.core.asking import HOUR, Site
from tests.unit.core.test_policies import put
from tests.unit.core.world import ALICE, BOB, SECOND, World

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
    """When it started or is planned to."""
    if job.attempt is not None:
        return job.attempt.placed_us
    return min((one.start_us for one in site.schedule.bookings.get(job.job_id, ())), default=INFINITY_US)


def change(site: Site, job_id: int, offered: Alternative) -> int:
    """The job asks for the alternative from now on, and keeps its turn; its id."""
    world = site.world
    state = world.state
    job = world.job(job_id)
    fact = facts.JobChanged(job_id, offered.spec, job.priority, job.not_before_us)
    apply(state, fact, state.revision + 1, max(world.now_us, state.now_us))
    world.reactor._observe(state, fact)  # type: ignore[misc]
    site.run()
    return job_id


def submit_instead(site: Site, job_id: int, offered: Alternative) -> int:
    """The job goes and the alternative comes; its id. One that may not be submitted fails."""
    world = site.world
    world.cancel(job_id, by=world.job(job_id).spec.user)
    answer = world.send(SubmitJobs((offered.spec,)))
    assert isinstance(answer, Submitted), (offered, answer)
    site.run()
    return answer.job_ids[0]


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
            change(site, job_id, offered)
            assert start_us_of(site, site.world.job(job_id)) == offered.start_us, (seed, job_id, offered)
            told[offered.option.split()[0]] += 1
    assert sum(told.values()) > 25
    assert {"--rset", "--gpus-per-node", "--partition", "--nodes"} <= set(told), told


def test_whoever_submits_an_alternative_is_late_only_if_others_were_faster(seeds: Seeds) -> None:
    tried = 0
    for seed in seeds(10):
        rng, site = waiting_world(seed)
        for job_id in list(site.world.state.jobs):
            offered = an_alternative(rng, site, job_id)
            if offered is None:
                continue
            before = {other: start_us_of(site, job) for other, job in site.world.state.jobs.items()}
            new_id = submit_instead(site, job_id, offered)
            jobs = site.world.state.jobs
            faster = [
                one for one, was_us in before.items() if one in jobs and start_us_of(site, jobs[one]) < was_us
            ]
            assert start_us_of(site, jobs[new_id]) <= offered.start_us or faster, (seed, job_id, offered)
            tried += 1
    assert tried > 10
