"""The application of one job of the real ESP: one process that plays a loop scheduler and all its workers.

A task is timed work: a worker that computes is an entry in a table until its chunk's cost has passed. The scheduler, the
costs and the rule for reports are those of the simulator, told this process's clock. Reports are real lines on the
sockets of the agents that serve the job's nodes, from a thread of their own: a report that waits stops no task.
Invariant: a core that was reported as idle computes nothing any more.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from eslurm.compat.hostlist import expand
from eslurm.lab.applications.application import Application, Program
from eslurm.lab.applications.costs import Costs
from eslurm.lab.applications.unreported import Unreported

ANSWER_S = 60.0
SECOND_US = 1_000_000


class Kind(msgspec.Struct, frozen=True):
    """The loop of one kind of jobs; its sums are in the file `costs`."""

    costs: str
    mean_s: float
    sigma_s: float


class Plan(msgspec.Struct, frozen=True):
    """Input of all jobs of a run. `sockets` has the job socket of each node."""

    technique: str
    cooperates: bool
    patience_us: int
    kinds: dict[str, Kind]
    sockets: dict[str, str]
    records: str


class Record(msgspec.Struct, frozen=True):
    """The record of one job. Times in microseconds since 1970 UTC; `reported_us` is the time of the first report."""

    begin_us: int
    end_us: int
    chunks: int
    reports: int
    refused: int
    reported_us: int
    late_us: int
    """Time from the end of its last task until it noticed that it was done: the machine was busy."""


class Reporter:
    """Tells agents of idle cores, in a thread."""

    def __init__(self, job_id: int, sockets: dict[str, str]) -> None:
        self.reports = self.refused = self.first_us = 0
        self._job_id = job_id
        self._sockets = sockets
        self._words: queue.SimpleQueue[tuple[list[str], int]] = queue.SimpleQueue()
        # Nothing is owed to agents when the job ends.
        threading.Thread(target=self._run, daemon=True).start()

    def say(self, nodes: list[str], remaining_us: int) -> None:
        """The one core on each of these nodes is idle."""
        self._words.put((nodes, remaining_us // SECOND_US))

    def _run(self) -> None:
        while True:
            nodes, remaining_s = self._words.get()
            self.first_us = self.first_us or time.time_ns() // 1000
            for path in sorted({self._sockets[node] for node in nodes}):
                lines = [
                    f"report job={self._job_id} node={node} worker=0 idle=1 remaining={remaining_s}\n"
                    for node in nodes
                    if self._sockets[node] == path
                ]
                with contextlib.suppress(OSError):
                    self._tell(path, lines)

    def _tell(self, path: str, lines: list[str]) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(ANSWER_S)
            connection.connect(path)
            with connection.makefile("rwb") as agent:
                agent.write("".join(lines).encode("ascii"))
                agent.flush()
                for _ in lines:
                    self._read(agent)

    def _read(self, agent: Iterable[bytes]) -> None:
        for line in agent:
            if line == b"ok\n":
                self.reports += 1
                return
            if line.startswith(b"error "):
                self.refused += 1
                return
        raise ConnectionError("the agent has closed")


def main(plan_file: str, name: str) -> int:
    """Run the loop of kind `name` on the nodes of this job."""
    plan = msgspec.json.decode(Path(plan_file).read_bytes(), type=Plan)
    kind = plan.kinds[name]
    costs = Costs.from_bytes(Path(kind.costs).read_bytes(), kind.mean_s, kind.sigma_s)
    job_id = int(os.environ["SLURM_JOB_ID"])
    nodes = expand(os.environ["SLURM_JOB_NODELIST"])
    reporter = Reporter(job_id, plan.sockets) if plan.cooperates else None
    began_us, began_s = time.time_ns() // 1000, time.monotonic()
    # A chunk's end is computed from the last one's, so lateness does not add up.
    application = Application(Program(costs, plan.technique), [(at, 0) for at in range(len(nodes))], 0)
    unreported = Unreported(0, plan.patience_us)
    late_us = 0
    while not application.is_done:
        now_us = round((time.monotonic() - began_s) * SECOND_US)
        ended = application.advance(now_us)
        if application.is_done:
            late_us = now_us - ended[-1].end_us
            break
        idle = application.take_idle()
        if idle and reporter is not None and application.is_uneven:
            unreported.add(idle, now_us)
        due = unreported.take(now_us)
        if due and reporter is not None:
            reporter.say([nodes[at] for at, _ in due], application.remaining_us)
        instants = [at_us for at_us in (application.next_us, unreported.next_us) if at_us is not None]
        time.sleep(max(min(instants) / SECOND_US - (time.monotonic() - began_s), 0.0))
    record = Record(
        began_us,
        time.time_ns() // 1000,
        application.chunks,
        reporter.reports if reporter is not None else 0,
        reporter.refused if reporter is not None else 0,
        reporter.first_us if reporter is not None else 0,
        late_us,
    )
    (Path(plan.records) / f"{job_id}.json").write_bytes(msgspec.json.encode(record))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
