"""A two-level run as trace events that https://ui.perfetto.dev reads (R-15): jobs in one process, tasks in another.

Process 1 has a track per core with a bar for each chunk, process 2 one with the bar of each job that uses it, from the job's
start until it ends or leaves the core. Times are microseconds from the first start.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from eslurm.lab.applications.application import Core
from eslurm.lab.applications.two_level import Course
from eslurm.lab.workloads.perfetto import named

TASKS: Final = 1
JOBS: Final = 2


def write(path: Path, course: Course, title: str) -> None:
    """Write the file, event by event. Raises `OSError`."""
    encoder = msgspec.json.Encoder()
    with path.open("wb") as out:
        out.write(b'{"displayTimeUnit":"ms","traceEvents":[\n')
        for index, event in enumerate(events(course, title)):
            out.write((b",\n" if index else b"") + encoder.encode(event))
        out.write(b"\n]}\n")


def events(course: Course, title: str) -> Iterator[dict[str, Any]]:
    """Names of the tracks, then jobs in the order of their start, then chunks in the order of their ends."""
    begin_us = min(one.start_us for one in course.lived)
    tracks = tracks_of(course)
    for process, name in ((TASKS, "tasks"), (JOBS, "jobs")):
        yield named("process_name", 0, f"{name}: {title}", process)
        for core, track in tracks.items():
            yield named("thread_name", track, course.name_of(core), process)
    names = {one.job.pending.job_id: f"{one.kind} {one.job.name}".strip() for one in course.lived}
    for job_id, core, start_us, end_us in course.stays():
        yield _bar(
            names[job_id], "job", JOBS, tracks[core], start_us - begin_us, end_us - start_us, job=job_id
        )
    for task in course.tasks:
        chunk = task.chunk
        yield _bar(
            names[task.job_id],
            "chunk",
            TASKS,
            tracks[chunk.core],
            chunk.begin_us - begin_us,
            chunk.end_us - chunk.begin_us,
            job=task.job_id,
            first=chunk.start,
            tasks=chunk.stop - chunk.start,
        )


def tracks_of(course: Course) -> dict[Core, int]:
    """A number for each core, in the order of nodes."""
    return {core: track for track, core in enumerate(course.cores(), 1)}


def _bar(
    name: str, kind: str, process: int, track: int, at_us: int, length_us: int, **told: int
) -> dict[str, Any]:
    return {
        "name": name,
        "cat": kind,
        "ph": "X",
        "pid": process,
        "tid": track,
        "ts": at_us,
        "dur": length_us,
        "args": told,
    }
