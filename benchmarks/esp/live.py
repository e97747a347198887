"""A cluster of `eslurm up`, the jobs of a workload on it at their times, and the records of accounting and of the jobs."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from benchmarks.esp.program import Kind, Plan, Record
from benchmarks.processes import module
from eslurm.api.methods import ACCOUNTING, PING, SUBMIT
from eslurm.api.unix_client import Client
from eslurm.compat.hostlist import expand
from eslurm.lab.applications.two_level import Item
from eslurm.v1 import controller_pb2 as pb

CALL_S = 60.0
POLL_S = 0.2
UP_S = 120
ROOT = Path(__file__).resolve().parents[2]
OFF = "off"
BORROW = "requeue"
"""Terms of borrowers, as in the simulator: no owner asks a core back here."""
NODES_PER_AGENT = 32
"""An agent takes 20 lines a second of one user, as that of one host would; here it serves many hosts."""


class Ran(msgspec.Struct, frozen=True):
    """One job that has ended: accounting's times in microseconds since 1970 UTC, and its application's own record."""

    kind: str
    hosts: int
    submitted_us: int
    started_us: int
    ended_us: int
    nodes: tuple[str, ...]
    record: Record


def borrowers(ran: Sequence[Ran]) -> list[Ran]:
    """The jobs that started on a node whose one core another running job owned. Accounting has whole seconds only."""
    found = []
    for one in ran:
        owners = (
            other
            for other in ran
            if other.started_us < one.started_us < other.ended_us and set(other.nodes) & set(one.nodes)
        )
        if any(owners):
            found.append(one)
    return found


class Site:
    """A cluster that is up."""

    def __init__(self, directory: Path, nodes: int) -> None:
        self.directory = directory
        self.nodes = nodes
        self.socket = directory / "esctld.sock"
        self._runs = 0
        self._sockets = self._find_sockets()

    def run(self, items: Sequence[Item], cooperate: str, patience_us: int) -> list[Ran]:
        """Submit each job at its time and wait for the last one's end; in the order of submission.

        Raises RuntimeError when a job ended otherwise than it should.
        """
        self._runs += 1
        work = self.directory.with_name(f"{self.directory.name}-run{self._runs}")
        work.mkdir(mode=0o711)
        kinds = {item.kind: item.program for item in items}
        for name, program in kinds.items():
            (work / f"{name}.costs").write_bytes(program.costs.to_bytes())
        plan = Plan(
            items[0].program.technique,
            cooperate != OFF,
            patience_us,
            {
                name: Kind(str(work / f"{name}.costs"), program.costs.mean_s, program.costs.sigma_s)
                for name, program in kinds.items()
            },
            self._sockets,
            str(work),
        )
        (work / "plan.json").write_bytes(msgspec.json.encode(plan))
        with Client(str(self.socket)) as client:
            ids = self._submit(client, items, cooperate, work)
            self._wait(client)
            return self._collect(client, ids, items, work)

    def _submit(self, client: Client, items: Sequence[Item], cooperate: str, work: Path) -> list[int]:
        began_s = time.monotonic()
        ids: list[int] = []
        at = 0
        while at < len(items):
            due_us = items[at].job.submit_us
            time.sleep(max(due_us / 1e6 - (time.monotonic() - began_s), 0.0))
            now_us = (time.monotonic() - began_s) * 1e6
            some = []
            while at < len(items) and items[at].job.submit_us <= now_us:
                some.append(_request(items[at], cooperate, work))
                at += 1
            ids += client.call(SUBMIT, pb.SubmitRequest(jobs=some), CALL_S).job_ids
        return ids

    def _wait(self, client: Client) -> None:
        while True:
            reply = client.call(PING, pb.PingRequest(), CALL_S)
            if not reply.jobs_pending and not reply.jobs_running:
                return
            time.sleep(POLL_S)

    def _collect(self, client: Client, ids: Sequence[int], items: Sequence[Item], work: Path) -> list[Ran]:
        refs = [pb.JobRef(job_id=job_id) for job_id in ids]
        reply = client.call(ACCOUNTING, pb.AccountingRequest(jobs=refs, limit=10_000), CALL_S)
        runs = {run.job_id: run for run in reply.attempts}
        found = []
        for job_id, item in zip(ids, items, strict=True):
            run = runs[job_id]
            if run.state != "COMPLETED" or run.attempt != 1:
                said = (work / f"{job_id}.out").read_text(errors="replace") if run.started_us else ""
                raise RuntimeError(
                    f"job {job_id} ({item.kind}): attempt {run.attempt} is {run.state}: {run.exit_text}\n{said[-2000:]}"
                )
            record = msgspec.json.decode((work / f"{job_id}.json").read_bytes(), type=Record)
            found.append(
                Ran(
                    item.kind,
                    run.nodes,
                    run.submitted_us,
                    run.started_us,
                    run.ended_us,
                    expand(run.node_names),
                    record,
                )
            )
        return found

    def _find_sockets(self) -> dict[str, str]:
        """The job socket of each node's agent, from the cluster's record."""
        record = msgspec.json.decode((self.directory / "cluster.json").read_bytes())
        found = {}
        for agent in record["agents"]:
            (path,) = (self.directory / agent["name"]).glob("**/job.sock")
            found |= dict.fromkeys(expand(agent["nodes"]), str(path))
        return found


@contextlib.contextmanager
def running(directory: Path, nodes: int) -> Iterator[Site]:
    """A cluster of nodes of one core in a new directory, for as long as the block runs."""
    words = ["-d", "-n", str(nodes), "--cores", "1", "--satellites", "1", "--no-estimator"]
    words += ["--agents", str(-(-nodes // NODES_PER_AGENT)), "--timeout", str(UP_S)]
    words += ["--allow-root-jobs"] if os.geteuid() == 0 else []
    try:
        _eslurm("up", *words, "--state-dir", str(directory))
        yield Site(directory, nodes)
    finally:
        _eslurm("down", "--state-dir", str(directory))


def _eslurm(*words: str) -> None:
    program = "from escli.local.eslurm import main; raise SystemExit(main())"
    subprocess.run([sys.executable, "-P", "-c", program, *words], check=True, stdout=subprocess.DEVNULL)


def _request(item: Item, cooperate: str, work: Path) -> pb.JobRequest:
    pending = item.job.pending
    command = " ".join(module("benchmarks.esp.program", str(work / "plan.json"), item.kind))
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return pb.JobRequest(
        name=item.kind,
        components=[pb.ResourceRequest(tasks=pending.request.tasks, cpus_per_task=1)],
        script=f"#!/bin/sh\nexec {command}\n".encode(),
        environment=f"PATH={os.defpath}\0HOME=/tmp\0PYTHONPATH={path}\0".encode(),
        work_dir=str(work),
        umask=0o022,
        output=str(work / "%j.out"),
        time_limit_s=pending.time_limit_us // 1_000_000,
        cooperate=cooperate,
        borrow=BORROW if cooperate != OFF else "",
    )
