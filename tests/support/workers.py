"""Tests on several processes (pytest-xdist): what each of them runs, and that an interruption ends what each has started.

A file of tests is one process's, so that its cluster is started once; tests that share nothing are handed out one by one:
simulated worlds, clusters that each test starts for itself. These come first, because they take longest; what mostly waits
(daemons) alternates with what only computes, and small files come last.

Invariant: the process that distributes the tests ends after its workers, whose fixtures end the daemons that they have
started. By default pytest-xdist cuts off a worker that is still at it after ten seconds.
"""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

TESTS = Path(__file__).parents[1]
WAITING = ("contract", "integration", "security")
COMPUTING = ("property", "sim")
ALONE = tuple(
    f"tests/integration/test_{name}.py"
    for name in ("up_standby", "up", "phases", "each", "demo", "rolling", "crash_disk")
)
"""Files of which each test starts a cluster of its own, and ends it; the longest first."""
LONG = tuple(
    f"tests/integration/test_{name}.py"
    for name in ("trees", "store_outage", "standby", "preemption", "replanning", "crash", "gateways", "stepd")
)
"""Files that take long: all would wait for one that is begun last."""
WORKERS_END_S = 40.0
"""The longest time in which interrupted workers end what they have started; CI kills what is left a little later."""


class Workers:
    """Listens in the process that distributes the tests."""

    def __init__(self) -> None:
        self._nodes: list[Any] = []
        self._is_terminated = False

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        self._nodes.append(node)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        signal.signal(signal.SIGTERM, self._on_signal)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Wait for the workers: at once, unless they were interrupted."""
        if exitstatus == pytest.ExitCode.INTERNAL_ERROR:
            self._terminate()
        deadline_s = time.monotonic() + WORKERS_END_S
        for node in self._nodes:
            # How a worker has ended is in the reports already.
            with suppress(Exception):
                node.channel.waitclose(max(0.0, deadline_s - time.monotonic()))

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._is_terminated:
            return
        # A terminal interrupts all processes of the run; this signal was sent to this one alone.
        self._terminate()
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler):
            handler(signal.SIGINT, frame)

    def _terminate(self) -> None:
        self._is_terminated = True
        for node in self._nodes:
            node.gateway._io.popen.send_signal(signal.SIGTERM)


class Scheduling(LoadFileScheduling):  # type: ignore[misc]
    """Files in the order of `pytest_collection_modifyitems`, and single tests where they share nothing."""

    def _split_scope(self, nodeid: str) -> str:
        return (
            nodeid
            if nodeid.startswith((*(f"tests/{room}/" for room in COMPUTING), *ALONE))
            else super()._split_scope(nodeid)
        )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling | None:
    return Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not hasattr(config, "workerinput"):
        return
    rooms: dict[str, list[pytest.Item]] = {}
    for item in items:
        room = item.path.relative_to(TESTS).parts[0] if item.path.is_relative_to(TESTS) else ""
        kind = "waiting" if room in WAITING else "computing" if room in COMPUTING else "small"
        rooms.setdefault(kind, []).append(item)
    small = rooms.pop("small", [])
    # The sort is stable: within its kind each test stays where it is.
    placed = [(at / len(room), item) for room in rooms.values() for at, item in enumerate(room)]
    others = [item for _, item in sorted(placed, key=lambda one: one[0])]
    first = {name: at for at, name in enumerate((*ALONE, *LONG))}
    items[:] = sorted(others, key=lambda item: first.get(item.nodeid.partition("::")[0], len(first))) + small


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Workers())
