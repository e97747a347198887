"""Steps over drawn parts of drawn jobs: every rank exists once, all tasks are told the same step, and nodes let it in."""

from __future__ import annotations

import random

import pytest

from eslurm.compat.environment import StepEnvironment
from eslurm.compat.hostlist import expand
from eslurm.core.model.job import Span
from eslurm.core.model.messages import CreateStep, StepCreated, StepProgram
from eslurm.core.model.protocol import Command, LaunchStep
from eslurm.core.model.request import Request
from eslurm.core.model.step_key import StepKey
from eslurm.replay.state_check import check
from esnoded.procd.credential import NotAllowed, find_launch
from tests.kits.core import ALICE, World, refused
from tests.kits.parts import parted, place, span, submit
from tests.support.profiles import draws
from tests.support.seeds import Seeds

NODES = 4
CORES = 4


def drawn_spans(rng: random.Random) -> list[Span]:
    """Two to four parts, each on one to three nodes, which they share as far as there are cores."""
    free = [CORES] * NODES
    found: list[Span] = []
    for component in range(rng.randint(2, 4)):
        open_nodes = [node for node in range(NODES) if free[node]]
        for node in rng.sample(open_nodes, min(len(open_nodes), rng.randint(1, 3))):
            cores = rng.randint(1, min(2, free[node]))
            free[node] -= cores
            found.append(span(node, cores, component, tasks=cores))
    return found


def program(rng: random.Random) -> StepProgram:
    return StepProgram(("a",), rng.choice((0, 0, 1, 2, 3)), rng.choice((0, 0, 1, 2)), rng.choice((1, 1, 2)))


def test_a_step_is_one_whatever_parts_it_has(seeds: Seeds) -> None:
    for seed in seeds(draws(60)):
        _steps_of_a_job(random.Random(seed))


def _steps_of_a_job(rng: random.Random) -> None:
    world = World(nodes=NODES)
    spans = drawn_spans(rng)
    parts = spans[-1].component + 1
    job = submit(world, parted(*[Request()] * parts))
    assert place(world, job, *spans) is not None
    for _ in range(2):
        world.deliver()
    for _ in range(4):
        chosen = tuple(sorted(rng.sample(range(parts), rng.randint(1, parts))))
        programs = tuple(program(rng) for _ in chosen)
        answer = world.send(
            CreateStep(
                *(ALICE, job, 0, 0, (), b"e", "/tmp", "127.0.0.1:9", b"c"),
                components=chosen,
                programs=programs,
            )
        )
        sends = world.sends()
        if not isinstance(answer, StepCreated):
            assert refused(answer).startswith("part ") and not sends
            continue
        bodies = [send.body for send in sends]
        _is_one(answer, [body for body in bodies if isinstance(body, LaunchStep)], spans)
        for send in sends:
            world.done(send)
        check(world.state)


def _is_one(answer: StepCreated, bodies: list[LaunchStep], spans: list[Span]) -> None:
    room = {(one.component, one.node): one.amounts[0] for one in spans}
    ranks: dict[int, tuple[str, str]] = {}
    told: set[tuple[str, ...]] = set()
    for body in bodies:
        assert body.launch is not None
        names = expand(body.launch.node_names)
        environment = StepEnvironment(body.launch, body, names)
        nodes = [
            node
            for group in body.groups
            for first, length in group.runs
            for node in range(first, first + length)
        ]
        command = Command(
            "c", "main", 1, 1, 0, tuple((node, 1) for node in nodes), (1,) * len(nodes), 1, body
        )
        for node in nodes:
            key = StepKey(body.job_id, body.attempt, body.step, node)
            allowed = find_launch(key, command)
            assert allowed.node_name == f"cn{node}"
            assert allowed.tasks * body.cpus_per_task <= room[body.component, node]
            for local in range(allowed.tasks):
                own = environment.shared | environment.of_task(node, local)
                rank = int(own["SLURM_PROCID"])
                assert rank not in ranks and str(rank) in own["SLURM_GTIDS"].split(",")
                ranks[rank] = own["SLURMD_NODENAME"], own["SLURM_NODEID"]
                told.add(tuple(own[f"SLURM_{name}"] for name in SAME))
                listed = expand(own["SLURM_STEP_NODELIST"])
                assert listed[int(own["SLURM_NODEID"])] == own["SLURMD_NODENAME"] == f"cn{node}"
                assert set(listed) <= set(expand(own["SLURM_JOB_NODELIST"]))
        with pytest.raises(NotAllowed):
            find_launch(StepKey(body.job_id, body.attempt, body.step + 1, nodes[0]), command)
    assert sorted(ranks) == list(range(sum(tasks for _, tasks in answer.layout)))
    assert [name for name, tasks in answer.layout for _ in range(tasks)] == [
        ranks[at][0] for at in sorted(ranks)
    ]
    assert len(told) == 1
    ((number, total, *_),) = told
    assert (int(number), int(total)) == (answer.step, len(ranks))


SAME = (
    *("STEP_ID", "NTASKS", "NPROCS", "STEP_NODELIST", "STEP_NUM_NODES", "STEP_TASKS_PER_NODE"),
    *("JOB_NODELIST", "NNODES", "JOB_CPUS_PER_NODE", "HET_SIZE"),
)
"""The variables that are alike for all tasks of a step."""
