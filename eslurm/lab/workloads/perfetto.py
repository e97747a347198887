"""A run as trace events that https://ui.perfetto.dev and chrome://tracing read: a track per core, a bar per job and node.

A job stands on the first of its cores of each node, so on nodes of one core every node is one track. Two counters show
the busy processors and the waiting jobs. Times are microseconds from the first submission.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from eslurm.core.model.units import SECOND_US
from eslurm.core.resources.vector import CORES
from eslurm.lab.workloads.lanes import Lanes
from eslurm.lab.workloads.loop import Result

PROCESS: Final = 1


def write_trace(path: Path, result: Result) -> None:
    """Writes the file, event by event. Raises `OSError`."""
    encoder = msgspec.json.Encoder()
    with path.open("wb") as out:
        out.write(b'{"displayTimeUnit":"ms","traceEvents":[\n')
        for index, event in enumerate(events(result)):
            out.write((b",\n" if index else b"") + encoder.encode(event))
        out.write(b"\n]}\n")


def events(result: Result) -> Iterator[dict[str, Any]]:
    """Names of the tracks, then jobs in the order of their start, then the counters."""
    lanes = Lanes(result.machine)
    begin_us = min((one.job.submit_us for one in result.ran), default=0)
    yield named("process_name", 0, f"{result.policy}: {result.machine.shape}")
    topology = result.machine.topology
    for position, name in enumerate(topology.names):
        cores = topology.totals[position][CORES]
        for core in range(cores):
            label = name if cores == 1 else f"{name} core {core}"
            yield named("thread_name", lanes.first[position] + core, label)
    shown: set[tuple[int, int]] = set()
    nodes = _node_of(lanes)
    for bar in lanes.bars(result, joined=False):
        job = bar.ran.job
        # The cores of a job on one node need not be neighbours: one bar is enough.
        place = (job.pending.job_id, nodes[bar.low])
        if place in shown:
            continue
        shown.add(place)
        yield {
            "name": f"job {job.name}",
            "cat": "job",
            "ph": "X",
            "pid": PROCESS,
            "tid": bar.low,
            "ts": bar.ran.start_us - begin_us,
            "dur": bar.ran.end_us - bar.ran.start_us,
            "args": {
                "job": job.record.job_id,
                "user": job.record.user,
                "processors": job.processors,
                "wait_s": bar.ran.wait_us / SECOND_US,
                "estimate_s": job.pending.stay_us / SECOND_US,
            },
        }
    yield from _counters(result, begin_us)


def _node_of(lanes: Lanes) -> list[int]:
    found: list[int] = []
    for position, first in enumerate(lanes.first):
        end = lanes.first[position + 1] if position + 1 < len(lanes.first) else lanes.count
        found += [position] * (end - first)
    return found


def _counters(result: Result, begin_us: int) -> Iterator[dict[str, Any]]:
    changes: dict[int, list[int]] = {}
    for one in result.ran:
        changes.setdefault(one.job.submit_us, [0, 0])[1] += 1
        start = changes.setdefault(one.start_us, [0, 0])
        start[0] += one.job.processors
        start[1] -= 1
        changes.setdefault(one.end_us, [0, 0])[0] -= one.job.processors
    busy = waiting = 0
    for at_us in sorted(changes):
        more_busy, more_waiting = changes[at_us]
        busy, waiting = busy + more_busy, waiting + more_waiting
        for name, value in (("busy processors", busy), ("waiting jobs", waiting)):
            yield {"name": name, "ph": "C", "pid": PROCESS, "ts": at_us - begin_us, "args": {"value": value}}


def named(kind: str, track: int, name: str, process: int = PROCESS) -> dict[str, Any]:
    """The event that names a track (`thread_name`) or a process (`process_name`)."""
    return {"name": kind, "ph": "M", "pid": process, "tid": track, "args": {"name": name}}
