"""Self-scheduling of loops by the application: chunk sizes by published techniques."""

from __future__ import annotations

from eslurm.loops.technique import TechniqueError
from eslurm.loops.techniques import TECHNIQUES, Feedback, chunks
from eslurm.loops.weighted import History

__all__ = ["TECHNIQUES", "Feedback", "History", "TechniqueError", "chunks"]
