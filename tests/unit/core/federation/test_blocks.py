"""Blocks of job ids: what a cell leases and takes up, and why it leases none."""

from __future__ import annotations

import random

import pytest

from eslurm.core.federation.blocks import IdTable
from eslurm.core.federation.mirror import Mirror
from eslurm.core.federation.values import Reader, Unreadable, encode, first_id_in
from eslurm.core.model.federation import FORMAT, ID_RESERVE, IdBlock, NextId
from eslurm.core.model.job_ids import ID_BLOCK, JOB_ID_MAX
from eslurm.lab.kv.image import KvImage
from tests.kits.federation import KEYS, CellLog, Controller, Network, held, put, remove

BLOCKS = Reader(IdBlock, KEYS.ids)


def world(*names: str) -> tuple[Network, list[Controller]]:
    network = Network(KvImage(), random.Random(1))
    cells = [Controller(name) for name in names]
    network.controllers += cells
    return network, cells


def settle(network: Network, seconds: float = 10.0) -> None:
    for _ in range(int(seconds)):
        network.settle(1.0)
        for cell in network.controllers:
            cell.commit()
    network.settle(1.0)


def leased(image: KvImage) -> dict[int, tuple[str, int]]:
    """Blocks in the store, by their first ids."""
    found = {}
    for key, (value, _) in held(image, KEYS.ids).items():
        block = BLOCKS.read(key, value)
        if (first := first_id_in(KEYS.ids, key)) and isinstance(block, IdBlock):
            found[first] = block.cell, block.count
    return found


def test_each_cell_has_ids_of_its_own() -> None:
    network, (alpha, beta) = world("alpha", "beta")
    settle(network)
    blocks = leased(network.image)
    assert sorted(cell for cell, _ in blocks.values()) == ["alpha", "beta"]
    for cell in (alpha, beta):
        assert cell.ids.left == ID_RESERVE and not cell.ids.problem
        cell.log.draw(10)
        first = cell.log.drawn[0][0]
        assert first % ID_BLOCK == 0 and blocks[first][0] == cell.name
        for other in (alpha, beta):
            assert other.ids.table.cell_of(first) == other.ids.table.cell_of(first + 9) == cell.name
    assert alpha.ids.table.cell_of(5) == "" and alpha.ids.table.cell_of(JOB_ID_MAX) == ""
    assert alpha.ids.table.counts() == {"alpha": ID_RESERVE, "beta": ID_RESERVE}


