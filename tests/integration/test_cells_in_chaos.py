"""Two cells and their etcd while controllers and etcd are killed and stand still: each job that may move runs exactly once.

Each job makes a directory of its number before it works, and writes a line at its end, so the jobs themselves are the judge.
`THOROUGH=1` goes on for half an hour.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from eslurm.federation.etcd.calls import EtcdSettings
from eslurm.federation.etcd.store import EtcdStore
from tests.integration.test_cells import ask, cell, pin
from tests.integration.test_federation import states, until
from tests.kits.cluster import LiveCluster, daemon_of
from tests.support import etcd

SECONDS = 1800.0 if os.environ.get("THOROUGH") else 20.0
pytestmark = [pytest.mark.slow, pytest.mark.timeout(SECONDS + 400)]

PAUSE_S = 2.0
"""Time that a controller or etcd stands still: its lease ends."""
WORK = "mkdir {runs}/$SLURM_JOB_ID && sleep 0.$((SLURM_JOB_ID % 8 + 1)) && echo $SLURM_JOB_ID >> {ends}"


class Cells:
    """Alpha and beta, each with a standby, one etcd, and the faults that are drawn."""

    def __init__(self, alpha: LiveCluster, beta: LiveCluster, store: etcd.Etcd) -> None:
        self.both = (alpha, beta)
        self.store = store
        self.faults: Counter[str] = Counter()
        self._draws = random.Random(20)
        self._to_mend: list[tuple[float, Callable[[], None]]] = []

    @property
    def is_whole(self) -> bool:
        """Check that nothing is away now."""
        return not self._to_mend

    def strike(self) -> None:
        """Draw one fault; what it takes away comes back after a while."""
        name, fault = self._draws.choice(
            [("kill a leader", self._kill), ("stop a leader", self._stop), ("stop etcd", self._stop_store)]
        )
        fault()
        self.faults[name] += 1

    def mend(self, *, everything: bool = False) -> None:
        """Bring back what was away for long enough."""
        due = [one for one in self._to_mend if everything or one[0] <= time.monotonic()]
        self._to_mend = [one for one in self._to_mend if one not in due]
        for _, bring_back in due:
            bring_back()

    def _later(self, bring_back: Callable[[], None]) -> None:
        self._to_mend.append((time.monotonic() + PAUSE_S, bring_back))

    def _leading(self) -> tuple[LiveCluster, str]:
        cluster = self._draws.choice(self.both)
        return cluster, daemon_of(cluster.leader())

    def _kill(self) -> None:
        cluster, daemon = self._leading()
        cluster.kill(daemon)
        self._later(lambda: cluster.launch(daemon))

    def _stop(self) -> None:
        cluster, daemon = self._leading()
        cluster.daemons[daemon].send(signal.SIGSTOP)
        self._later(lambda: cluster.daemons[daemon].send(signal.SIGCONT))

    def _stop_store(self) -> None:
        self.store.members[0].send_signal(signal.SIGSTOP)
        self._later(lambda: self.store.members[0].send_signal(signal.SIGCONT))


@pytest.fixture
def cells(state_dir: Path) -> Iterator[Cells]:
    with ExitStack() as stack:
        store = stack.enter_context(etcd.own())
        alpha, beta = (cell(state_dir / name, name, store, controllers=2) for name in ("alpha", "beta"))
        pin(alpha, beta=beta)
        pin(beta, alpha=alpha)
        for one in (alpha, beta):
            stack.callback(one.stop)
            one.start()
        until(lambda: all(states(one) == {"alpha": "alive", "beta": "alive"} for one in (alpha, beta)))
        chaos = Cells(alpha, beta, store)
        # Whatever stands still is woken before it is told to end.
        stack.callback(chaos.mend, everything=True)
        yield chaos


def test_each_job_runs_once_whatever_dies(cells: Cells) -> None:
    alpha, _beta = cells.both
    runs, ends = alpha.work / "runs", alpha.work / "ends"
    runs.mkdir()
    runs.chmod(0o777)
    work = WORK.format(runs=runs, ends=ends)
    accepted: dict[int, LiveCluster] = {}
    until_s = time.monotonic() + SECONDS
    while time.monotonic() < until_s:
        for cluster in cells.both:
            # Four of them fill the cell: the others look for a place.
            for _ in range(3):
                words = (
                    "--parsable",
                    "--cell",
                    "any",
                    "-c4",
                    "-t",
                    "2",
                    "-D",
                    str(alpha.work),
                    "--wrap",
                    work,
                )
                sent = ask(cluster, "essubmit", *words)
                if sent.code == 0:
                    accepted[int(sent.out)] = cluster
        cells.mend()
        if cells.is_whole:
            cells.strike()
    cells.mend(everything=True)
    for cluster in cells.both:
        cluster.start()
        cluster.wait_standbys()
    outcomes = {job: cluster.end(job) for job, cluster in accepted.items()}
    assert set(outcomes.values()) == {"COMPLETED"}, outcomes
    ended = Counter(map(int, ends.read_text().split()))
    assert not [job for job in accepted if ended[job] != 1], (ended, cells.faults)
    assert max(ended.values()) == 1
    assert cells.faults.total() >= 3, cells.faults
    until(lambda: asyncio.run(owner_records(cells.store)) == [])


async def owner_records(store: etcd.Etcd) -> list[str]:
    """The keys of jobs that the store still has, besides each cell's own one for withdrawals."""
    found = EtcdStore(EtcdSettings(store.endpoints))
    await found.open()
    try:
        listed = await found.list("/eslurm/lab/jobs/")
        return [entry.key for entry in listed.entries if "/+" not in entry.key]
    finally:
        await found.close()
