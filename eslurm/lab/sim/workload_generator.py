"""The workload of a simulated cluster: jobs of every kind, and operators' changes of policies.

Everything is drawn from the given generator; nothing here has a memory. Invariant: operators can lift every restriction
(`lifted`), so that every job can end.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from eslurm.core.model.accounts import (
    ALWAYS,
    Access,
    Account,
    Amount,
    Defaults,
    FreePool,
    Limit,
    Policy,
    Qos,
    Reservation,
    User,
    Validity,
    kind_of,
)
from eslurm.core.model.config import ClusterConfig
from eslurm.core.model.job import ArraySpec, Dependency, JobSpec, Principal
from eslurm.core.model.messages import PolicyChange, ReservedNodes, ReservedTime
from eslurm.core.model.request import Chunk, PartSpec, Request
from eslurm.core.model.retry import RetryRequest
from eslurm.core.model.units import SECOND_US
from eslurm.lab.sim.cluster_config import FAST, GPU, LICENCE, MAIN, RUSH

PHYSICISTS: Final = 100
USERS: Final = (
    Principal("alice", 1000, 1000, (PHYSICISTS,)),
    Principal("bob", 1001, 1001),
)
RESERVED: Final = "course"
MAINTENANCE: Final = "maintenance"
BASE: Final[tuple[Policy, ...]] = (
    Account("physics", shares=2),
    Account("cfd", parent="physics"),
    Qos("low"),
    Qos("high", priority=10, preempts=("low",)),
    User("alice", accounts=("cfd", "physics"), qos=("low", "high")),
    User("bob", accounts=("physics",), qos=("low", "high")),
)
"""Policies that exist from the beginning, each after those that it names."""
CONSUMERS: Final = (
    ("user", "alice"),
    ("user", "*"),
    ("group", str(PHYSICISTS)),
    ("account", "physics"),
    ("account", "*"),
    ("qos", "high"),
    ("partition", MAIN),
)
LIFTED: Final = ("limit", "pool", "reservation", "defaults")


# ---- jobs ----


def has_partition(config: ClusterConfig, name: str) -> bool:
    """Check whether the cluster has this partition."""
    return any(partition.name == name for partition in config.partitions)


def draw_request(rng: random.Random, nodes: int, config: ClusterConfig, *, is_small: bool) -> Request:
    """The resources of a job on a cluster of so many nodes."""
    has_gpus = GPU in config.resources
    constraint = FAST if rng.random() < 0.1 else ""
    wide = ((LICENCE.name, rng.randint(1, 2)),) if LICENCE in config.resources and rng.random() < 0.3 else ()
    kind = rng.random()
    if kind < 0.12:
        gpus = ((GPU.name, 1),) if has_gpus and rng.random() < 0.4 else ()
        chunks = (
            Chunk(rng.randint(1, 2), rng.randint(1, 2), 256, gpus),
            Chunk(1, rng.randint(1, 4), constraint=constraint),
        )[: rng.randint(1, 2)]
        place = rng.choice(("free", "free", "pack", "scatter"))
        return Request(tasks=sum(chunk.count for chunk in chunks), chunks=chunks, place=place, wide=wide)
    if has_gpus and kind < 0.3:
        typed = "gpu:a100" if rng.random() < 0.3 else constraint
        return Request(tasks=rng.randint(1, 2), per_task=((GPU.name, 1),), constraint=typed, wide=wide)
    if is_small or rng.random() < 0.5:
        return Request(
            tasks=rng.randint(1, 3), cpus_per_task=rng.choice((1, 1, 2)), constraint=constraint, wide=wide
        )
    wanted = min(rng.randint(2, max(2, nodes // rng.choice((1, 2, 4)))), nodes)
    if rng.random() < 0.2:
        return Request(tasks=wanted, nodes_min=wanted, nodes_max=wanted, exclusive=True, wide=wide)
    return Request(tasks=wanted, nodes_min=wanted, nodes_max=wanted, tasks_per_node=1, wide=wide)


def draw_spec(
    rng: random.Random,
    now_us: int,
    config: ClusterConfig,
    jobs: Sequence[int],
    arrays: Mapping[int, int],
    script_hash: bytes,
    environment_hash: bytes,
) -> JobSpec:
    """A submitted job; `jobs` are its possible dependencies, `arrays` the numbers of tasks of those that are arrays."""
    user = rng.choice(USERS)
    array = None
    if rng.random() < 0.15:
        array = ArraySpec(((0, rng.randint(1, 5)),), rng.choice((0, 0, 1, 2)))
    time_limit_s = rng.choice((5, 20, 60))
    start_at_us, deadline_us = _draw_interval(rng, now_us, time_limit_s, is_array=array is not None)
    has_rush = has_partition(config, RUSH)
    if rng.random() < 0.12:
        components, parts = _draw_parts(rng, config, is_small=array is not None)
    else:
        nodes = len(config.partitions[0].nodes)
        components, parts = (draw_request(rng, nodes, config, is_small=array is not None),), ()
    return JobSpec(
        name=rng.choice(("a", "b", "c")),
        user=user,
        partition=RUSH if has_rush and rng.random() < 0.2 else "",
        components=components,
        script_hash=script_hash,
        environment_hash=environment_hash,
        work_dir="/home",
        time_limit_s=time_limit_s,
        warn_signal=rng.choice((0, 10)),
        warn_before_s=(warn_before_s := rng.choice((1, 4, 30))),
        requeue=rng.random() < 0.7,
        held=rng.random() < 0.05,
        begin_us=now_us + rng.randint(0, 10 * SECOND_US) if rng.random() < 0.1 and not start_at_us else 0,
        dependencies=draw_dependencies(rng, jobs, arrays) if rng.random() < 0.2 else (),
        dependency_any=rng.random() < 0.5,
        array=array,
        qos=rng.choice(("low", "low", "high")) if rng.random() < 0.3 else "",
        account="physics" if rng.random() < 0.2 else "",
        reservation=RESERVED if rng.random() < 0.04 else "",
        nice=rng.choice((0, 0, 0, 10)),
        start_at_us=start_at_us,
        deadline_us=deadline_us,
        # Two of three, without a draw of its own: that would change all seeds.
        no_kill=warn_before_s != 1,
        parts=parts,
    )


def movable(spec: JobSpec) -> JobSpec:
    """The same job without what is of one cell: any cell may take it."""
    request = replace(spec.components[0], wide=(), include=(), exclude=())
    return replace(
        spec, components=(request,), parts=(), array=None, reservation="", start_at_us=0, cells=("any",)
    )


def spanning(spec: JobSpec, nodes: int) -> JobSpec:
    """The same job on so many whole tasks' nodes, of any cells at once."""
    request = Request(tasks=nodes, nodes_min=nodes, nodes_max=nodes)
    return replace(movable(spec), components=(request,), span=True)