def test_more_are_leased_before_the_reserve_is_gone() -> None:
    network, (alpha,) = world("alpha")
    settle(network)
    for _ in range(3):
        alpha.log.draw(ID_BLOCK // 2)
        settle(network, 3)
        assert alpha.ids.left >= ID_RESERVE
    blocks = leased(network.image)
    assert len(blocks) > 1 and len(alpha.log.state.id_blocks) <= len(blocks)


def test_a_day_that_used_more_ids_makes_the_reserve_larger() -> None:
    network, (alpha,) = world("alpha")
    settle(network)
    for _ in range(10):
        alpha.log.draw(ID_BLOCK)
        settle(network, 2)
    assert alpha.ids.reserve == 10 * ID_BLOCK
    settle(network, 3)
    assert alpha.ids.left >= 10 * ID_BLOCK


def test_the_ids_of_an_old_cluster_lie_below_its_first_block() -> None:
    network = Network(KvImage(), random.Random(1))
    old = CellLog("old")
    old.draw(5_217_333)
    young = Controller("young")
    network.controllers.append(young)
    settle(network)
    joined = Controller("old", log=old)
    network.controllers.append(joined)
    network.settle(2.0)
    # It works on while it joins, within a bound that is in its log.
    joined.commit()
    old.draw(20_000)
    assert not old.drawn[-1][1]
    settle(network)
    old.draw(1)
    assert old.drawn[-1] == (
        min(first for first, (cell, _) in leased(network.image).items() if cell == "old"),
        True,
    )
    young.log.draw(1)
    assert young.ids.table.cell_of(young.log.drawn[-1][0]) == "young"
    assert joined.ids.table.cell_of(17) == "", "ids of before are nobody's"


def test_a_block_that_no_log_knows_is_taken_up_by_the_next_leader() -> None:
    network, (first,) = world("alpha")
    network.settle(3.0)
    first.commit()
    network.settle(3.0)
    assert len(leased(network.image)) == 1 and first.wished, (
        "leased, and the leader dies before its log knows"
    )
    network.stop(first)
    second = Controller("alpha", 2, log=first.log)
    network.controllers.append(second)
    settle(network)
    assert list(leased(network.image)) == [one.first for one in second.log.state.id_blocks]


def test_a_cell_that_leaves_draws_ids_alone_and_a_new_block_after_it_came_back() -> None:
    network, (alpha,) = world("alpha")
    settle(network)
    alpha.membership.change(left=True)
    settle(network)
    assert alpha.log.state.id_blocks[-1].is_open
    alpha.log.draw(ID_RESERVE)
    alpha.log.draw(10)
    assert not alpha.log.drawn[-1][1]
    alpha.membership.change(left=False)
    settle(network)
    drawn = alpha.log.drawn[-1][0]
    alpha.log.draw(1)
    assert alpha.log.drawn[-1][1] and alpha.log.drawn[-1][0] > drawn


def test_a_store_that_has_lost_the_blocks_leases_none_until_an_administrator_rejoins() -> None:
    network, (alpha,) = world("alpha")
    settle(network)
    for key in held(network.image, KEYS.ids):
        remove(network.image, key)
    alpha.log.draw(ID_BLOCK // 2)
    settle(network)
    assert not leased(network.image)
    assert "esctl federation rejoin" in alpha.ids.problem
    alpha.log.draw(1)
    alpha.ids.rejoins = True
    settle(network)
    assert not alpha.ids.problem and alpha.ids.left >= ID_RESERVE
    assert alpha.log.state.id_blocks[0].first in leased(network.image)


def test_blocks_that_overlap_are_no_cells() -> None:
    network, (alpha,) = world("alpha")
    settle(network)
    (own,) = leased(network.image)
    put(network.image, KEYS.id_block(own + 5), encode(IdBlock(FORMAT, "evil", 100)))
    settle(network)
    assert alpha.ids.table.cell_of(own + 6) == "" and "others wrote there" in alpha.ids.problem
    put(network.image, KEYS.id_block(own + 9_000_000), encode(IdBlock(FORMAT, "beta", 100)))
    network.settle(1.0)
    assert alpha.ids.table.cell_of(own + 9_000_001) == "beta"
    assert alpha.ids.table.end == own + 9_000_100


def test_when_all_ids_are_leased_it_says_so() -> None:
    network = Network(KvImage(), random.Random(1))
    put(network.image, KEYS.next_id, encode(NextId(FORMAT, JOB_ID_MAX - 5)))
    alpha = Controller("alpha")
    network.controllers.append(alpha)
    settle(network)
    assert alpha.ids.problem == "all job ids of the federation are leased"
    assert not leased(network.image)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (KEYS.ids + "17", encode(IdBlock(FORMAT, "beta", 5))),
        (KEYS.id_block(0), encode(IdBlock(FORMAT, "beta", 5))),
        (KEYS.id_block(JOB_ID_MAX - 3), encode(IdBlock(FORMAT, "beta", 5))),
        (KEYS.id_block(100), b"\xc1"),
        (KEYS.id_block(100), b"x" * 1000),
    ],
)
def test_blocks_of_strangers_are_left_out(key: str, value: bytes) -> None:
    assert isinstance(BLOCKS.read(key, value), Unreadable) or not first_id_in(KEYS.ids, key)
    network, (alpha,) = world("alpha")
    put(network.image, key, value)
    settle(network)
    assert alpha.ids.left == ID_RESERVE and alpha.ids.table.counts() == {"alpha": ID_RESERVE}


def test_a_table_of_nothing() -> None:
    table = IdTable(Mirror(KEYS.ids))
    assert table.cell_of(1) == "" and table.end == 1 and table.block_at(1) is None and table.blocks == []
