"""The techniques by their names, and the generator of chunk sizes."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from eslurm.loops.adaptive import AdaptiveFactoring
from eslurm.loops.decreasing import (
    Factoring,
    GuidedSelfScheduling,
    PracticalFactoring,
    TrapezoidSelfScheduling,
)
from eslurm.loops.fixed import FixedSizeChunking, ModifiedFixedSizeChunking, SelfScheduling, Static
from eslurm.loops.technique import Technique, TechniqueError
from eslurm.loops.weighted import (
    AdaptiveWeightedFactoring,
    AwfBatch,
    AwfBatchTotal,
    AwfChunk,
    AwfChunkTotal,
    WeightedFactoring,
)

__all__ = ["TECHNIQUES", "Feedback", "chunks", "technique_of"]

TECHNIQUES: dict[str, type[Technique]] = {
    each.NAME: each
    for each in (
        Static,
        SelfScheduling,
        FixedSizeChunking,
        ModifiedFixedSizeChunking,
        GuidedSelfScheduling,
        TrapezoidSelfScheduling,
        Factoring,
        PracticalFactoring,
        WeightedFactoring,
        AdaptiveWeightedFactoring,
        AwfBatch,
        AwfChunk,
        AwfBatchTotal,
        AwfChunkTotal,
        AdaptiveFactoring,
    )
}
_BY_LOWER = {name.lower(): each for name, each in TECHNIQUES.items()}


@dataclass(frozen=True, slots=True)
class Feedback:
    """A worker's last chunk: its iterations, its seconds, and what the handing out cost on top, in seconds."""

    worker: int
    size: int
    seconds: float
    overhead: float = 0.0


def technique_of(name: str, n: int, workers: int, **options: Any) -> Technique:
    """A technique for one loop, by its name (in any case) and its own options. Raises TechniqueError."""
    found = _BY_LOWER.get(name.lower())
    if found is None:
        raise TechniqueError(f"no technique {name!r}: use one of {', '.join(TECHNIQUES)}")
    try:
        return found(n, workers, **options)
    except TypeError as error:
        # Python names the missing or the unknown option.
        said = str(error).partition("() ")[2] or str(error)
        raise TechniqueError(f"{found.NAME} {said}") from None


def chunks(
    n: int, workers: int, technique: str = "GSS", **options: Any
) -> Generator[int, Feedback | None, None]:
    """Yield the chunk sizes of a loop of `n` iterations on `workers` workers.

    `next()` asks for the workers in turn. `send(Feedback(...))` records the chunk that this worker has done, and asks
    for its next one; adaptive techniques need it. `options` are the technique's own (`sigma`, `h`, `mu`, `weights`,
    `history`, `first`, `last`, `pilot`) and `smallest` and `largest`. Raises TechniqueError at the call.
    """
    return _sizes(technique_of(technique, n, workers, **options))


def _sizes(technique: Technique) -> Generator[int, Feedback | None, None]:
    turn = 0
    worker = 0
    while size := technique.next_chunk(worker):
        told = yield size
        if told is None:
            turn = (turn + 1) % technique.workers
            worker = turn
        else:
            technique.record(told.worker, told.size, told.seconds, told.overhead)
            worker = told.worker
