"""Preemption between any QOS and partitions ends: when nothing new arrives, everything that can run runs, and ends.

Whole clusters in virtual time: the controller's core, its planner, and nodes that answer at once.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import pytest

from eslurm.core.model.config import ClusterConfig, NodeConfig, Partition, PriorityWeights
from eslurm.lab.workloads.loop import replay
from eslurm.lab.workloads.machine import from_config
from eslurm.lab.workloads.rules import Rules
from eslurm.lab.workloads.workload import Choices, Names
from tests.kits.workloads import record, records_of, workload

NODES = ("n0", "n1", "n2", "n3")
MODES = ("off", "requeue", "requeue", "cancel", "suspend", "suspend")
POLICIES = ("fcfs", "easy", "conservative", "planned")
MORE_RULES = """
[limit.a]
qos = "q1"
resource = "cores"
items = 5
[limit.b]
user = "*"
resource = "cores"
items = 7
[reservation.m]
nodes = "n1"
validity = "cron(10 * * * *)+10m"
maintenance = true
flags = "ignore_running"
"""
SEEDS = 12
ENDLESS = (533, 724)
"""Seeds for which jobs once pushed each other out for ever, or seven times each."""
CYCLES_MAX, ROOM_MAX = 10, 5
"""For each job; as many cycles are needed as jobs come, start and end, and one more for each that makes room."""


def draw_qos(rng: random.Random, count: int) -> str:
    """QOS of which each lists some of those before it."""
    lines = []
    dense = rng.random() < 0.5
    for number in range(1, count + 1):
        below = [f"q{one}" for one in range(1, number) if dense or rng.random() < 0.4]
        lines += [f"[qos.q{number}]", f'preempt_mode = "{rng.choice(MODES)}"']
        lines += [f'preempts = "{",".join(below)}"'] if below else []
        lines += [f'preempt_grace = "{rng.choice((0, 5, 60, 200))}s"'] if rng.random() < 0.3 else []
        lines += [f'preempt_exempt = "{rng.choice((30, 300))}s"'] if rng.random() < 0.3 else []
    return "\n".join(lines) + (MORE_RULES if rng.random() < 0.3 else "")


def check_that_it_ends(seed: int) -> None:
    """One cluster, one crowd of jobs; the replay itself sees that each runs once, and again each time it was pushed out."""
    rng = random.Random(seed)
    qos, queues = rng.randint(1, 5), rng.randint(1, 4)
    rules = draw_qos(rng, qos)
    partitions = tuple(
        Partition(str(number), NODES, number == 1, tier=rng.randint(0, 3), preempt_mode=rng.choice(MODES))
        for number in range(1, queues + 1)
    )
    weights = PriorityWeights(age=1000, age_max_s=600) if rng.random() < 0.2 else PriorityWeights()
    nodes = tuple(NodeConfig(name, (2, 100)) for name in NODES)
    grace_s = rng.choice((0.0, 7.0, 60.0))
    config = ClusterConfig("lab", nodes, partitions, kill_grace_s=grace_s, priority=weights)
    within_s = rng.choice((10, 300, 300, 3000))
    log = [
        record(
            number,
            rng.randint(0, within_s),
            rng.randint(1, 900),
            rng.choice((1, 1, 2, 3, 4, 8)),
            rng.choice((60, 300, 900, 1800)),
            queue=rng.randint(1, qos),
            partition=rng.randint(1, queues),
            user=rng.randint(1, 3),
        )
        for number in range(1, rng.randint(6, 25))
    ]
    names = Names(
        qos_from="queue",
        qos=frozenset(f"q{number}" for number in range(1, qos + 1)),
    )
    choices = Choices(
        names=names,
        partition_from="partition",
        kill_at_limit=rng.random() < 0.5,
        estimates=rng.choice(("user", "perfect")),
    )
    machine = from_config(config)
    policy = rng.choice(POLICIES)
    found = replay(workload(log, machine, choices), machine, policy, rules=Rules(config, records_of(rules)))
    assert found.happened is not None
    assert not found.happened.stuck
    assert found.cycles <= CYCLES_MAX * len(log), f"{found.cycles} cycles for {len(log)} jobs"
    made_room = found.happened.requeued + found.happened.paused
    assert made_room <= ROOM_MAX * len(log), f"{len(log)} jobs made room {made_room} times"


def test_everything_ends(seeds: Callable[[int], Iterable[int]]) -> None:
    for seed in seeds(SEEDS):
        check_that_it_ends(seed)


@pytest.mark.parametrize("seed", ENDLESS)
def test_what_once_did_not_end(seed: int) -> None:
    check_that_it_ends(seed)
