"""Results of a broadcast per node, merged on the way up (X-17).

Owns the outcome of one node and the compressed form of many: outcome -> runs of nodes, so that a text travels once however
many nodes share it.

Invariant: outcomes are totally ordered and merging takes the greater one, hence it is commutative, associative and
idempotent, and messages may be repeated and reordered at will. The order is unreached < ok < failed: knowledge beats
ignorance, and where two copies of a node's answer disagree the failure is kept, because an overlooked failure costs more
than a repeated look. Within a status the greater (code, text, payload) wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Final

import msgspec

from eslurm.core.relay.nodelist import encode


class Status(IntEnum):
    """Status of one node, in merging order."""

    UNREACHED = 0
    OK = 1
    FAILED = 2


class Outcome(msgspec.Struct, frozen=True, array_like=True, order=True, omit_defaults=True, gc=False):
    """The result of one node. Fields are in merging order; more are only ever appended.

    `code` and `text` belong to a failure; an unreached node's `text` is the cause. `payload` is an opaque answer of the
    command.
    """

    status: Status
    code: int = 0
    text: str = ""
    payload: bytes = b""


OK: Final = Outcome(Status.OK)
FAILED: Final = 1
"""The code of a failure that has only a text."""
USER_REFUSED: Final = 2
"""The code of a launch that the node refuses because of whose it is: a setting says so, and another try changes nothing."""


def failed(text: str, code: int = FAILED) -> Outcome:
    """The outcome of a node that was reached and whose command failed."""
    return Outcome(Status.FAILED, code, text)


def unreached(why: str = "") -> Outcome:
    """The outcome of a node without an answer: the command may have run there or may still run."""
    return Outcome(Status.UNREACHED, 0, why)


class Row(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One outcome and the nodes that share it, as ascending disjoint runs."""

    outcome: Outcome
    starts: tuple[int, ...]
    lengths: tuple[int, ...]

    def ranges(self) -> Iterator[range]:
        """The runs of this row."""
        for start, length in zip(self.starts, self.lengths, strict=True):
            yield range(start, start + length)

    def count(self) -> int:
        """Number of nodes that share the outcome."""
        return sum(self.lengths)


class Results(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Outcomes of a set of nodes in canonical form: equal knowledge is an equal value.

    Rows are in outcome order, no node is in two rows, runs are maximal.
    """

    rows: tuple[Row, ...] = ()

    def expand(self) -> dict[int, Outcome]:
        """Outcome by node."""
        return {node: row.outcome for row in self.rows for run in row.ranges() for node in run}

    def nodes(self, status: Status) -> list[int]:
        """The nodes with this status, ascending."""
        rows = (row for row in self.rows if row.outcome.status is status)
        return sorted(node for row in rows for run in row.ranges() for node in run)

    def count(self, status: Status | None = None) -> int:
        """Number of nodes with this status; with None, of all known nodes."""
        return sum(row.count() for row in self.rows if status is None or row.outcome.status is status)


EMPTY: Final = Results()


def collect(nodes: Sequence[int], outcomes: Mapping[int, Outcome], otherwise: Outcome) -> Results:
    """Results of `nodes`, each by `outcomes` or else `otherwise`."""
    if len(nodes) == 1:
        return Results((Row(outcomes.get(nodes[0], otherwise), (nodes[0],), (1,)),))
    by_outcome: dict[Outcome, list[int]] = {}
    last: Outcome | None = None
    share: list[int] = []
    for node in nodes:
        outcome = outcomes.get(node, otherwise)
        # Neighbours usually share one object: hashing it once per change is what keeps this cheap.
        if outcome is not last:
            last = outcome
            share = by_outcome.setdefault(outcome, [])
        share.append(node)
    return _canonical(by_outcome)


def from_mapping(outcomes: Mapping[int, Outcome]) -> Results:
    """The canonical results of an outcome-by-node mapping."""
    return collect(tuple(outcomes), outcomes, unreached())


def merge(parts: Iterable[Results]) -> Results:
    """The union of the parts; of two outcomes of a node the greater one is kept."""
    known: dict[int, Outcome] = {}
    for part in parts:
        for row in part.rows:
            for run in row.ranges():
                absorb(known, run, row.outcome)
    return from_mapping(known)


def absorb(known: dict[int, Outcome], nodes: Iterable[int], outcome: Outcome) -> None:
    """Merge one outcome of many nodes into `known`."""
    for node in nodes:
        old = known.get(node)
        if old is None or old < outcome:
            known[node] = outcome


def _canonical(by_outcome: Mapping[Outcome, list[int]]) -> Results:
    rows = []
    for outcome in sorted(by_outcome):
        starts, lengths = encode(sorted(set(by_outcome[outcome])))
        rows.append(Row(outcome, starts, lengths))
    return Results(tuple(rows))
