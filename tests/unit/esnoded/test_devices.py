"""Counting GPUs with a library that is there, is not there, or is broken; and what a node is held to."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
from msgspec.structs import replace

from eslurm.core.model.config import NodeConfig, Resource
from eslurm.core.model.messages import ConfigLoaded
from eslurm.core.model.protocol import Registration
from esnoded.devices import Gpus, detect_gpus
from tests.kits.core import World


class FakeNvml(ModuleType):
    """As much of NVML as is asked for. `names` are the models; `broken` is raised by the first call."""

    def __init__(self, names: list[Any], broken: Exception | None = None) -> None:
        super().__init__("pynvml")
        self._names = names
        self._broken = broken
        self.is_open = False

    def nvmlInit(self) -> None:
        if self._broken is not None:
            raise self._broken
        self.is_open = True

    def nvmlShutdown(self) -> None:
        self.is_open = False

    def nvmlDeviceGetCount(self) -> int:
        return len(self._names)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, handle: int) -> Any:
        return self._names[handle]


def plug_in(patch: pytest.MonkeyPatch, *names: Any, broken: Exception | None = None) -> FakeNvml:
    fake = FakeNvml(list(names), broken)
    patch.setitem(sys.modules, "pynvml", fake)
    return fake


def test_gpus_are_counted_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = plug_in(monkeypatch, "NVIDIA A100", b"NVIDIA A100", "NVIDIA H100")
    assert detect_gpus() == Gpus(3, "NVIDIA A100, NVIDIA H100")
    assert not fake.is_open
    plug_in(monkeypatch)
    assert detect_gpus() == Gpus(0, "")


def test_without_the_library_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert detect_gpus() is None


def test_a_broken_driver_is_never_fatal(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plug_in(monkeypatch, broken=RuntimeError("Driver Not Loaded"))
    assert detect_gpus() is None
    assert "Driver Not Loaded" in caplog.text


def offer(world: World, *resources: tuple[str, int], model: str = "") -> tuple[bool, str]:
    """Register the first node with these; whether it was drained, and why."""
    world.report(
        Registration(
            "cn0",
            "uid",
            "b1",
            "s1",
            world.state.epoch,
            "host:1",
            (4, 1000),
            resources=resources,
            device_model=model,
        )
    )
    node = world.state.nodes[0]
    return node.drain, node.reason


@pytest.fixture
def world() -> World:
    """One node that is configured with two GPUs and has not registered."""
    world = World(
        1, register=False, resources=(Resource("gpu", devices=True), Resource("licence", wide_total=3))
    )
    nodes = (NodeConfig("cn0", (4, 1000, 2), device_type="a100"),)
    world.send(ConfigLoaded(replace(world.state.config, nodes=nodes)))
    return world


def test_a_node_that_lacks_a_gpu_is_drained_and_says_so(world: World) -> None:
    drained, why = offer(world, ("gpu", 1), model="NVIDIA A100")
    assert drained
    assert why == "offers 1 gpu (NVIDIA A100), configured are 2"


def test_a_node_that_has_them_or_never_counted_them_is_believed(world: World) -> None:
    assert offer(world, ("gpu", 4)) == (False, "")
    assert offer(world) == (False, "")


def test_what_is_not_configured_is_no_lack(world: World) -> None:
    assert offer(world, ("gpu", 2), ("fpga", 0), ("licence", 0)) == (False, "")
