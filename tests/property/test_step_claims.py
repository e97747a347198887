"""Drawn steps that claim cores and memory of drawn jobs, next to a naive model that counts by itself.

The model knows the amounts of the job, what each running step got, and who waits in which order. Checked after each act:
nothing is taken twice; turns come in the order of arrival; and the first that waits really finds too little.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from eslurm.core.model.job import Span
from eslurm.core.model.messages import FinishStep, StepCreated
from eslurm.core.model.protocol import LaunchStep
from eslurm.core.model.request import Request
from eslurm.core.model.step_claim import ClaimWish
from tests.kits.core import ALICE, World
from tests.kits.parts import parted, place, submit
from tests.kits.steps import create, over
from tests.support.profiles import draws
from tests.support.seeds import Seeds

NODES = 3


class Asked:
    """A step as it was asked for."""

    def __init__(self, tasks: int, nodes: int, cpus: int, claim: ClaimWish | None) -> None:
        self.tasks, self.nodes, self.cpus, self.claim = tasks, nodes, cpus, claim

    def takes(self, has: tuple[int, int], tasks: int) -> tuple[int, int]:
        """(cores, memory) on a node with so many tasks."""
        if self.claim is None:
            return 0, 0
        cores = has[0] if self.claim.whole else tasks * self.cpus
        return cores, self.claim.memory_mib + tasks * self.cpus * self.claim.memory_per_cpu_mib


class Model:
    def __init__(self, spans: list[Span]) -> None:
        self.has = {one.node: (one.amounts[0], one.amounts[1]) for one in spans}
        self.asked: dict[int, Asked] = {}
        self.running: dict[int, dict[int, tuple[int, int]]] = {}
        self.waiting: list[int] = []

    def free(self) -> dict[int, tuple[int, int]]:
        taken = {
            node: [sum(one[node][at] for one in self.running.values() if node in one) for at in (0, 1)]
            for node in self.has
        }
        return {node: (has[0] - taken[node][0], has[1] - taken[node][1]) for node, has in self.has.items()}

    def start(self, step: int, layout: dict[int, int]) -> None:
        asked = self.asked[step]
        free = self.free()
        got = {node: asked.takes(self.has[node], tasks) for node, tasks in layout.items()}
        for node, (cores, memory) in got.items():
            assert cores <= free[node][0] and memory <= free[node][1], f"step {step} takes too much"
        if asked.claim is not None:
            self.running[step] = got

    def fits(self, asked: Asked) -> bool:
        """Check by trying all choices of nodes and all numbers of tasks on them."""
        free = self.free()
        count = asked.nodes or min(len(self.has), asked.tasks or len(self.has))
        tasks = asked.tasks or count
        is_whole = asked.claim is not None and asked.claim.whole
        counts = [count] if asked.nodes or not asked.tasks or is_whole else range(1, count + 1)
        return any(
            all(
                used[0] <= free[node][0]
                and used[1] <= free[node][1]
                and each * asked.cpus <= self.has[node][0]
                for node, each in zip(chosen, shares, strict=True)
                for used in (asked.takes(self.has[node], each),)
            )
            for size in counts
            for chosen in _choices(sorted(self.has), size)
            for shares in _shares(tasks, size)
        )


def _choices(nodes: list[int], size: int) -> Iterator[tuple[int, ...]]:
    if not size:
        yield ()
        return
    for at, node in enumerate(nodes):
        for rest in _choices(nodes[at + 1 :], size - 1):
            yield (node, *rest)


def _shares(tasks: int, size: int) -> Iterator[tuple[int, ...]]:
    if size == 1:
        yield (tasks,)
        return
    for first in range(1, tasks - size + 2):
        for rest in _shares(tasks - first, size - 1):
            yield (first, *rest)


def test_steps_take_what_they_claim_once_and_in_order(seeds: Seeds) -> None:
    for seed in seeds(draws(40)):
        _life_of_a_job(random.Random(seed))


def _life_of_a_job(rng: random.Random) -> None:
    world = World(nodes=NODES)
    spans = [Span(node, (rng.randint(1, 4), rng.choice((400, 800)))) for node in range(NODES)]
    job = submit(world, parted(Request()))
    assert place(world, job, *spans) is not None
    for _ in range(2):
        world.deliver()
    model = Model(spans)
    for _ in range(40):
        act = rng.random()
        if act < 0.5:
            _ask(rng, world, job, model)
        elif act < 0.8 and model.running:
            step = rng.choice(sorted(model.running))
            node = rng.choice(sorted(model.running[step]))
            del model.running[step][node]
            if not model.running[step]:
                del model.running[step]
            over(world, job, step, node)
        elif act < 0.9 and model.waiting:
            step = rng.choice(model.waiting)
            model.waiting.remove(step)
            world.send(FinishStep(ALICE, job, step, 130))
        elif model.running and act < 0.95:
            world.send(FinishStep(ALICE, job, rng.choice(sorted(model.running)), 0))
        elif act >= 0.95:
            world.restart()
        _follow(world, job, model)


def _ask(rng: random.Random, world: World, job: int, model: Model) -> None:
    claim = rng.choice(
        (
            None,
            ClaimWish(),
            ClaimWish(),
            ClaimWish(whole=True),
            ClaimWish(memory_mib=rng.choice((100, 300, 500))),
            ClaimWish(memory_per_cpu_mib=rng.choice((100, 200))),
        )
    )
    asked = Asked(rng.choice((0, 1, 1, 2, 3, 5)), rng.choice((0, 0, 0, 1, 2)), rng.choice((1, 1, 2)), claim)
    answer = create(world, job, asked.tasks, asked.nodes, asked.cpus, claim=claim)
    if not isinstance(answer, StepCreated):
        return
    model.asked[answer.step] = asked
    must_wait = claim is not None and (bool(model.waiting) or not model.fits(asked))
    assert answer.waits == must_wait
    if answer.waits:
        model.waiting.append(answer.step)


def _follow(world: World, job: int, model: Model) -> None:
    """Take over what was launched, and look whether more should have been."""
    launched = {}
    for send in world.deliver():
        assert isinstance(send.body, LaunchStep)
        launched[send.body.step] = dict(world.state.steps[job, send.body.step].launch.layout)
    for step, layout in sorted(launched.items()):
        if step in model.waiting:
            assert step == model.waiting.pop(0), "a step has overtaken another one"
        model.start(step, layout)
    assert world.state.step_use.waiting.get(job, []) == model.waiting
    assert not model.waiting or not model.fits(model.asked[model.waiting[0]]), "its turn was forgotten"