def meeting(nodes: int, script_hash: bytes, environment_hash: bytes) -> JobSpec:
    """A short job on so many whole nodes, of any cells at once."""
    request = Request(tasks=nodes, nodes_min=nodes, nodes_max=nodes, tasks_per_node=1, exclusive=True)
    return JobSpec(
        name="meeting",
        partition="",
        user=USERS[0],
        components=(request,),
        script_hash=script_hash,
        environment_hash=environment_hash,
        work_dir="/home",
        time_limit_s=60,
        cells=("any",),
        span=True,
    )


def retried(rng: random.Random, spec: JobSpec) -> JobSpec:
    """The same job with a short limit, into which many scripts run, and retries by the server."""
    causes = rng.choice((("timeout",), ("timeout",), ("node-fail",), ("timeout", "node-fail")))
    retry = RetryRequest(
        causes,
        rng.choice((1, 1, 2, 3)),
        rng.choice((100, 150, 200, 400)),
        max_time_s=rng.choice((0, 0, 20, 60)),
    )
    return replace(
        spec,
        time_limit_s=rng.choice((1, 2, 3, 5)),
        requeue=spec.requeue or "node-fail" in causes,
        start_at_us=0,
        held=False,
        retry=retry,
    )


def draw_pack(rng: random.Random, drawn: Sequence[JobSpec]) -> tuple[tuple[JobSpec, ...], tuple[int, ...]]:
    """These jobs as the members of a pack, all of one user, and their delays in seconds."""
    first = replace(drawn[0], array=None, start_at_us=0)
    members = [
        replace(
            spec,
            user=first.user,
            array=None,
            start_at_us=0,
            deadline_us=0,
            begin_us=0,
            dependencies=(),
            held=False,
        )
        for spec in drawn[1:]
    ]
    delays_s = [rng.choice((0, 1, 3, 8, 20)) for _ in members]
    return (first, *members), (0, *delays_s)


