"""The agent's spool, and beside it a file of what outlives it: identities and numbers of its nodes, the count of its starts.

While a node is up, the controller refuses another individual under its name. An agent that has lost its spool is the
same individual, started later, and this file proves it: the controller takes its registration at once. With its number a
node finds its running steps at the supervisor, so the first registration names them. Both files have the format and the
lock of a spool. Invariant: an agent that knows a node's identity holds the lock of the file that says so, hence no second
agent of this state directory offers the same individual.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from eslurm.core.agent.records import LASTING, Folded, Identity, NumberGiven, Record
from esnoded.spool import Spool

NAME = "identity.spool"


class IdentifiedSpool(Spool):
    """A spool whose `state` has identities, numbers and starts even when its own file was lost."""

    def __init__(self, path: Path) -> None:
        """Open both files; each gets what only the other has. Raises SpoolError, OSError."""
        super().__init__(path)
        try:
            self._kept = Spool(path.with_name(NAME))
        except BaseException:
            super().close()
            raise
        try:
            self._merge(self._kept.state)
        except BaseException:
            self.close()
            raise

    def _merge(self, kept: Folded) -> None:
        if self._kept.wants_compaction:
            self._kept.compact(kept)
        state = self.state
        here, there = _lasting(state), _lasting(kept)
        if fresh := [record for record in here if record not in there]:
            self._kept.append(fresh, durable=True)
        state.cluster = state.cluster or kept.cluster
        state.starts = max(state.starts, kept.starts)
        state.identities = kept.identities | state.identities
        state.numbers = kept.numbers | state.numbers
        if lost := [record for record in _lasting(state) if record not in here]:
            super().append(lost, durable=True)

    def append(self, records: Iterable[Record], durable: bool = False) -> None:
        """See `Spool.append`. A record may be in the kept file and not in the spool: it is written there again."""
        records = list(records)
        kept = [record for record in records if isinstance(record, LASTING)]
        if kept:
            self._kept.append(kept, durable)
        super().append(records, durable)

    def close(self) -> None:
        """Let go of both files."""
        self._kept.close()
        super().close()


def _lasting(state: Folded) -> dict[Record, None]:
    """In their order, and quick to look up: a process may emulate ten thousand nodes."""
    identities: list[Record] = [Identity(*pair) for pair in state.identities.items()]
    return dict.fromkeys([*identities, *(NumberGiven(*pair) for pair in state.numbers.items())])
