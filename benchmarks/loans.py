"""Times of loans on a cluster of real processes: from an idle report to a borrower's process, and back to the owner.

One job holds all cores of 1,000 virtual nodes; its application, on the first of them, reports one idle core whenever it is
told to, and takes it back. Its reports are more than a second apart, as those of an application that reports once a second:
its node would keep an earlier one until then. The borrower ignores SIGTERM, so it takes all of its grace.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from benchmarks.cluster import Cluster, Shape, running
from benchmarks.figures import Figures, median
from benchmarks.wide import Pipe
from eslurm.api.methods import SUBMIT
from eslurm.v1 import controller_pb2 as pb

NODES_COUNT = 1000
ROOT = Path(__file__).resolve().parents[1]
GRACE_S = 1
PACE_S = 1.2
APPLICATION = """
import sys, time
from eslurm import job

with open(sys.argv[1]) as orders, open(sys.argv[2], "w", buffering=1) as words:
    print("runs", file=words)
    for order in orders:
        began = time.perf_counter()
        if order == "lend\\n":
            job.report(idle=1, remaining_s=100)
        elif job.report(idle=0, wait_s=60).excluded:
            sys.exit("the core has not come back")
        print(began, time.perf_counter(), file=words)
"""
BORROWER = "#!/bin/sh\ntrap '' TERM\necho began > {words}\nwhile :; do sleep 0.1; done\n"


def measure(figures: Figures, parent: Path, *, quick: bool) -> None:
    """lend_1000_s and its maximum, give_back_1000_s (less the grace) and its maximum."""
    nodes, rounds = (64, 3) if quick else (NODES_COUNT, 9)
    with running(parent, Shape(nodes=nodes, cores=2)) as cluster:
        words, said = Pipe(cluster.directory / "words"), Pipe(cluster.directory / "said")
        orders = Pipe(cluster.directory / "orders")
        try:
            found = _rounds(cluster, words, said, orders, nodes, rounds)
        finally:
            for pipe in (words, said, orders):
                pipe.close()
    for name, times in zip((f"lend_{nodes}", f"give_back_{nodes}"), zip(*found, strict=True), strict=True):
        figures.add(f"{name}_s", median(times), "s", rounds)
        figures.add(f"{name}_max_s", max(times), "s", rounds)


def _rounds(
    cluster: Cluster, words: Pipe, said: Pipe, orders: Pipe, nodes: int, rounds: int
) -> list[tuple[float, float]]:
    """Seconds from each report to the borrower's first line, and from each request to the owner's use, less the grace."""
    program = cluster.directory / "application.py"
    program.write_text(APPLICATION)
    command = f"exec {sys.executable} {program} {orders.path} {said.path}"
    _submit(cluster, f"#!/bin/sh\n{command}\n", nodes, cpus=2, cooperate="report")
    said.word()
    found = []
    for _ in range(rounds):
        _submit(cluster, BORROWER.format(words=words.path), 1, cpus=1, borrow=f"end,{GRACE_S}")
        time.sleep(PACE_S)
        reported_s, _ = _told(orders, said, "lend")
        _, began_s = words.word()
        time.sleep(PACE_S)
        asked_s, back_s = _told(orders, said, "back")
        found.append((began_s - reported_s, back_s - asked_s - GRACE_S))
    return found


def _told(orders: Pipe, said: Pipe, order: str) -> tuple[float, float]:
    """Times at which the application began its report and had the answer."""
    orders.tell(order)
    line, _ = said.word()
    began, _, ended = line.partition(" ")
    return float(began), float(ended)


def _submit(
    cluster: Cluster, script: str, nodes: int, *, cpus: int, cooperate: str = "", borrow: str = ""
) -> None:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    request = pb.JobRequest(
        name="loan",
        components=[pb.ResourceRequest(tasks=nodes, cpus_per_task=cpus, nodes_min=nodes, nodes_max=nodes)],
        script=script.encode(),
        environment=f"PATH={os.defpath}\0HOME=/tmp\0PYTHONPATH={path}\0".encode(),
        work_dir=str(cluster.directory),
        umask=0o022,
        output=str(cluster.directory / "%j.out"),
        time_limit_s=600,
        cooperate=cooperate,
        borrow=borrow,
    )
    with cluster.client() as client:
        client.call(SUBMIT, pb.SubmitRequest(jobs=[request]), 60)
