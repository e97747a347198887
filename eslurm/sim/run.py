"""One seed from start to verdict.

Invariant: a run depends on its seed, its size and the code alone, so what failed once fails again.
"""

from __future__ import annotations

import random

import msgspec

from eslurm.sim.world import START_US, Trace, World

SECOND_US = 1_000_000
RECOVERY_MAX_US = 300 * SECOND_US
LOOK_EVERY_US = SECOND_US


class Report(msgspec.Struct, frozen=True):
    """What a run saw. `events_hash` is equal for equal runs; `virtual_s` is how long it took in its own time."""

    seed: int
    nodes: int
    messages: int
    faults: int
    commits: int
    facts: int
    jobs: int
    virtual_s: float
    events_hash: int


class SeedFailed(AssertionError):
    """A run broke an invariant. The text begins with the seed and how to see it again."""

    def __init__(self, seed: int, nodes: int, at_us: int, cause: BaseException) -> None:
        at_s = (at_us - START_US) / SECOND_US
        what = f"{type(cause).__name__}: {cause}"
        super().__init__(
            f"seed {seed} ({nodes} nodes) failed at {at_s:.6f} s: {what}\nreplay: {replay(seed, nodes)}"
        )
        self.seed = seed


def replay(seed: int, nodes: int) -> str:
    """The command that shows the run of a seed again."""
    return f"eslurm sim --seed {seed} --nodes {nodes} --trace"


def draw_nodes(seed: int, nodes_min: int, nodes_max: int) -> int:
    """The size of a seed's cluster, small ones more often than large ones."""
    if nodes_min == nodes_max:
        return nodes_min
    share = random.Random(f"{seed}/size").random() ** 2
    return nodes_min + int(share * (nodes_max - nodes_min + 1))


def run_seed(seed: int, nodes: int, trace: Trace | None = None, until_us: int | None = None) -> Report:
    """Play a seed. Raises `SeedFailed` when anything is not as it must be.

    With `until_us` (since the start) the run stops there and only what held on the way was checked.
    """
    world = World(seed, nodes, trace)
    try:
        _play(world, until_us)
    except Exception as cause:
        raise SeedFailed(seed, nodes, world.scheduler.at_us, cause) from cause
    return Report(
        seed=seed,
        nodes=nodes,
        messages=world.network.messages,
        faults=world.faults.count,
        commits=world.checks.commits,
        facts=world.checks.facts,
        jobs=len(world.checks.acknowledged),
        virtual_s=(world.scheduler.at_us - START_US) / SECOND_US,
        events_hash=world.events_hash,
    )


def _play(world: World, until_us: int | None) -> None:
    scheduler = world.scheduler
    world.start()
    if until_us is not None:
        scheduler.run(START_US + until_us)
        return
    scheduler.run(START_US + world.faults.plan.calm_us)
    deadline_us = scheduler.at_us + RECOVERY_MAX_US
    while not world.is_settled():
        if scheduler.at_us >= deadline_us:
            raise AssertionError(
                f"no recovery within {RECOVERY_MAX_US // SECOND_US} s: {world.why_unsettled()}"
            )
        scheduler.run(scheduler.at_us + LOOK_EVERY_US)
    world.final_check()
