"""The table of switches: what it says of a node, and when a failure is over."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eslurm.faults.switches import Mode, Switch, Switches

OFF = [Mode.DEAD, Mode.SILENT, Mode.PARTITIONED]


@pytest.mark.parametrize("mode", OFF)
def test_nothing_gets_through_to_a_node_that_is_off(mode: Mode) -> None:
    switches = Switches()
    switches.set([1, 2], Switch(mode))
    assert [switches.is_off(node) for node in (1, 2, 3)] == [True, True, False]
    assert switches.delay_us(1) == 0


def test_a_slow_node_is_not_off() -> None:
    switches = Switches()
    switches.set([1], Switch(Mode.SLOW, delay_us=7))
    assert not switches.is_off(1)
    assert [switches.delay_us(node) for node in (1, 2)] == [7, 0]


def test_a_later_failure_takes_the_place_of_an_earlier_one() -> None:
    switches = Switches()
    switches.set([1], Switch(Mode.DEAD, until_us=10))
    switches.set([1], Switch(Mode.SILENT))
    assert switches.find(1) == Switch(Mode.SILENT)
    assert switches.expire(20) == []
    assert switches.next_expiry_us() is None


def test_healing_names_those_that_were_struck() -> None:
    switches = Switches()
    switches.set([1, 2], Switch(Mode.DEAD))
    assert switches.heal([2, 3]) == [2]
    assert switches.all() == {1: Switch(Mode.DEAD)}
    assert switches.heal([2]) == []


@given(
    st.dictionaries(st.integers(0, 50), st.none() | st.integers(0, 100)),
    st.integers(0, 100),
)
def test_what_is_over_is_gone_and_nothing_else(ends: dict[int, int | None], now_us: int) -> None:
    switches = Switches()
    for node, until_us in ends.items():
        switches.set([node], Switch(Mode.DEAD, until_us))
    first = min((end for end in ends.values() if end is not None), default=None)
    assert switches.next_expiry_us() == first

    over = {node for node, end in ends.items() if end is not None and end <= now_us}
    assert set(switches.expire(now_us)) == over
    assert switches.all().keys() == ends.keys() - over
    assert len(switches) == len(ends) - len(over)
