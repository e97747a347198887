"""Numbered devices: the lowest free ones, none of them twice."""

from __future__ import annotations

import pytest

from eslurm.core.model.config import Resource
from eslurm.core.resources.devices import Devices, Picker
from eslurm.core.resources.nodes import NodeView, Topology

TOPOLOGY = Topology(
    [NodeView(7, "n7", (8, 0, 5, 4)), NodeView(3, "n3", (8, 0, 0, 2))],
    resources=[Resource("disk"), Resource("gpu", devices=True)],
)
GPU = 3


def test_the_lowest_free_numbers_are_taken() -> None:
    devices = Devices()
    devices.hold(7, ((GPU, (0, 2)),))
    picker = Picker(devices, TOPOLOGY)
    assert picker.take(7, (1, 0, 5, 1)) == ((GPU, (1,)),)
    assert picker.take(7, (1, 0, 0, 1)) == ((GPU, (3,)),)
    assert picker.take(3, (1, 0, 0, 2)) == ((GPU, (0, 1)),)
    assert picker.take(3, (1, 0)) == ()
    assert devices.used(7, GPU) == 0b0101


def test_what_is_given_back_is_free_again() -> None:
    devices = Devices()
    devices.hold(7, ((GPU, (0, 1)),))
    with pytest.raises(ValueError, match="in use already"):
        devices.hold(7, ((GPU, (1, 2)),))
    devices.give_back(7, ((GPU, (0,)),))
    assert devices.used(7, GPU) == 0b10
    devices.give_back(7, ((GPU, (1,)),))
    devices.give_back(9, ((GPU, (1,)),))
    assert devices == Devices()
