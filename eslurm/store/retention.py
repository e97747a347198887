"""Retention: removal of old answers, unreferenced old blobs, and the log's beginning.

Invariant: one call examines a bounded number of rows, and repeated calls cover all of them.
"""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, delete, func, select, update

from eslurm.ports.store import Prune, Pruned
from eslurm.store.schema import BLOBS, FACTS, REQUESTS


def prune_owner(connection: Connection, owner: str, revision_last: int, limits: Prune) -> Pruned:
    """Remove one owner's rows beyond the limits, inside the caller's transaction."""
    return Pruned(
        answers=_answers(connection, owner, limits),
        blobs=_blobs(connection, owner, limits),
        facts=_facts(connection, owner, revision_last, limits),
    )


def _answers(connection: Connection, owner: str, limits: Prune) -> int:
    old = (
        select(REQUESTS.c.request_id)
        .where(REQUESTS.c.owner == owner, REQUESTS.c.at_us < limits.answers_before_us)
        .order_by(REQUESTS.c.at_us)
        .limit(limits.rows_max)
    )
    return connection.execute(delete(REQUESTS).where(REQUESTS.c.request_id.in_(old))).rowcount


def _blobs(connection: Connection, owner: str, limits: Prune) -> int:
    old = (
        select(BLOBS.c.hash)
        .where(BLOBS.c.owner == owner, BLOBS.c.at_us < limits.blobs_before_us)
        .order_by(BLOBS.c.at_us)
        .limit(limits.rows_max)
    )
    hashes = connection.scalars(old).all()
    kept = [{"hash_is": hash_} for hash_ in hashes if hash_ in limits.blobs_kept]
    gone = [{"hash_is": hash_} for hash_ in hashes if hash_ not in limits.blobs_kept]
    this = (BLOBS.c.owner == owner, BLOBS.c.hash == bindparam("hash_is"))
    if kept:
        # Made young again: otherwise the same referenced blobs would fill every later call's bound.
        connection.execute(update(BLOBS).where(*this).values(at_us=limits.now_us), kept)
    if gone:
        connection.execute(delete(BLOBS).where(*this), gone)
    return len(gone)


def _facts(connection: Connection, owner: str, revision_last: int, limits: Prune) -> int:
    if limits.facts_before_revision == 0:
        return 0
    first = connection.scalar(select(func.min(FACTS.c.revision)).where(FACTS.c.owner == owner))
    if first is None:
        return 0
    before = min(limits.facts_before_revision, revision_last + 1, first + limits.rows_max)
    return connection.execute(delete(FACTS).where(FACTS.c.owner == owner, FACTS.c.revision < before)).rowcount
