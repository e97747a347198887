"""Membership of several cells over one store, whatever crashes, is lost or comes late: one number a name, one name a number,
and no former leader writes over a newer one.
"""

from __future__ import annotations

import random

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from eslurm.core.federation.actions import SwapKeys
from eslurm.core.federation.membership import Standing
from eslurm.core.federation.values import Reader
from eslurm.core.federation.view import CellState
from eslurm.core.model.federation import Alive, CellRecord, Summary
from eslurm.lab.kv.image import KvImage
from tests.kits.federation import KEYS, LEASE_S, Controller, Network, copied, held

NAMES = ("alpha", "beta", "gamma")
RECORDS = Reader(CellRecord, KEYS.cells)
ALIVE = Reader(Alive, KEYS.alive)
SUMMARIES = Reader(Summary, KEYS.summary)


class Watcher:
    """Looks at each swap that the store makes, and at the numbers that it holds."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._seen = 0
        self._numbers: dict[str, int] = {}
        self._epochs: dict[str, int] = {}

    def check(self) -> None:
        """Raises AssertionError."""
        for controller, action in self._network.made[self._seen :]:
            self._check_swap(controller, action)
        self._seen = len(self._network.made)
        for key, (value, _) in held(self._network.image, KEYS.cells).items():
            if key == KEYS.number:
                continue
            record = RECORDS.read(key, value)
            assert isinstance(record, CellRecord), record
            assert self._numbers.setdefault(record.name, record.number) == record.number
        assert len(set(self._numbers.values())) == len(self._numbers), self._numbers

    def _check_swap(self, controller: Controller, action: SwapKeys) -> None:
        for write in action.then:
            if write.value is None or not write.key.startswith((KEYS.alive, KEYS.summary)):
                continue
            assert write.lease, f"{write.key} hangs on no lease"
            if write.key.startswith(KEYS.alive):
                alive = ALIVE.read(write.key, write.value)
                assert isinstance(alive, Alive), alive
                name = write.key.removeprefix(KEYS.alive)
                still = self._network.image.get(write.key).entry
                if still is not None and self._epochs.get(name, 0) > alive.epoch:
                    # A newer word that was there is gone only if its lease ended.
                    assert dict(action.expect)[write.key] == 0, (
                        f"epoch {alive.epoch} over {self._epochs[name]}"
                    )
                self._epochs[name] = alive.epoch
            else:
                summary = SUMMARIES.read(write.key, write.value)
                assert isinstance(summary, Summary), summary
                name = write.key.removeprefix(KEYS.summary)
                assert summary.epoch == self._epochs[name], (
                    f"{summary.epoch} writes under {self._epochs[name]}"
                )


# A smaller seed is no simpler world: nothing is shrunk.
@settings(max_examples=20, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(seed=st.integers(0, 2**32 - 1))
def test_names_and_numbers_are_one_to_one(seed: int) -> None:
    draws = random.Random(seed)
    network = Network(KvImage(), draws)
    watcher = Watcher(network)
    epochs = dict.fromkeys(NAMES, 1)
    latest = {name: Controller(name) for name in NAMES}
    network.controllers += latest.values()
    for _ in range(draws.randint(50, 400)):
        network.step()
        watcher.check()
        roll = draws.random()
        name = draws.choice(NAMES)
        if roll < 0.02:
            # The leader dies, or only stands still and goes on later: another leads.
            if draws.random() < 0.5 and latest[name] in network.controllers:
                network.stop(latest[name])
            epochs[name] += 1
            latest[name] = Controller(name, epochs[name])
            network.controllers.append(latest[name])
        elif roll < 0.03:
            network.image.compact(network.image.revision)
        elif roll < 0.04:
            network.advance(int(LEASE_S * 1.5e6))
    network.settle(15.0)
    watcher.check()
    for name, controller in latest.items():
        member = controller.membership
        assert member.standing is Standing.MEMBER, (name, member.standing, member.problem)
        entry = network.image.get(KEYS.alive + name).entry
        assert entry is not None and entry.lease == member.lease
        alive = ALIVE.read(entry.key, entry.value)
        assert isinstance(alive, Alive) and alive.epoch == epochs[name]
        assert network.image.get(KEYS.summary + name).entry is not None
    for controller in network.controllers:
        for mirror in controller.mirrors:
            assert copied(mirror) == held(network.image, mirror.prefix)
        if controller is not latest[controller.name]:
            assert controller.membership.standing is Standing.SUPERSEDED
            assert not controller.membership.lease
        seen = controller.view(network.now_us)
        assert [(cell.name, cell.state) for cell in seen.cells] == [(name, CellState.ALIVE) for name in NAMES]
        assert not any(cell.problem for cell in seen.cells)
