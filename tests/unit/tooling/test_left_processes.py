"""A test's cluster fails when something of it is left, and ends it."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.kits.cluster import LiveCluster


def test_a_process_that_names_the_cluster_s_directory_is_ended_and_told_of(state_dir: Path) -> None:
    """Such is a supervisor whose files lie where nothing looks for them."""
    cluster = LiveCluster(state_dir, nodes=2, agents=1, satellites=1)
    words = ["sh", "-c", "read line", "supervisor", str(cluster.agent_dir("agent0"))]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as left:
        with pytest.raises(AssertionError, match=f"were left.*{left.pid}.*supervisor"):
            cluster.stop()
        assert left.wait() == -signal.SIGKILL
    cluster.stop()
