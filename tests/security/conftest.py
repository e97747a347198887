"""The other user on the host: what attacks are made of.

Invariant: a test that needs root to become another user is skipped with a reason where there is none; nothing else here
is ever skipped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

STRANGER = 65534
"""The uid and gid of the attacker: an account without any right."""


@pytest.fixture
def as_root() -> None:
    """Skip the test, with the reason, where it cannot act as another user."""
    if os.geteuid() != 0:
        pytest.skip("NOT VERIFIED: only root can attack as another user: run it as root")


@pytest.fixture
def hostile(state_dir: Path, as_root: None) -> Iterator[Path]:
    """A directory of the stranger, and the working directory of the test."""
    path = state_dir / "hostile"
    path.mkdir(mode=0o755)
    state_dir.chmod(0o755)
    os.chown(path, STRANGER, STRANGER)
    before = Path.cwd()
    os.chdir(path)
    yield path
    os.chdir(before)
