"""A loop over 64 workers on eight nodes, whose workers, agents and controller are killed while it computes."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator

import pytest

from tests.integration.conftest import running
from tests.kits.cluster import LiveCluster

NODES, CORES = 8, 8
WORKERS = NODES * CORES
WAVES = 4
INDICES = WAVES * 2 * WORKERS

PROGRAM = """
import json, os, sys, time
from eslurm import loops

WAVE = {wave}

def square(index):
    # A worker says which index of which wave it is at, and stays there until the wave may end.
    name = f"{{index // WAVE}}-{{index}}-{{os.getpid()}}"
    open("at/" + name, "w").close()
    while not os.path.exists(f"wave-{{index // WAVE}}"):
        time.sleep(0.05)
    open("done/" + name, "w").close()
    return index * index

if __name__ == "__main__":
    found = loops.run(square, {indices}, technique="SS", workers={workers}, launch="job", retries=8)
    record = found.record
    print(json.dumps([
        found.results,
        sorted(index for chunk in record.chunks if chunk.outcome == "done" for index in range(chunk.start, chunk.stop)),
        len(record.labels), len(record.left), sorted({{label.partition("/")[0] for label in record.labels.values()}}),
    ]))
"""


@pytest.fixture
def cluster() -> Iterator[LiveCluster]:
    with running(nodes=NODES, cores=CORES, agents=4, satellites=1) as cluster:
        yield cluster


class Loop:
    """The job, as the files of its workers show it."""

    def __init__(self, cluster: LiveCluster) -> None:
        self.cluster = cluster
        work = cluster.work
        for name in ("at", "done"):
            (work / name).mkdir()
        text = PROGRAM.format(wave=INDICES // WAVES, indices=INDICES, workers=WORKERS)
        (work / "loop.py").write_text(text)
        door = f"export ESLURM_SOCKET={cluster.socket}; " if os.getuid() == 0 else ""
        words = ("-o", "said", "-N", str(NODES), "-n", str(WORKERS), "-t", "10")
        self.job_id = cluster.wrap(f"{door}{sys.executable} loop.py", *words)

    def at(self, wave: int) -> dict[int, int]:
        """Indices that workers are at in this wave, with their processes."""
        said, done = (self._names(name, wave) for name in ("at", "done"))
        return {int(name.split("-")[1]): int(name.split("-")[2]) for name in said - done}

    def held(self, wave: int, count: int) -> dict[int, int]:
        """Wait until so many workers are in this wave, each at its index."""
        what = f"{count} workers are in wave {wave}"
        return self.cluster.until(lambda: _if_many(self.at(wave), count), what, 120.0)

    def let_go(self, wave: int) -> None:
        (self.cluster.work / f"wave-{wave}").touch()

    def _names(self, name: str, wave: int) -> set[str]:
        return {one for one in os.listdir(self.cluster.work / name) if one.startswith(f"{wave}-")}


def test_a_loop_loses_and_doubles_nothing(cluster: LiveCluster) -> None:
    loop = Loop(cluster)
    loop.held(0, WORKERS)
    # It goes on while the controller and the agents of half of its nodes are dead.
    cluster.kill("esctld", "agent0", "agent2")
    loop.let_go(0)
    at = loop.held(1, WORKERS)
    for name in ("agent0", "agent2", "esctld"):
        cluster.launch(name)
    # Workers die in mid-chunk, some on a node whose agent is dead as well.
    cluster.kill("agent1")
    killed = [pid for _, pid in sorted(at.items())][:: WORKERS // 9]
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    loop.let_go(1)
    loop.held(2, WORKERS - len(killed))
    # All of them, and the controller once more before the agents are back.
    cluster.kill("agent0", "agent2", "agent3", "esctld")
    cluster.launch("esctld")
    cluster.kill("esctld")
    loop.let_go(2)
    loop.held(3, WORKERS - len(killed))
    for name in ("esctld", "agent0", "agent1", "agent2", "agent3"):
        cluster.launch(name)
    loop.let_go(3)
    state = cluster.end(loop.job_id)
    said = cluster.lines("said")
    assert state == "COMPLETED", said
    results, done, joined, lost, nodes = json.loads(next(line for line in said if line.startswith("[[")))
    assert results == [index * index for index in range(INDICES)]
    assert done == list(range(INDICES)), "each index counts once"
    assert (joined, lost, nodes) == (WORKERS, len(killed), cluster.node_names)


def _if_many(found: dict[int, int], count: int) -> dict[int, int] | None:
    return found if len(found) >= count else None
