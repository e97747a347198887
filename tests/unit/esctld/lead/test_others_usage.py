"""Usage of one controller's cell in the fair tree and the metrics of another's, over a store in memory."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from esctld.lead.federation import Federation
from esctld.lead.federation_metrics import SKIPPED, USAGE_AGE, USAGE_CELLS, families
from esctld.lead.others_usage import OthersUsage
from eslurm.core.control.fair_share import tree_of
from eslurm.core.federation.membership import Identity, Lead
from eslurm.core.federation.participant import Inputs
from eslurm.core.federation.values import Keys
from eslurm.core.model.config import PriorityWeights
from eslurm.core.model.federation import FederationConfig
from eslurm.core.plan.slices import exhaust
from eslurm.core.state.view import View
from eslurm.lab.kv.image import KvImage
from eslurm.lab.kv.memory import MemoryKv
from eslurm.security.site_keys import new_site
from tests.kits.core import ALICE, World
from tests.kits.federation import put
from tests.support.loops import run
from tests.unit.esctld.lead.test_federation import ended, until


class Cell:
    """A cell with its own cluster, as a member of `image`."""

    def __init__(self, image: KvImage, name: str, fair_share: str = "sum") -> None:
        self.world = World(priority=PriorityWeights(half_life_s=0), restarts=False)
        self.trusted = {"alpha", "beta"}
        site: Any = SimpleNamespace(ring=new_site(name, 1).ring)
        self.part = Federation(
            lambda: MemoryKv(image),
            FederationConfig("lab", name, fair_share=fair_share),
            Identity(name, site.ring.sealed),
            Lead(1, "127.0.0.1:7400"),
            site,
            Inputs(lambda: View(self.world.state), lambda: None, lambda: self.world.now_us, self.world.send),
        )
        self.others = OthersUsage(self.part, View(self.world.state), lambda cell: cell in self.trusted)

    def metrics(self) -> tuple[float, float, float]:
        """Cells that count, the age of the oldest, and values that cannot be used."""
        found = {one.described: one.samples[0][1] for one in families(self.part, None, self.others)}
        return found[USAGE_CELLS], found[USAGE_AGE], found[SKIPPED]


def test_what_runs_in_one_cell_counts_in_the_other() -> None:
    image = KvImage()

    async def test() -> None:
        alpha, beta = Cell(image, "alpha"), Cell(image, "beta")
        alpha.world.submit(user=ALICE, account="physics")
        alpha.world.start()
        alpha.world.pass_time(100)
        beta.world.submit(user=ALICE, account="physics")
        beta.world.start()
        assert beta.metrics() == (0, -1, 0)
        tasks = [asyncio.create_task(one.part.run()) for one in (alpha, beta)]
        await until(lambda: bool(beta.others.words()))
        assert exhaust(beta.others.summed()) == {("physics", "alice"): 100.0}
        members = exhaust(
            tree_of(beta.world.state, beta.world.now_us, others_usage=beta.others.summed)
        ).members()
        assert [(one.account, one.user, one.others) for one in members] == [
            ("physics", "", 100.0),
            ("physics", "alice", 100.0),
        ]
        count, age_s, skipped = beta.metrics()
        assert (count, skipped) == (1, 0) and 0 <= age_s < 30
        put(image, f"{Keys('lab').usage}alpha", b"\xc1")
        await until(lambda: bool(beta.others.words()[0].problem))
        assert beta.metrics() == (0, -1, 1)
        beta.trusted = set()
        assert "trusted" in beta.others.words()[0].problem
        for task in tasks:
            await ended(task)

    run(test())


def test_a_cell_with_its_own_usage_alone_has_none_of_others() -> None:
    cell = Cell(KvImage(), "alpha", "own")
    assert cell.part.usage is None
    assert cell.others.words() == [] and exhaust(cell.others.summed()) == {}
