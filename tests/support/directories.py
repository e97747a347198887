"""Directories short enough for Unix sockets."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

SOCKET_PATH_BYTES = 107
"""The longest path a Unix socket may have on Linux."""

LONGEST_BELOW_BYTES = 60
"""The bytes that `state_dir` leaves for the names below it, the separator included."""


@pytest.fixture
def state_dir() -> Iterator[Path]:
    """An empty directory, removed after; its path is short, where `tmp_path` can exceed a socket's limit."""
    base = tempfile.gettempdir()
    if len(base.encode()) > SOCKET_PATH_BYTES - LONGEST_BELOW_BYTES - len("/es-12345678"):
        base = "/tmp"
    path = Path(tempfile.mkdtemp(prefix="es-", dir=base))
    yield path
    shutil.rmtree(path)
