"""The administrator of some seeds: changes the configuration file while the cluster runs, and has it read again.

Nodes are added, drained and removed, and numbers change; other controllers' hosts get the file later. What a leader refuses
(a node that is not empty yet) is asked again until it is taken. Invariant: its luck is its own, so that other seeds stay
what they are.
"""

from __future__ import annotations

import random
from typing import Any, Final

from msgspec.structs import replace

from eslurm.core.model.messages import Changed, UpdateNodes
from eslurm.core.model.units import SECOND_US
from eslurm.lab.sim.site_view import SiteView

CHANGES: Final = (3, 8)
ADDED_MAX: Final = 3
AGAIN_US: Final = 2 * SECOND_US
COPIED_WITHIN_US: Final = 30 * SECOND_US


class Administrator:
    """Make it with the world, and `schedule` at its start."""

    def __init__(self, world: SiteView, *, works: bool) -> None:
        self._world = world
        self._works = works
        self._random = random.Random(f"{world.seed}/administrator")
        self._added: list[str] = []
        self._removed: set[str] = set()
        self._is_asking = False

    @property
    def waits(self) -> bool:
        """Check whether a version is not in force yet."""
        return self._works and self._world.files.in_force < self._world.files.newest

    def schedule(self, until_us: int) -> None:
        """Enter the changes into the scheduler; the last one before `until_us`."""
        if not self._works:
            return
        for _ in range(self._random.randint(*CHANGES)):
            self._world.scheduler.call_in(self._random.randint(2 * SECOND_US, until_us), self._change)
        self._world.scheduler.call_in(until_us, self._copy)

    def _change(self) -> None:
        # Never all at once: what is refused for one thing would keep the others back.
        if self.waits:
            return
        there = [name for name in self._added if name in self._world.files.names_in_force]
        act = self._random.choice(
            (self._add, self._add, self._renumber, self._remove if there else self._add)
        )
        act()
        self._ask()

    def _add(self) -> None:
        if len(self._added) < ADDED_MAX:
            name = self._world.add_node(self._random)
            self._added.append(name)
            self._written(f"{name} is new")

    def _remove(self) -> None:
        there = [name for name in self._added if name in self._world.files.names_in_force]
        name = self._random.choice(there)
        self._removed.add(name)
        self._world.remove_node(name)
        self._written(f"{name} goes")

    def _renumber(self) -> None:
        config = self._world.config
        first = replace(config.partitions[0], priority=self._random.randint(0, 9))
        self._world.rewrite(
            replace(
                config,
                partitions=(first, *config.partitions[1:]),
                requeue_delay_s=self._random.choice((0.5, 0.7, 1.0)),
            )
        )
        self._written("other numbers")

    def _written(self, what: str) -> None:
        world = self._world
        world.note(f"configuration {world.files.newest}: {what}")
        for seat in world.seats:
            if seat.leader is None:
                delay_us = self._random.randint(0, COPIED_WITHIN_US)
                world.scheduler.call_in(delay_us, lambda host=seat.name: world.files.copy_to(host))  # type: ignore[misc]

    def _copy(self) -> None:
        for seat in self._world.seats:
            self._world.files.copy_to(seat.name)

    def _ask(self) -> None:
        """Have the leader read its file, until the newest version is in force."""
        world, leader = self._world, self._world.controller
        if not self.waits or self._is_asking:
            return
        self._is_asking = True
        if leader is not None:
            busy = tuple(sorted(self._removed & world.files.names_in_force))
            if busy:
                world.client.call(UpdateNodes(world.client.operator, busy, "drain", "removed"))
            world.files.copy_to(leader.seat.name)
            leader.read_again(self._told)
        world.scheduler.call_in(AGAIN_US, self._ask_again)

    def _told(self, answer: Any) -> None:
        if isinstance(answer, Changed) and answer.count:
            self._world.files.taken_live += 1
            self._world.coverage.count("configuration read again")
            if any(note.endswith(": removed") for note in answer.notes):
                self._world.coverage.count("node removed from a running cluster")

    def _ask_again(self) -> None:
        self._is_asking = False
        self._ask()