def _draw_parts(
    rng: random.Random, config: ClusterConfig, *, is_small: bool
) -> tuple[tuple[Request, ...], tuple[PartSpec, ...]]:
    """Two to four parts: a third of the jobs takes nodes of two partitions, a tenth shares a node that it names."""
    count = rng.randint(2, 4)
    chance = rng.random()
    if chance < 0.1:
        name = rng.choice(config.partitions[0].nodes)
        requests = tuple([Request(tasks=1, include=(name,)) for _ in range(count)])
    else:
        nodes = max(1, len(config.partitions[0].nodes) // count)
        requests = tuple(
            [draw_request(rng, nodes, config, is_small=is_small or rng.random() < 0.5) for _ in range(count)]
        )
    named = [
        RUSH if has_partition(config, RUSH) and 0.1 <= chance < 0.45 and at % 2 else "" for at in range(count)
    ]
    return requests, tuple([PartSpec(name) for name in named])


def _draw_interval(rng: random.Random, now_us: int, time_limit_s: int, *, is_array: bool) -> tuple[int, int]:
    """A fixed start or a deadline, for some (C-30); 0: none."""
    chance = rng.random()
    if is_array or chance > 0.08:
        return 0, 0
    if chance < 0.04:
        return now_us + rng.randint(5, 30) * SECOND_US, 0
    return 0, now_us + (time_limit_s + rng.randint(1, 90)) * SECOND_US


def draw_dependencies(
    rng: random.Random, jobs: Sequence[int], arrays: Mapping[int, int]
) -> tuple[Dependency, ...]:
    """Conditions on some of these jobs, on tasks of those that are arrays."""
    return tuple(
        [_draw_dependency(rng, jobs, arrays) for _ in range(rng.choice((1, 1, 2, 3)))] if jobs else ()
    )


def _draw_dependency(rng: random.Random, jobs: Sequence[int], arrays: Mapping[int, int]) -> Dependency:
    kind = rng.choice(("after", "afterany", "afterok", "afternotok", "aftercorr", "singleton"))
    if kind == "singleton":
        return Dependency(kind)
    job_id = rng.choice(list(arrays)) if arrays and rng.random() < 0.3 else rng.choice(jobs)
    has_task = job_id in arrays and rng.random() < 0.5
    return Dependency(
        kind,
        job_id,
        delay_s=rng.choice((0, 0, 2, 10)) if kind == "after" else 0,
        task=rng.randrange(arrays[job_id]) if has_task else -1,
    )


# ---- policies ----


def setting(policy: Policy) -> PolicyChange:
    """Sets a policy, whether it is there or not."""
    return PolicyChange("set", kind_of(policy), policy.name, policy)


def draw_changes(rng: random.Random, now_us: int, config: ClusterConfig) -> tuple[PolicyChange, ...]:
    """An operator's changes in one message: mostly something is set, sometimes deleted."""
    draw = rng.choice((_draw_limit, _draw_limit, _draw_pool, _draw_reservation, _draw_other))
    change = draw(rng, now_us, config)
    if rng.random() < 0.25:
        return (PolicyChange("delete", change.kind, change.name),)
    return (change,)


def lifted(
    policies: Mapping[str, Mapping[str, Policy]], kinds: Iterable[str] = LIFTED
) -> tuple[PolicyChange, ...]:
    """The changes that lift every restriction."""
    return tuple(PolicyChange("delete", kind, name) for kind in kinds for name in policies[kind])


def _draw_validity(rng: random.Random, now_us: int) -> Validity:
    """Always, some seconds of this run, or every other minute."""
    chance = rng.random()
    if chance < 0.5:
        return ALWAYS
    if chance < 0.8:
        from_us = now_us + rng.randint(0, 15) * SECOND_US
        return Validity(from_us, from_us + rng.randint(5, 40) * SECOND_US)
    return Validity(cron="*/2 * * * *")


def _draw_limit(rng: random.Random, now_us: int, config: ClusterConfig) -> PolicyChange:
    kind, consumer = rng.choice(CONSUMERS)
    resource = rng.choice(("cores", "cores", "nodes", "*", "jobs", *(one.name for one in config.resources)))
    bound = rng.choice(("items", "items", "items", "duration", "area"))
    if resource == "jobs":
        bound = "items"
    limit = Limit(
        f"cap-{kind}-{consumer.replace('*', 'each')}-{rng.choice('xy')}",
        kind,
        consumer,
        resource,
        Amount(rng.randint(2, 8), rng.choice((0.0, 0.0, 50.0))) if bound == "items" else Amount(),
        duration_s=rng.choice((10, 30)) if bound == "duration" else 0,
        area_s=rng.choice((60, 240)) if bound == "area" else 0,
        validity=_draw_validity(rng, now_us),
    )
    return setting(limit)


def _draw_pool(rng: random.Random, now_us: int, config: ClusterConfig) -> PolicyChange:
    access = rng.choice(
        (
            (),
            (Access(users=("bob",)),),
            (Access(qos=("high",)), Access(time_max_s=20)),
            (Access(items_below=2),),
        )
    )
    validity = _draw_validity(rng, now_us)
    if rng.random() < 0.5:
        amount = Amount(rng.randint(1, 4), rng.choice((0.0, 25.0)))
        return setting(FreePool("quiet", "cores", amount, access, validity=validity))
    if rng.random() < 0.5:
        return setting(FreePool("corner", access=access, nodes=config.nodes[0].name, validity=validity))
    return setting(FreePool("corner", access=access, feature=FAST, validity=validity))


def _draw_reservation(rng: random.Random, now_us: int, config: ClusterConfig) -> PolicyChange:
    is_maintenance = rng.random() < 0.5
    reservation = Reservation(
        MAINTENANCE if is_maintenance else RESERVED,
        ALWAYS,
        users=rng.choice(((), ("alice",))),
        maintenance=is_maintenance,
        flags=rng.choice(((), (), ("ignore_running",))),
    )
    time = ReservedTime(now_us + rng.randint(1, 30) * SECOND_US, duration_s=rng.randint(5, 30))
    choose = ReservedNodes(rng.randint(1, max(1, len(config.nodes) // 2)))
    return PolicyChange("set", "reservation", reservation.name, reservation, choose=choose, time=time)


def _draw_other(rng: random.Random, now_us: int, config: ClusterConfig) -> PolicyChange:
    """Accounts, users, classes of service, defaults."""
    mode = rng.choice(("off", "requeue", "cancel", "suspend"))
    return setting(
        rng.choice(
            (
                *BASE,
                Qos("low", preempt_mode=mode, preempt_grace_s=rng.choice((-1, 0, 2)), preempt_exempt_s=2),
                Account("cfd", parent="physics", shares=rng.randint(1, 5)),
                User("alice", accounts=("cfd", "physics"), shares=rng.randint(1, 5), qos=("low", "high")),
                Defaults("short", values=(("time", "10"), ("qos", "low"))),
                Defaults("alices", "user", "alice", forced=(("nice", "5"),)),
            )
        )
    )
