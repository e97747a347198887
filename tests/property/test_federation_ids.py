"""Job ids of several cells over one store, whatever crashes, is lost or comes late: no id is of two cells, those of a cell
rise, and the store has what its log says.
"""

from __future__ import annotations

import itertools
import random

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from eslurm.core.federation.values import Reader, first_id_in
from eslurm.core.model.federation import ID_RESERVE, IdBlock
from eslurm.core.model.messages import Refused
from eslurm.lab.kv.image import KvImage
from tests.kits.federation import KEYS, LEASE_S, CellLog, Controller, Network, held

NAMES = ("alpha", "beta", "gamma")
BLOCKS = Reader(IdBlock, KEYS.ids)


def check(network: Network, logs: dict[str, CellLog]) -> None:
    """Raises AssertionError."""
    blocks = sorted(
        (first, block.count, block.cell, version)
        for key, (value, version) in held(network.image, KEYS.ids).items()
        if (first := first_id_in(KEYS.ids, key)) and isinstance(block := BLOCKS.read(key, value), IdBlock)
    )
    for (first, count, *_), (following, *_) in itertools.pairwise(blocks):
        assert first + count <= following, "two blocks share ids"
    assert [one[3] for one in blocks] == sorted(one[3] for one in blocks), "blocks rise"
    stored = {(first, count): (cell, version) for first, count, cell, version in blocks}
    drawn: dict[int, str] = {}
    for name, log in logs.items():
        ids = [job_id for job_id, _ in log.drawn]
        assert ids == sorted(set(ids)), f"the ids of {name} rise"
        for job_id, is_leased in log.drawn:
            if is_leased:
                assert drawn.setdefault(job_id, name) == name, f"{job_id} is of {name} and {drawn[job_id]}"
        for one in log.state.id_blocks:
            if one.version:
                assert stored[one.first, one.count] == (name, one.version)


# A smaller seed is no simpler world: nothing is shrunk.
@settings(max_examples=12, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(seed=st.integers(0, 2**32 - 1))
def test_no_id_is_of_two_cells(seed: int) -> None:
    draws = random.Random(seed)
    network = Network(KvImage(), draws)
    logs = {name: CellLog(name) for name in NAMES}
    for log in logs.values():
        if draws.random() < 0.5:
            log.draw(draws.randint(1, 3_000))
    epochs = dict.fromkeys(NAMES, 1)
    latest = {name: Controller(name, log=logs[name]) for name in NAMES}
    network.controllers += latest.values()
    for _ in range(draws.randint(50, 300)):
        network.step()
        roll = draws.random()
        name = draws.choice(NAMES)
        if roll < 0.15:
            controller = draws.choice(network.controllers)
            controller.commit()
        elif roll < 0.3:
            log = logs[name]
            left = log.state.id_blocks[-1].end - log.state.next_id if log.state.id_blocks else 1_000
            try:
                log.draw(max(1, min(left, draws.choice((3, 500)))))
                if log.state.id_blocks and not log.state.id_blocks[-1].is_open and draws.random() < 0.3:
                    # Nearly all are used.
                    log.state.next_id = max(
                        log.state.next_id, log.state.id_blocks[-1].end - draws.randint(0, 9)
                    )
            except Refused:
                pass
        elif roll < 0.32:
            # The leader dies, or only stands still and goes on later: another leads.
            if draws.random() < 0.5 and latest[name] in network.controllers:
                network.stop(latest[name])
            epochs[name] += 1
            latest[name] = Controller(name, epochs[name], log=logs[name])
            network.controllers.append(latest[name])
        elif roll < 0.33:
            network.image.compact(network.image.revision)
        elif roll < 0.34:
            network.advance(int(LEASE_S * 1.5e6))
        elif roll < 0.35:
            latest[name].membership.change(left=draws.random() < 0.5)
        check(network, logs)
    for _ in range(20):
        network.settle(1.5)
        for controller in latest.values():
            controller.membership.change(left=False)
        for controller in network.controllers:
            controller.commit()
        check(network, logs)
    for name, controller in latest.items():
        assert controller.ids.left >= ID_RESERVE, (
            name,
            controller.membership.standing,
            controller.ids.problem,
        )
        assert not controller.ids.problem
        logs[name].draw(1)
        assert logs[name].drawn[-1][1], "leased ids are drawn now"
        for other in latest.values():
            assert other.ids.table.cell_of(logs[name].drawn[-1][0]) == name
    check(network, logs)
