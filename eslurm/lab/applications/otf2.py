"""A two-level run as an OTF2 archive, which Vampir and other viewers of traces open (R-15).

Needs the Python bindings of the OTF2 library, which most systems do not have; `trace` writes the same events without it.
A location is a core. Its regions are the jobs that use it, and within them the chunks that it computes.
"""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any, Final

from eslurm.core.model.units import SECOND_US
from eslurm.lab.applications.application import Core
from eslurm.lab.applications.two_level import Course

LIBRARY: Final = "otf2"


def available() -> bool:
    """Check whether the library's bindings are there."""
    return importlib.util.find_spec(LIBRARY) is not None


def write(path: Path, course: Course, title: str) -> None:
    """Write the archive into a new directory. Raises `OSError`."""
    library: Any = importlib.import_module(LIBRARY)
    if path.exists():
        raise FileExistsError(17, "it exists", str(path))
    with library.writer.open(str(path), timer_resolution=SECOND_US) as archive:
        definitions = archive.definitions
        tree = definitions.system_tree_node(title, parent=None, class_name="machine")
        regions = {
            one.job.pending.job_id: definitions.region(f"job {one.kind} {one.job.name}")
            for one in course.lived
        }
        chunks = {job_id: definitions.region(f"chunk of {region.name}") for job_id, region in regions.items()}
        events = events_of(course)
        for core in course.cores():
            name = course.name_of(core)
            group = definitions.location_group(name, system_tree_parent=tree)
            writer = archive.event_writer(name, group=group)
            for at_us, is_begin, is_chunk, job_id in events.get(core, ()):
                region = (chunks if is_chunk else regions)[job_id]
                (writer.enter if is_begin else writer.leave)(at_us, region)


def events_of(course: Course) -> dict[Core, list[tuple[int, bool, bool, int]]]:
    """(instant, begins, is a chunk, job) of each core, in an order in which regions nest."""
    begin_us = min(one.start_us for one in course.lived)
    chunks: dict[tuple[Core, int], list[tuple[int, int]]] = {}
    for task in course.tasks:
        place = (task.chunk.core, task.job_id)
        chunks.setdefault(place, []).append((task.chunk.begin_us - begin_us, task.chunk.end_us - begin_us))
    found: dict[Core, list[tuple[int, bool, bool, int]]] = {}
    # A core's jobs follow each other, and their chunks do within them.
    for job_id, core, start_us, end_us in sorted(course.stays(), key=lambda stay: (stay[2], stay[3])):
        events = found.setdefault(core, [])
        events.append((start_us - begin_us, True, False, job_id))
        for from_us, until_us in chunks.get((core, job_id), ()):
            events += [(from_us, True, True, job_id), (until_us, False, True, job_id)]
        events.append((end_us - begin_us, False, False, job_id))
    return found
