"""Cores that a running job lets others use for a while: its word for them, loans, and what borrowers agree to.

An application reports cores that it does not use (R-01, R-03). Its node *excludes* them on the controller's word: the
application runs nothing there until the controller gives them back. Excluded cores may be lent to jobs that have asked to
borrow; the lender keeps its allocation (R-04). Invariant: what is lent on a node is at most what that node has confirmed.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec

OFF: Final = "off"
REPORT: Final = "report"
FULL: Final = "full"
LEVELS: Final = (OFF, REPORT, FULL)
"""R-06: nothing; reports of idle cores; those, and requests to exclude cores (R-02) are passed on."""
COMMUNICATION: Final = "comm"
EXPECTED: Final = "time"
COMMUNICATION_MAX_PERCENT: Final = 99
REQUEUE: Final = "requeue"
END: Final = "end"
BORROW_GRACE_S: Final = 30
BORROW_GRACE_MAX_S: Final = 86_400
WORKERS_MAX: Final = 4_096
"""Reporting processes of a job on one node."""
REMAINING_MAX_S: Final = 2**40
"""Of work, in seconds of one core."""


class Loan(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """Cores on one node that an attempt uses and another job's attempt owns, from `from_us` on.

    `until_us`: the time at which they became its own, because their owner had gone; 0: they are borrowed. A loan ends with
    the borrower's hold of the node.
    """

    owner: int
    attempt: int
    node: int
    cores: int
    from_us: int = 0
    until_us: int = 0


class Exclusion(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """Cores of an attempt on one node that its application leaves to others.

    `cores` are confirmed by the node. `wanted` is what the node has been told last, `revision` the effect that it still
    owes an answer to (0: none): more than `cores` until it confirms them, less never.
    """

    node: int
    cores: int
    wanted: int
    revision: int = 0


class CoreReport(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """The latest word of an application for one of its nodes: cores it does not use, and the work it has left there.

    `excluded` is what the node has confirmed. `remaining_s` is in seconds of one core; -1: not said. `rejects`: it has
    rejected the last request to exclude cores.
    """

    idle: int
    excluded: int = 0
    remaining_s: int = -1
    rejects: bool = False
    at_us: int = 0


class Terms(msgspec.Struct, frozen=True):
    """The agreement of a borrower for when an owner asks its cores back: the grace, then the end or another attempt."""

    mode: str
    grace_s: int


def terms_of(text: str) -> Terms | None:
    """The terms of `requeue`, `end`, `end,60`; None for an empty text. Raises ValueError with the way out."""
    if not text:
        return None
    mode, comma, grace = text.partition(",")
    is_number = grace.isascii() and grace.isdecimal() and len(grace) <= 6
    grace_s = int(grace) if is_number else BORROW_GRACE_S
    if mode not in (REQUEUE, END) or (comma and not is_number) or grace_s > BORROW_GRACE_MAX_S:
        raise ValueError(
            f"--borrow: {text[:64]}: give requeue or end, and perhaps seconds of grace up to {BORROW_GRACE_MAX_S}: "
            "--borrow=requeue,60"
        )
    return Terms(mode, grace_s)


class LendingTerms(msgspec.Struct, frozen=True):
    """The level at which a job lends its idle cores, and hints of its user for requests to it (R-02).

    `communication_percent` is the share of its running time that fewer cores do not lengthen. `expected_s` is the running
    time that the user expects; 0: not said.
    """

    level: str = OFF
    communication_percent: int = 0
    expected_s: int = 0

    @property
    def lends(self) -> bool:
        """True if idle cores of the job may be lent at all."""
        return self.level != OFF


@lru_cache(maxsize=256)  # read of each job that is shown
def cooperation_of(text: str) -> LendingTerms:
    """The terms of `report`, `full`, `full,comm=30,time=7200`; off for an empty text. Raises ValueError with the way out."""
    level, *hints = text.split(",")
    values = {COMMUNICATION: 0, EXPECTED: 0}
    seen: set[str] = set()
    for hint in hints:
        name, _, number = hint.partition("=")
        is_number = number.isascii() and number.isdecimal() and len(number) <= 9
        if name not in values or name in seen or not is_number or level in ("", OFF):
            raise _unknown_cooperation(text)
        seen.add(name)
        values[name] = int(number)
    if (level and level not in LEVELS) or values[COMMUNICATION] > COMMUNICATION_MAX_PERCENT:
        raise _unknown_cooperation(text)
    return LendingTerms(level or OFF, values[COMMUNICATION], values[EXPECTED])


def _unknown_cooperation(text: str) -> ValueError:
    return ValueError(
        f"--cooperate: {text[:64]}: give {', '.join(LEVELS)}, and perhaps the percentage of its time that it communicates, "
        f"up to {COMMUNICATION_MAX_PERCENT}, and the seconds that it will run: --cooperate=full,comm=30,time=7200"
    )


def harm_s(remaining_s: int, cores: int, fewer: int, communication_percent: int = 0) -> float:
    """The delay of an application that does its remaining work on fewer cores, in seconds (R-02).

    Its communication takes as long as before: a share of t seconds on n cores becomes t (c + (1 - c) n / (n - fewer)).
    """
    left = cores - fewer
    if left <= 0 or cores <= 0:
        return float("inf")
    return (remaining_s / left - remaining_s / cores) * (100 - communication_percent) / 100
