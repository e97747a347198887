"""Topologies: lookups, order, and what they refuse."""

from __future__ import annotations

import pytest

from eslurm.core.resources.ledger import Ledger, LedgerError
from eslurm.core.resources.nodes import NodeView, Topology


def test_positions_follow_the_order_given() -> None:
    topology = Topology(
        [
            NodeView(30, "c", (4,), True, ("main", "debug")),
            NodeView(10, "a", (8, 100), False, ("main",)),
            NodeView(20, "b", (8, 100), True, ("debug",)),
        ]
    )
    assert topology.numbers == (30, 10, 20)
    assert topology.totals == ((4, 0), (8, 100), (8, 100))
    assert topology.partitions == {"main": 0b011, "debug": 0b101}
    assert topology.usable == 0b101
    assert topology.mask_of_names(["b", "unknown"]) == 0b100
    assert topology.mask_of_numbers([30, 10, 99]) == 0b011


def test_duplicates_and_negative_amounts_are_refused() -> None:
    with pytest.raises(ValueError, match="share"):
        Topology([NodeView(1, "a", (1,)), NodeView(1, "b", (1,))])
    with pytest.raises(ValueError, match="share"):
        Topology([NodeView(1, "a", (1,)), NodeView(2, "a", (1,))])
    with pytest.raises(ValueError, match="negative"):
        Topology([NodeView(1, "a", (-1,))])


def test_unknown_nodes_and_negative_holds_are_refused() -> None:
    ledger = Ledger(Topology([NodeView(1, "a", (4, 10))]))
    with pytest.raises(LedgerError, match="no node number 9"):
        ledger.hold(9, (1,))
    with pytest.raises(LedgerError, match="node a has"):
        ledger.hold(1, (-1, 0))
    assert not ledger.fits_on(9, (0,))
    ledger.check()


def test_a_wider_vector_widens_every_node() -> None:
    ledger = Ledger(Topology([NodeView(1, "a", (4, 10, 2)), NodeView(2, "b", (4, 10))]))
    assert ledger.free(2) == (4, 10, 0)
    ledger.hold(1, (1,), 5)
    assert ledger.free(1) == (3, 10, 2)
    assert ledger.fitting((1, 0, 1)) == 0b01
    ledger.give_back(1, (1, 0, 0), 5)
    ledger.check()
