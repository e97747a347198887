"""One job on 1,024 virtual nodes: how long until its first instruction, until all nodes are free, and a step on each."""

from __future__ import annotations

import os
import select
import sys
import time
from pathlib import Path

from benchmarks.cluster import Cluster, Shape, running
from benchmarks.figures import Figures, median
from eslurm.api.methods import NODES, SUBMIT
from eslurm.v1 import controller_pb2 as pb

NODES_COUNT = 1024
SHAPE = Shape(nodes=NODES_COUNT, cores=8)
WORD_S = 120.0
FREE_S = 60.0


class Pipe:
    """A named pipe between the benchmark and a job's script, in one direction."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        # Open for both: it never ends, and no opener waits for the other side.
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._text = b""

    def word(self) -> tuple[str, float]:
        """The next line, and when it came. Raises TimeoutError."""
        while b"\n" not in self._text:
            if not select.select([self._fd], [], [], WORD_S)[0]:
                raise TimeoutError(f"a job said nothing for {WORD_S:g} s")
            self._text += os.read(self._fd, 4096)
        line, _, self._text = self._text.partition(b"\n")
        return line.decode(), time.perf_counter()

    def tell(self, line: str) -> None:
        """Write a line for whatever reads at the other side."""
        os.write(self._fd, line.encode() + b"\n")

    def close(self) -> None:
        """Done with it."""
        os.close(self._fd)


def measure(figures: Figures, parent: Path, *, quick: bool) -> None:
    """launch_1024_s, release_1024_s, step_1024_s."""
    launches, steps = (3, 1) if quick else (9, 3)
    with running(parent, SHAPE) as cluster:
        pipe = Pipe(cluster.directory / "words")
        try:
            _launch(cluster, pipe)
            cpu = cluster.cpu_s()
            both = [_launch(cluster, pipe) for _ in range(launches)]
            spent = {kind: seconds - cpu[kind] for kind, seconds in cluster.cpu_s().items()}
            figures.add("launch_1024_s", median(launch for launch, _ in both), "s", launches)
            figures.add("release_1024_s", median(release for _, release in both), "s", launches)
            for kind, seconds in spent.items():
                figures.add(f"launch_1024_{kind}_cpu_ms", seconds * 1000 / launches, "ms", launches)
            figures.add("step_1024_s", median(_step(cluster, pipe) for _ in range(steps)), "s", steps)
        finally:
            pipe.close()


def _launch(cluster: Cluster, pipe: Pipe) -> tuple[float, float]:
    """Seconds from submission to the first instruction, and from the last one until all nodes are free."""
    script = f"#!/bin/sh\necho started > {pipe.path}\necho ends > {pipe.path}\n"
    began = _submit(cluster, script)
    _, started = pipe.word()
    _, ended = pipe.word()
    return started - began, _until_free(cluster, ended)


def _step(cluster: Cluster, pipe: Pipe) -> float:
    """Seconds that `esrun` takes for one process on each node of its job."""
    # Root's calls are not taken at a node's socket: they go to the controller's.
    option = f"--socket {cluster.socket} " if os.getuid() == 0 else ""
    script = (
        f"#!/bin/sh\necho began > {pipe.path}\n"
        f"esrun {option}--label -N {NODES_COUNT} -n {NODES_COUNT} /bin/true\necho status $? > {pipe.path}\n"
    )
    _submit(cluster, script)
    _, began = pipe.word()
    word, ended = pipe.word()
    _until_free(cluster, ended)
    if word != "status 0":
        raise RuntimeError(f"esrun ended with {word}: see {cluster.directory}")
    return ended - began


def _submit(cluster: Cluster, script: str) -> float:
    path = f"{Path(sys.executable).parent}:{os.defpath}"
    job = pb.JobRequest(
        name="wide",
        components=[
            pb.ResourceRequest(
                tasks=NODES_COUNT,
                cpus_per_task=1,
                nodes_min=NODES_COUNT,
                nodes_max=NODES_COUNT,
                exclusive=True,
            )
        ],
        script=script.encode(),
        environment=f"PATH={path}\0HOME=/tmp\0".encode(),
        work_dir=str(cluster.directory),
        umask=0o022,
        time_limit_s=600,
    )
    with cluster.client() as client:
        began = time.perf_counter()
        client.call(SUBMIT, pb.SubmitRequest(jobs=[job]), 30)
    return began


def _until_free(cluster: Cluster, ended: float) -> float:
    """Seconds from `ended` until no node holds anything."""
    cluster.wait_for(lambda reply: not reply.jobs_running, FREE_S)
    free = time.perf_counter()
    with cluster.client() as client:
        nodes = client.call(NODES, pb.NodesRequest(), 30).nodes
    if len(nodes) != NODES_COUNT or any(node.cores_used or node.state != "UP" for node in nodes):
        raise RuntimeError("the job has ended, but not all of its nodes are up and free")
    return free - ended
