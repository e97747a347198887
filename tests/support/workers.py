"""Tests on several processes (pytest-xdist): an interruption reaches each of them, and each ends what it has started.

Invariant: the process that distributes the tests ends after its workers, whose fixtures end the daemons that they have
started. By default pytest-xdist cuts off a worker that is still at it after ten seconds.
"""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest

WORKERS_END_S = 40.0
"""How long interrupted workers may take to end what they have started; CI kills what is still there a little later."""


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


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Workers())
