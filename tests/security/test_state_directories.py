"""Another user owns, may write to, or may replace what a daemon of root is started with: it does not start, and says why.

Nothing is written in such a directory.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from escli.local.plan import KINDS
from eslurm.security.site_keys import new_site, write_ring
from tests.security.conftest import STRANGER

BIN = Path(sys.executable).parent
PATIENCE_S = 60.0
CONFIG = """
[cluster]
name = "live"
[[nodes]]
names = "cn1"
cores = 1
memory_mib = 100
"""
pytestmark = pytest.mark.usefixtures("as_root")


class Start:
    """The command line of a daemon of each kind, with files of root's that are in order."""

    def __init__(self, directory: Path) -> None:
        self.state = directory / "state"
        self.config = directory / "eslurm.toml"
        self.config.write_text(CONFIG)
        self.ring = directory / "site.pub"
        write_ring(self.ring, new_site("live", 1).ring)

    def words(self, kind: str) -> list[str]:
        common = ["--cluster", "live", "--site-keys", str(self.ring)]
        own = {
            "esctld": ["--config", str(self.config)],
            "essatd": [*common, "--listen", "127.0.0.1:0", "--controllers", "127.0.0.1:1", "--allow-chaos"],
            "esnoded": [*common, "--nodes", "cn1", "--cores", "1", "--memory-mib", "100"],
            "esestd": ["--config", str(self.config), "--controller-socket", "/nonexistent"],
        }
        return [str(BIN / kind), *own[kind], "--state-dir", str(self.state)]

    def refusal(self, kind: str) -> str:
        done = subprocess.run(
            self.words(kind), capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == 2, done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr


@pytest.fixture
def start(state_dir: Path) -> Start:
    state_dir.chmod(0o755)
    return Start(state_dir)


def owned(start: Start) -> str:
    start.state.mkdir(mode=0o755)
    os.chown(start.state, STRANGER, STRANGER)
    return f"{start.state} belongs to user id {STRANGER}"


def writable(start: Start) -> str:
    start.state.mkdir()
    start.state.chmod(0o777)
    return f"{start.state}: others may write to it: chmod go-w"


def group_writable(start: Start) -> str:
    start.state.mkdir()
    os.chown(start.state, 0, STRANGER)
    start.state.chmod(0o775)
    return f"{start.state}: others may write to it: chmod go-w"


def below_one_that_is_owned(start: Start) -> str:
    above = start.state
    above.mkdir(mode=0o755)
    os.chown(above, STRANGER, STRANGER)
    start.state = above / "state"
    start.state.mkdir(mode=0o700)
    return f"{above} belongs to user id {STRANGER}"


def missing_below_one_that_is_open(start: Start) -> str:
    above = start.state
    above.mkdir()
    above.chmod(0o777)
    start.state = above / "state"
    return f"{above}: others may replace what is in it"


def a_link_of_the_stranger(start: Start) -> str:
    """In a sticky directory, to one that is root's own."""
    above = start.state
    above.mkdir()
    above.chmod(0o1777)
    real = above.parent / "real"
    real.mkdir(mode=0o700)
    start.state = above / "state"
    start.state.symlink_to(real)
    os.chown(start.state, STRANGER, STRANGER, follow_symlinks=False)
    return f"{start.state} belongs to user id {STRANGER}"


WAYS: list[Callable[[Start], str]] = [
    *(owned, writable, group_writable, below_one_that_is_owned),
    *(missing_below_one_that_is_open, a_link_of_the_stranger),
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("kind", KINDS)
def test_a_state_directory_that_a_stranger_could_change_is_refused(
    kind: str, way: Callable[[Start], str], start: Start
) -> None:
    told = way(start)
    assert f"--state-dir: {told}" in start.refusal(kind)
    assert not start.state.exists() or not list(start.state.iterdir())


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_supervisor_refuses_it_by_itself(way: Callable[[Start], str], start: Start) -> None:
    told = way(start)
    words = [sys.executable, "-P", "-m", "esnoded.stepd", str(start.state)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1
    assert told in done.stderr


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_eslurm_up_refuses_it(way: Callable[[Start], str], start: Start) -> None:
    told = way(start)
    words = [BIN / "eslurm", "up", "--detach", "--state-dir", start.state]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 2
    assert told in done.stderr
    assert not start.state.exists() or not list(start.state.iterdir())


def test_keys_of_the_stranger_are_refused(start: Start) -> None:
    os.chown(start.ring, STRANGER, STRANGER)
    assert f"{start.ring} belongs to user id {STRANGER}" in start.refusal("essatd")
    os.chown(start.ring, 0, STRANGER)
    start.ring.chmod(0o664)
    assert f"{start.ring} can be changed by others: chmod go-w" in start.refusal("essatd")
    os.unlink(start.ring)
    os.mkfifo(start.ring, 0o600)
    assert f"{start.ring} is not a regular file" in start.refusal("essatd")


@pytest.mark.parametrize("kind", ["esctld", "esestd"])
def test_a_configuration_of_the_stranger_is_refused(kind: str, start: Start) -> None:
    os.chown(start.config, STRANGER, STRANGER)
    assert f"{start.config} belongs to user id {STRANGER}" in start.refusal(kind)
    os.chown(start.config, 0, STRANGER)
    start.config.chmod(0o664)
    assert f"{start.config} can be changed by others: chmod go-w" in start.refusal(kind)
    start.config.chmod(0o644)
    os.chown(start.config.parent, STRANGER, STRANGER)
    assert f"{start.config.parent} belongs to user id {STRANGER}" in start.refusal(kind)
