"""Logs of worlds and storms, written to files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from eslurm.ports.store import LoggedFact
from eslurm.replay.base import read_head
from eslurm.replay.logfile import FORMAT_VERSION, Header, LogFile, LogWriter
from tests.kits.core import World

SECOND = 1_000_000


def logged(world: World) -> list[LoggedFact]:
    """All facts of a world as its store has them."""
    return list(world.mirror.image.load_facts("main", 1))


def write(path: Path, facts: Sequence[LoggedFact], base: bytes = b"", cluster: str = "test") -> LogFile:
    """A file with these facts."""
    first = facts[0].revision if facts else (read_head(base).revision + 1 if base else 1)
    last = facts[-1].revision if facts else first - 1
    header = Header(FORMAT_VERSION, cluster, "main", first, last, 0, 2_000 * SECOND, "0.1.0")
    with open(path, "wb") as file:
        writer = LogWriter(file, header, base)
        for fact in facts:
            writer.add(fact)
        writer.finish()
    return LogFile(path)


def renumbered(facts: Sequence[LoggedFact]) -> list[LoggedFact]:
    """The same facts under contiguous revisions."""
    return [msgspec.structs.replace(fact, revision=at) for at, fact in enumerate(facts, 1)]
