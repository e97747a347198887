"""One broadcast of one structure under one set of failures, held against the truth.

Invariant: failures are set, and known to every host, before the clock starts; what was done is collected after it has
stopped and a moment has passed, so that whatever comes twice has come.
"""

from __future__ import annotations

import asyncio

import msgspec

from benchmarks.relay.plan import Failures, Wrong, count_wrong
from benchmarks.relay.root import Answer
from benchmarks.relay.site import Site, Totals

FPTREE, TREE, STAR, RING, PULL = "fptree", "tree", "star", "ring", "pull"
STRUCTURES = (FPTREE, TREE, STAR, RING, PULL)
PULL_PERIOD_S = 1.0
SETTLE_S = 0.05


class Bout(msgspec.Struct, frozen=True):
    """Time and cost of one broadcast. Without `finished` it was given up after `took_s`."""

    took_s: float
    finished: bool
    wrong: Wrong
    lists_per_node: float
    frames_per_node: float
    reallocations: int
    takeovers: int
    cpu_s: dict[str, float]


class Ringside:
    """Runs bouts at a site and keeps count between them."""

    def __init__(self, site: Site, width: int) -> None:
        self.site = site
        self.width = width
        self.late_acts = 0
        self._failures: Failures | None = None
        self._before: Totals | None = None

    async def run(self, structure: str, nodes: int, failures: Failures, bound_s: float = 60.0) -> Bout:
        """One broadcast to the nodes 1..`nodes`."""
        await self.fail(failures)
        if structure == PULL:
            await self.site.pull(PULL_PERIOD_S, nodes)
        before = self._before or await self.site.collect(0)
        answer = await self._broadcast(structure, nodes, failures, bound_s)
        if structure == PULL:
            await self.site.pull(0.0, 0)
        return await self._judge(answer, nodes, failures, before)

    async def fail(self, failures: Failures) -> None:
        """These are dead now; nodes that vanish are set anew each time."""
        if failures != self._failures or failures.vanishing:
            await self.site.fail(failures)
            self._failures = failures

    async def _broadcast(self, structure: str, nodes: int, failures: Failures, bound_s: float) -> Answer:
        root = self.site.root
        match structure:
            case "fptree":
                return await root.tree(nodes, self.width, failures.predicted)
            case "tree":
                return await root.tree(nodes, self.width)
            case "star":
                return await root.star(nodes)
            case "ring":
                return await root.ring(nodes, bound_s)
            case "pull":
                return await root.pull(nodes, PULL_PERIOD_S)
        raise ValueError(f"no structure {structure!r}: use {' '.join(STRUCTURES)}")

    async def _judge(self, answer: Answer, nodes: int, failures: Failures, before: Totals) -> Bout:
        await asyncio.sleep(SETTLE_S)
        after = self._before = await self.site.collect(answer.broadcast_id)
        self.late_acts += after.late_acts
        wrong = Wrong()
        if answer.reply is not None:
            wrong = count_wrong(nodes, failures.dead, answer.reply.results, after.acts)
        return Bout(
            took_s=answer.took_s,
            finished=answer.reply is not None,
            wrong=wrong,
            lists_per_node=(after.lists - before.lists + answer.lists) / nodes,
            frames_per_node=(after.frames - before.frames) / nodes,
            reallocations=answer.reallocations,
            takeovers=answer.takeovers,
            cpu_s={kind: after.cpu_s[kind] - before.cpu_s[kind] for kind in after.cpu_s},
        )
