"""Counts of links' and API endpoints' events, for metrics.

Invariant: counts only rise, except the gauges, whose names end in `_now`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class LinkCounters:
    """One set per process, shared by all of its links.

    `sockets_now` are open connections: links, and dials and handshakes under way."""

    links_now: int = 0
    sockets_now: int = 0
    links_up: int = 0
    links_down: int = 0
    dials: int = 0
    dials_failed: int = 0
    hellos_refused: int = 0
    frames_out: int = 0
    items_out: int = 0
    bytes_out: int = 0
    frames_in: int = 0
    items_in: int = 0
    bytes_in: int = 0
    queue_full_closes: int = 0
    items_too_large: int = 0
    sink_errors: int = 0
    evictions: int = 0
    links_parked: int = 0
    links_put_off: int = 0
    frames_forged: int = 0


@dataclass(slots=True)
class ApiCounters:
    """One set per API endpoint."""

    connections_now: int = 0
    connections: int = 0
    calls: int = 0
    calls_refused: int = 0
    broken_frames: int = 0
