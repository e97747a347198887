"""Counts of a relay driver's events, for metrics. Invariant: counts only rise."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class RelayCounters:
    """One set per process."""

    lists_sent: int = 0
    lists_received: int = 0
    acknowledgements: int = 0
    refusals: int = 0
    replies: int = 0
    suspects: int = 0
