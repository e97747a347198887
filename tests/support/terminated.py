"""SIGTERM ends the tests as Ctrl-C does: their fixtures end what they have started.

By default it ends Python at once, and the daemons of tests would go on. `timeout` and CI end by it what takes too long.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

import pytest


class Terminated:
    """Listens in the process that runs the tests."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._session: pytest.Session | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self._session = item.session
        # Each time: an event loop that has listened to it in the test before leaves the default behind.
        if not self._session.shouldstop:
            signal.signal(signal.SIGTERM, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._pid:
            # A copy of this process that a test has made: nothing of what the original has started is its own.
            os._exit(128 + number)
        # Once: who is told by several must not break off its own end.
        if self._session is None or self._session.shouldstop:
            return
        # Also when what this interrupts fails for another reason in the end.
        self._session.shouldstop = "told to end (SIGTERM)"
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler):
            handler(signal.SIGINT, frame)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Terminated())
