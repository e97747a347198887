"""The leader row: claims and renewals.

Invariant: a claim is one conditional statement on the row as the preemptor saw it, so of several claims one wins, and a
claim that had to wait for a commit loses to it. Every change but a claim is bound to the writer's own epoch.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import asdict, astuple
from sqlalchemy import Connection, insert, select, text, update
from sqlalchemy.exc import IntegrityError

from eslurm.ports.store import Claim, FenceLost, Leader, LeadershipTaken
from eslurm.store.schema import LEADER

# A living leader commits many times meanwhile.
CLAIM_LOCK_TIMEOUT_S = 1
_END_FROZEN = text(f"""
    SELECT pg_terminate_backend(session.pid, 1000)
    FROM pg_stat_activity AS session
    JOIN pg_locks AS held ON held.pid = session.pid AND held.database = session.datid
    WHERE session.datname = current_database() AND session.pid <> pg_backend_pid()
      AND held.relation = '{LEADER.name}'::regclass AND held.mode = 'RowExclusiveLock' AND held.granted
      AND session.wait_event = 'ClientRead'
      AND session.xact_start < clock_timestamp() - interval '{CLAIM_LOCK_TIMEOUT_S} s'
""")  # nosec B608 # the name of our own table and a number


def take_lead(connection: Connection, owner: str, claim: Claim | None) -> int:
    """Raise the owner's epoch and return it. LeadershipTaken: the row has changed since the claim."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{CLAIM_LOCK_TIMEOUT_S}s'")
    if claim is None or claim.seen == Leader():
        _ensure_row(connection, owner)
    seen = _locked(connection, owner) if claim is None else claim.seen
    taken = Leader(
        seen.epoch + 1,
        seen.revision,
        seen.at_us,
        holder=claim.holder if claim else "",
        endpoint=claim.endpoint if claim else "",
    )
    unmoved = (LEADER.c[name] == value for name, value in asdict(seen).items())
    claimed = update(LEADER).where(LEADER.c.owner == owner, *unmoved).values(asdict(taken))
    if connection.execute(claimed).rowcount != 1:
        raise LeadershipTaken(f"{owner}: the leader row has moved since it was seen")
    return taken.epoch


def end_frozen_writers(connection: Connection) -> int:
    """End the sessions of PostgreSQL that hold a leader row and wait for their client; returns their number.

    A writer that is frozen while it sends a statement counts as active for the server: no timeout of the session ends it.
    Its transaction is rolled back; if the writer lives after all, it commits that again, if it still leads.
    """
    if connection.dialect.name != "postgresql":
        return 0
    return len(connection.execute(_END_FROZEN).all())


def move_row(connection: Connection, owner: str, epoch: int, **values: Any) -> None:
    """Change the row of a writer that still leads; FenceLost if it does not."""
    still_mine = (LEADER.c.owner == owner, LEADER.c.epoch == epoch)
    if connection.execute(update(LEADER).where(*still_mine).values(**values)).rowcount != 1:
        raise FenceLost(f"{owner}: this writer has epoch {epoch}, the store has another one")


def _ensure_row(connection: Connection, owner: str) -> None:
    """Create an owner's first row. Waits for another controller that is creating it."""
    try:
        with connection.begin_nested():
            connection.execute(insert(LEADER).values((owner, *astuple(Leader()))))
    except IntegrityError:
        return


def _locked(connection: Connection, owner: str) -> Leader:
    columns = [column for column in LEADER.columns if column is not LEADER.c.owner]
    found = select(*columns).where(LEADER.c.owner == owner).with_for_update()
    return Leader(*connection.execute(found).one())
