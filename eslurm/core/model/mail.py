"""Mail about a job: the messages that are owed.

A message that is owed is in the job's record until it was sent or given up: a new leader sends it, perhaps again.
"""

from __future__ import annotations

from typing import Final

import msgspec

NOTES_MAX: Final = 16
"""Messages that one job owes at once; further ones are not written."""
JOBS_MAX: Final = 10_000
"""Jobs that owe messages at once; further ones get none."""
NODES_MAX: Final = 32
"""Nodes that a message names."""


class MailNote(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """A message that is owed, with what it is to say: the job may have moved on when it is sent. `number` counts within the
    job, from 1.
    """

    number: int
    event: str
    at_us: int
    state: str
    attempt: int = 0
    started_us: int = 0
    run_us: int = 0
    """Its run time without suspensions, as far as it has run; of a begin the time for which it has waited."""
    exit_code: int = 0
    exit_signal: int = 0
    text: str = ""
    nodes: tuple[int, ...] = ()
    """The first nodes of the attempt, of `node_count`."""
    node_count: int = 0
    cpu_us: int = 0
    max_rss_kib: int = 0
    """Processor time and memory of its script, as its first node has said."""


class MailRecord(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """The messages about a job: those owed, how many there were, and the highest percentage of its attempt's limit told."""

    notes: tuple[MailNote, ...] = ()
    count: int = 0
    attempt: int = 0
    percent: int = 0
