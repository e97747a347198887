"""Links that carry one way only, or slowly, for longer than every limit: no two attempts of a job are alive at one moment.

Method: each attempt writes when it starts, that it lives, and when it ends, into one file; its node is struck with the
request that `eslurm chaos` makes. The file tells whether an attempt still lived when the next one began.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import made
from tests.kits.cluster import LiveCluster, is_alive

TIMES = {
    "heartbeat_s": 0.5,
    "orphan_timeout_s": 3.0,
    "kill_grace_s": 0.5,
    "node_lost_after_s": 6.0,
}
COMMAND = (
    "run=${SLURM_RESTART_COUNT:-0}; "
    'for pid in $(cat pids 2>&-); do kill -0 $pid 2>&- && echo "$run overlaps" >> ran; done; '
    'echo $$ >> pids; echo "$run start $(date +%s%N) $SLURMD_NODENAME" >> ran; '
    "trap 'echo \"$run end $(date +%s%N) $SLURMD_NODENAME\" >> ran; exit 1' TERM; "
    "n=0; while test $run -eq 0 -o $n -lt 20; do sleep 0.05; n=$((n+1)); done; "
    'echo "$run end $(date +%s%N) $SLURMD_NODENAME" >> ran'
)


class OneWay(LiveCluster):
    """Each node has an agent of its own, which lets itself be struck."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, nodes=3, agents=3, satellites=1, policy=TIMES)
        for name, daemon in self.daemons.items():
            if name.startswith("agent"):
                daemon.words.append("--allow-chaos")

    def chaos(self, agent: str, action: str, delay_s: float = 0.0) -> None:
        """Send an agent the request that `eslurm chaos` sends."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.agent_dir(agent) / "chaos.sock"))
            request = {"action": action, "delay_us": int(delay_s * 1e6)}
            connection.sendall(json.dumps(request).encode() + b"\n")
            reply = json.loads(connection.makefile().readline())
        assert reply["error"] == "", reply


@pytest.fixture(scope="module")
def one_way() -> Iterator[OneWay]:
    with made(OneWay) as cluster:
        yield cluster


@pytest.fixture
def whole(one_way: OneWay) -> Iterator[OneWay]:
    """The module's cluster, whole at the start of each test."""
    one_way.empty_work()
    yield one_way
    for agent in range(3):
        one_way.chaos(f"agent{agent}", "heal")
    one_way.start()
    one_way.clear()
    one_way.hang_up()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("action", "delay_s"),
    [("cut-out", 0.0), ("cut-in", 0.0), ("slow", 1.5)],
    ids=["it hears and is not heard", "it speaks and is told nothing", "slower than a heartbeat"],
)
def test_attempts_of_a_job_never_overlap(whole: OneWay, action: str, delay_s: float) -> None:
    job_id = whole.wrap(COMMAND, "-x", "cn0003", "--requeue")
    pid = whole.wait_lines("pids")[0]
    whole.reaches(job_id, "RUNNING")
    struck = whole.wait_lines("ran")[0].split()[3]
    agent = f"agent{int(struck[2:]) - 1}"
    whole.chaos(agent, action, delay_s)
    whole.wait_nodes(lambda nodes: nodes[struck].state == "LOST")
    assert not is_alive(pid), "the attempt is over when its node is given up"
    assert whole.end(job_id) == "COMPLETED"
    whole.chaos(agent, "heal")
    whole.wait_nodes(lambda nodes: nodes[struck].state == "UP")
    # A machine that stands still for seconds may make an orphan before its time: then there are more attempts than two,
    # or one that was over before its command began.
    ran = [line.split() for line in whole.lines("ran")]
    attempts = [int(words[0]) for words in ran[::2]]
    assert attempts[0] == 0 and len(attempts) >= 2
    assert attempts == sorted(set(attempts))
    assert [words[:2] for words in ran] == [
        [str(attempt), what] for attempt in attempts for what in ("start", "end")
    ]
    assert [int(words[2]) for words in ran] == sorted(int(words[2]) for words in ran)
