"""Orders of administrators to the cell: the fact, and what is refused."""

from __future__ import annotations

import pytest

from eslurm.core.model.federation import FederationWish
from eslurm.core.model.messages import Changed, ChangeFederation, RefusalCode, Refused
from eslurm.core.state.rows import encode, restore, settings_of
from tests.kits.core import ALICE, ROOT, World


def order(world: World, action: str, federation: str = "lab") -> object:
    return world.send(ChangeFederation(ROOT, federation, action))


def test_orders_add_up_and_outlive_a_restart() -> None:
    world = World(nodes=1)
    assert world.state.federation is None
    assert order(world, "drain") == Changed(1)
    assert world.state.federation == FederationWish("lab", draining=True)
    assert order(world, "drain") == Changed(0)
    order(world, "leave")
    assert world.state.federation == FederationWish("lab", draining=True, left=True)
    order(world, "rejoin")
    order(world, "resume")
    wish = FederationWish("lab", draining=False, left=False)
    assert world.state.federation == wish
    nodes = [encode(node) for node in world.state.nodes.values()]
    again = restore("main", encode(settings_of(world.state)), nodes, (), (), 9, 9)
    assert again.federation == wish


def test_orders_of_another_federation_do_not_count() -> None:
    world = World(nodes=1)
    order(world, "leave", "old")
    order(world, "drain", "new")
    assert world.state.federation == FederationWish("new", draining=True)


def test_a_cell_that_has_left_drains_no_more() -> None:
    world = World(nodes=1)
    order(world, "leave")
    for action in ("drain", "resume"):
        refused = order(world, action)
        assert isinstance(refused, Refused) and refused.code is RefusalCode.CONFLICT
        assert "esctl federation rejoin" in refused.text


@pytest.mark.parametrize(("by", "action", "code"), [(ALICE, "drain", "denied"), (ROOT, "x" * 999, "invalid")])
def test_others_and_unknown_orders_are_refused(by: object, action: str, code: str) -> None:
    world = World(nodes=1)
    refused = world.send(ChangeFederation(by, "lab", action))  # type: ignore[arg-type]
    assert isinstance(refused, Refused) and refused.code.value == code and len(refused.text) < 200
    assert world.state.federation is None
