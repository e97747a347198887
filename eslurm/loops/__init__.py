"""Self-scheduling of loops by the application: chunk sizes by published techniques, and a Python function over all cores.

    from eslurm import loops
    for size in loops.chunks(1000, 4, "GSS"): ...
    found = loops.run(square, 1_000_000, technique="FAC2")     # found.results, found.record
    loops.picture.draw(found.record)                           # which worker computed which chunk when, as SVG

Python's library is all that it needs; of eslurm it imports nothing but itself, so it works without a cluster.
docs/guide/loops.md
"""

from __future__ import annotations

from eslurm.loops import imbalance, picture
from eslurm.loops.crew import CrewError
from eslurm.loops.executor import ChunkFailed, LoopError, Run, Stream, run, stream
from eslurm.loops.record import Record
from eslurm.loops.task import TaskError
from eslurm.loops.technique import Technique, TechniqueError
from eslurm.loops.techniques import TECHNIQUES, Feedback, chunks, technique_of
from eslurm.loops.weighted import History

__all__ = [
    "TECHNIQUES",
    "ChunkFailed",
    "CrewError",
    "Feedback",
    "History",
    "LoopError",
    "Record",
    "Run",
    "Stream",
    "TaskError",
    "Technique",
    "TechniqueError",
    "chunks",
    "imbalance",
    "picture",
    "run",
    "stream",
    "technique_of",
]
