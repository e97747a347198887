"""Every scenario again, stopped dead before each single action, restarted and carried to its end.

The controller here is the simplest one that is right: it repeats what it is owed an answer to, knows a job to be over
by its outcome, by `Gone` or by an inventory without it, and acknowledges late. Whatever happens: a script runs at
most once, an outcome is never lost, and in the end nothing is left.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec
import pytest

from eslurm.core.model.job import StepEnd
from eslurm.core.model.protocol import (
    Body,
    Command,
    End,
    Gone,
    NodeGone,
    Prepare,
    Registration,
    Start,
    StepEnded,
)
from eslurm.core.model.step_key import StepKey
from eslurm.core.relay.results import Status
from tests.kits.agent import Crashed, World, launch
from tests.support.profiles import draws
from tests.support.seeds import Seeds

ROUNDS_MAX = 60
BATCH = StepKey(7, 1, -1, 0)


class Controller:
    """Job 7 on `nodes`; cancelled while it runs if `cancels`."""

    def __init__(self, world: World, nodes: tuple[int, ...], cancels: bool) -> None:
        self.world = world
        self.nodes = nodes
        self.cancels = cancels
        self.prepared: set[int] = set()
        self.started = False
        self.failed = False
        self.gone: set[int] = set()
        self.end: StepEnd | None = None
        self.outcomes = 0
        self.seen = 0
        self.asked: list[tuple[int, int, Body]] = []
        self.revisions = {"prepare": 10, "start": 11, "end": 12}

    @property
    def done(self) -> bool:
        return self.gone >= set(self.nodes)

    def turn(self) -> None:
        """One round: send what is owed, let things happen, take in what came."""
        world = self.world
        self.take_reports()
        if self.end is not None or self.failed:
            self.ask("end", End(7, 1, 1.0, "over"), [n for n in self.nodes if n not in self.gone])
        elif len(self.nodes) == 1 and not self.started:
            self.ask("prepare", Prepare(launch(self.nodes), start=True), self.nodes)
        elif not self.prepared >= set(self.nodes) and not self.started:
            self.ask(
                "prepare", Prepare(launch(self.nodes)), [n for n in self.nodes if n not in self.prepared]
            )
        elif not self.started:
            self.ask("start", Start(7, 1), self.nodes[:1])
        elif self.cancels:
            self.ask("end", End(7, 1, 1.0, "cancel"), [n for n in self.nodes if n not in self.gone])
        self.take_answers()
        self.let_happen()
        self.take_answers()
        self.take_reports()
        world.pass_time(7)

    def ask(self, effect: str, body: Body, nodes: object) -> None:
        chosen = tuple(nodes)  # type: ignore[arg-type]
        if chosen and all(n in self.world.incarnations for n in chosen):
            command = self.world.command(body, chosen, revision=self.revisions[effect])
            self.sent(command)
            ref = self.world.give(command)
            self.asked += [(ref, node, body) for node in chosen]
            self.world.settle()

    def sent(self, command: Command) -> None:
        """A place for tests that repeat commands."""

    def let_happen(self) -> None:
        """A running script ends: by itself, or because it was told to."""
        runner = self.world.runner
        told = any(t.step == BATCH for t in runner.terminated)
        if BATCH in runner.live and (told or (self.started and not self.cancels)):
            self.world.finish(signal=15 if told else 0, exit_code=0 if told else 3)

    def take_answers(self) -> None:
        for ref, node, body in self.asked:
            outcome = self.world.answered(ref).get(node)
            if outcome is None or outcome.status is Status.UNREACHED:
                continue
            if outcome.status is Status.FAILED:
                if not isinstance(body, End):
                    self.failed = True
            elif isinstance(body, End):
                if outcome.payload and not self.awaits_outcome(node, outcome.payload):
                    self.gone.add(node)
            else:
                self.prepared.add(node)
                self.started = self.started or isinstance(body, Start) or len(self.nodes) == 1

    def awaits_outcome(self, node: int, payload: bytes) -> bool:
        started = msgspec.msgpack.decode(payload, type=Gone).started
        return started and node == self.nodes[0] and self.end is None and not self.failed

    def take_reports(self) -> None:
        world = self.world
        for seq, report in list(world.reports.items()):
            body = report.body
            if isinstance(body, Registration):
                self.take_inventory(body)
                world.reply(report)
                continue
            if isinstance(body, StepEnded):
                self.end = body.end
                self.outcomes += 1
                if body.gone:
                    self.gone.add(body.node)
            elif isinstance(body, NodeGone):
                self.gone.add(body.node)
            if seq in world.reports:
                world.ack(seq)

    def take_inventory(self, body: Registration) -> None:
        number = self.world.names.index(body.name)
        held = {line.job_id: line.stage for line in body.held}
        if (
            self.started
            and number == self.nodes[0]
            and held.get(7) in (None, "tombstone")
            and self.end is None
        ):
            # It had started and is over, and nobody will ever say how.
            self.end = StepEnd(1, cause="lost")
            self.gone.add(number)


def scenario(nodes: tuple[int, ...], cancels: bool) -> Callable[[World], Controller]:
    return lambda world: Controller(world, nodes, cancels)


SCENARIOS = {
    "one node": scenario((0,), False),
    "one node, cancelled": scenario((0,), True),
    "three nodes": scenario((0, 1, 2), False),
    "three nodes, cancelled": scenario((0, 1, 2), True),
}


def carry_out(world: World, make: Callable[[World], Controller], boots: bool = False) -> Controller:
    """Run the scenario to its end, restarting whenever the agent dies."""
    controller = make(world)
    for _ in range(ROUNDS_MAX):
        try:
            controller.turn()
        except Crashed:
            revive(world, boots)
        if controller.done and not world.reports and not world.runner.ended:
            break
    return controller


def revive(world: World, boots: bool) -> None:
    try:
        world.restart(boot=boots)
    except Crashed:
        world.restart(boot=boots)


def check_end(world: World, controller: Controller, label: str) -> None:
    world.crash_at = None
    assert controller.done, label
    assert all(count == 1 for count in world.runner.started.values()), label
    assert not world.runner.live and not world.runner.ended, label
    if world.runner.started and world.boot_id == "boot-1":
        assert controller.end is not None, f"{label}: the outcome was lost"
    if not controller.failed and not controller.cancels and world.boot_id == "boot-1":
        assert controller.end is not None and controller.end.exit_code == 3, label
    for number in controller.nodes:
        assert world.stages(number) == {}, label
        assert not world.agent.registry.by_number[number].owed, label
    # And for ever after: late copies of everything start nothing.
    for node in controller.nodes:
        world.order(Prepare(launch(controller.nodes), start=True), (node,), revision=10)
    assert all(count == 1 for count in world.runner.started.values()), label


def actions_without_a_crash(make: Callable[[World], Controller]) -> tuple[int, int]:
    world = World(nodes=3)
    first = world.actions
    check_end(world, carry_out(world, make), "undisturbed")
    return first, world.actions


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("boots", [False, True], ids=["restart", "reboot"])
def test_stopped_before_every_action(name: str, boots: bool) -> None:
    make = SCENARIOS[name]
    first, last = actions_without_a_crash(make)
    assert last - first >= 7
    for at in range(first, last):
        world = World(nodes=3)
        world.crash_at = at
        controller = carry_out(world, make, boots)
        check_end(world, controller, f"{name}, stopped before action {at}")


@pytest.mark.parametrize("name", SCENARIOS)
def test_stopped_twice(name: str) -> None:
    make = SCENARIOS[name]
    first, last = actions_without_a_crash(make)
    for at in range(first, last):
        for again in (1, 2, 5, 9, 14):
            world = World(nodes=3)
            world.crash_at = at
            controller = make(world)
            crashes = 0
            for _ in range(ROUNDS_MAX):
                try:
                    controller.turn()
                except Crashed:
                    crashes += 1
                    if crashes == 1:
                        world.crash_at = world.actions + again
                    revive(world, False)
                if controller.done and not world.reports and not world.runner.ended:
                    break
            world.crash_at = None
            check_end(world, controller, f"{name}, stopped before {at} and {again} later")


class Noisy(Controller):
    """Repeats and reorders: any command that was ever sent may arrive again at any time, in any order."""

    def __init__(self, world: World, nodes: tuple[int, ...], cancels: bool, rng: random.Random) -> None:
        super().__init__(world, nodes, cancels)
        self.rng = rng
        self.commands: list[Command] = []

    def sent(self, command: Command) -> None:
        self.commands.append(command)

    def turn(self) -> None:
        world = self.world
        for command in self.rng.choices(self.commands, k=3) if self.commands else ():
            world.give(command)
            if self.rng.random() < 0.5:
                world.settle()
        if self.rng.random() < 0.1:
            world.restart()
        if self.rng.random() < 0.1:
            world.perform(world.agent.on_link_down(world.now_us))
            world.perform(world.agent.on_link_up(world.now_us))
        if self.rng.random() < 0.05:
            world.epoch += 1
        if self.rng.random() < 0.5:
            super().turn()


def test_commands_doubled_and_reordered_with_restarts(seeds: Seeds) -> None:
    for seed in seeds(draws(300)):
        rng = random.Random(seed)
        nodes = rng.choice([(0,), (0, 1, 2)])
        world = World(nodes=3)
        controller = Noisy(world, nodes, rng.random() < 0.5, rng)
        for _ in range(ROUNDS_MAX * 4):
            controller.turn()
            if controller.done and not world.reports and not world.runner.ended:
                break
        world.register()
        world.ack_all()
        check_end(world, controller, f"seed {seed}")
