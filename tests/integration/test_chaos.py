"""A third of two hundred nodes fails, half dead and half silent: real processes, real links, and what the cluster does.

What is seen of a node's actions is its agent's spool: one record for each job that was prepared there.
"""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from escli.local.chaos_client import ask_in
from eslurm.compat.hostlist import fold
from eslurm.core.agent.records import NumberGiven, Prepared, Record
from eslurm.faults.chaos_socket import ChaosReply, ChaosRequest
from esnoded.spool import MAGIC
from tests.integration.conftest import made
from tests.kits.cluster import LiveCluster
from tests.kits.daemons import agent_home

NODES = 200
AGENTS = 4
HEARTBEAT_S = 1.0
_HEADER = struct.Struct(">II")


class ChaoticCluster(LiveCluster):
    """A cluster whose agents and satellites can be told to fail."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, nodes=NODES, agents=AGENTS, policy={"heartbeat_s": HEARTBEAT_S})
        self.share = NODES // AGENTS
        for daemon in self.daemons.values():
            if daemon.words[0] == "essatd":
                daemon.words += ["--state-dir", str(directory / daemon.name)]
            if daemon.words[0] != "esctld":
                daemon.words.append("--allow-chaos")

    def ask(self, name: str, request: ChaosRequest) -> ChaosReply:
        return ask_in(self.agent_dir(name), name, request)

    def strike(self, action: str, names: Sequence[str], for_us: int | None = None) -> None:
        """Let nodes fail, or heal, whichever process they are in."""
        by_agent: dict[str, list[str]] = {}
        for name in names:
            by_agent.setdefault(self.agent_of(name), []).append(name)
        for agent, nodes in by_agent.items():
            assert self.ask(agent, ChaosRequest(action, fold(nodes), for_us)).changed == len(nodes)

    def agent_of(self, node: str) -> str:
        return f"agent{self.node_names.index(node) // self.share}"

    def heal(self) -> None:
        """Every node, and wait until all of them are back."""
        for at in range(AGENTS):
            self.ask(f"agent{at}", ChaosRequest("heal"))
        self.wait_nodes(lambda nodes: all(node.state == "UP" for node in nodes.values()))

    def in_state(self, state: str) -> set[str]:
        return {name for name, node in self.nodes().items() if node.state == state}

    def prepared(self, job_id: int, attempt: int) -> Counter[str]:
        """Count the times that each node was made ready for an attempt."""
        found: Counter[str] = Counter()
        for at in range(AGENTS):
            records = read_spool(agent_home(self.agent_dir(f"agent{at}")) / "agent.spool")
            names = {record.number: record.name for record in records if isinstance(record, NumberGiven)}
            for record in records:
                if isinstance(record, Prepared) and (record.launch.job_id, record.launch.attempt) == (
                    job_id,
                    attempt,
                ):
                    found[names[record.node]] += 1
        return found


def read_spool(path: Path) -> list[Record]:
    """The whole records of a spool that is in use."""
    decode = msgspec.msgpack.Decoder(Record).decode
    data = path.read_bytes()
    at = len(MAGIC)
    records = []
    while at + _HEADER.size <= len(data):
        length, _ = _HEADER.unpack_from(data, at)
        at += _HEADER.size
        if at + length > len(data):
            break
        records.append(decode(data[at : at + length]))
        at += length
    return records


@pytest.fixture(scope="module")
def standing() -> Iterator[ChaoticCluster]:
    with made(ChaoticCluster) as cluster:
        yield cluster


@pytest.fixture
def chaotic(standing: ChaoticCluster) -> Iterator[ChaoticCluster]:
    """The module's cluster, whole and idle before and after each test."""
    standing.empty_work()
    yield standing
    standing.heal()
    standing.clear()
    standing.hang_up()


@pytest.mark.slow
def test_a_third_dead_and_every_live_node_is_reached_once(chaotic: ChaoticCluster) -> None:
    struck = random.Random(7).sample(chaotic.node_names, NODES * 3 // 10)
    dead, silent = struck[::2], struck[1::2]
    live = set(chaotic.node_names) - set(struck)
    chaotic.strike("dead", dead)
    chaotic.strike("silent", silent)
    # The controller has not noticed: the job's nodes are all of them, the struck ones included.
    job_id = chaotic.wrap('echo "$SLURM_JOB_NUM_NODES" >> ran', "-N", str(NODES))
    chaotic.until(lambda: chaotic.prepared(job_id, 1).keys() >= live or None, "the live nodes are prepared")

    chaotic.until(
        lambda: chaotic.in_state("UNREACHABLE") == set(struck) or None, "they alone are unreachable"
    )
    assert chaotic.prepared(job_id, 1) == dict.fromkeys(live, 1)
    assert chaotic.lines("ran") == []

    chaotic.heal()
    assert chaotic.end(job_id) == "COMPLETED"
    assert chaotic.lines("ran") == [str(NODES)]
    assert set(chaotic.prepared(job_id, 1).values()) == {1}


@pytest.mark.slow
def test_a_failure_with_an_end_needs_no_healing(chaotic: ChaoticCluster) -> None:
    struck = chaotic.node_names[10:20]
    # Much longer than it takes to miss them, so that it can be seen.
    chaotic.strike("dead", struck, int(8 * HEARTBEAT_S * 1e6))
    chaotic.until(lambda: chaotic.in_state("UNREACHABLE") == set(struck) or None, "they are unreachable")
    chaotic.until(lambda: chaotic.in_state("UP") == set(chaotic.node_names) or None, "they are back")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["dead", "silent", "partitioned"])
def test_a_job_on_a_struck_node_runs_on_and_is_told_after_the_healing(
    chaotic: ChaoticCluster, mode: str
) -> None:
    node = chaotic.node_names[60]
    job_id = chaotic.wrap(
        "echo > up; until test -e gate; do sleep 0.02; done; echo done > out", "-w", node, "--requeue"
    )
    chaotic.wait_lines("up")
    # The script may be ahead of the report of its start, which the strike would hold back.
    chaotic.reaches(job_id, "RUNNING")
    chaotic.strike(mode, [node])
    chaotic.until(lambda: chaotic.in_state("UNREACHABLE") == {node} or None, "the node is unreachable")
    (chaotic.work / "gate").touch()
    assert chaotic.wait_lines("out") == ["done"]
    # Its neighbour's report takes the same way, later: had the struck node's gone up, it would be known by now.
    neighbour = chaotic.node_names[61]
    assert chaotic.end(chaotic.wrap("true", "-w", neighbour)) == "COMPLETED"
    assert chaotic.job(job_id).state == "RUNNING"

    chaotic.strike("heal", [node])
    run = chaotic.only_run(job_id)
    assert (run.state, run.exit_code) == ("COMPLETED", 0)
    assert chaotic.lines("up") == [""]


@pytest.mark.slow
def test_a_satellite_that_is_cut_off_costs_no_node_and_no_job(chaotic: ChaoticCluster) -> None:
    chaotic.ask("sat0", ChaosRequest("partitioned"))
    try:
        job_id = chaotic.wrap('echo "$SLURM_JOB_NUM_NODES" >> ran', "-N", str(NODES))
        chaotic.wait_lines("ran")
    finally:
        chaotic.ask("sat0", ChaosRequest("heal"))
    assert chaotic.end(job_id) == "COMPLETED"
    assert chaotic.lines("ran") == [str(NODES)]
