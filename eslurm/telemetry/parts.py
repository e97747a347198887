"""The metrics that daemons have in common: their process, their links, their part in broadcasts, their log.

Invariant: the same thing has the same name in every daemon; which daemon it is, the scraper's `job` and `instance` tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from eslurm import __version__
from eslurm.telemetry import logs, status, vitals
from eslurm.telemetry.exposition import Described, MetricFamily


class LinkCounts(Protocol):
    """Counters of links (see `eslurm.transport.counters`)."""

    links_now: int
    sockets_now: int
    links_up: int
    links_down: int
    dials: int
    dials_failed: int
    hellos_refused: int
    items_out: int
    bytes_out: int
    items_in: int
    bytes_in: int
    queue_full_closes: int
    evictions: int
    links_parked: int
    links_put_off: int


class Certificates(Protocol):
    """Certificates and authorities of a process (see `eslurm.transport.tls`)."""

    def ends(self) -> dict[str, float]:
        """By file, in seconds since the epoch."""
        ...


class RelayCounts(Protocol):
    """Counters of a relay's driver (see `eslurm.links.relay_counters`)."""

    lists_sent: int
    lists_received: int
    acknowledgements: int
    refusals: int
    replies: int
    suspects: int


class RelayState(Protocol):
    """State of a relay (see `eslurm.core.relay.relay`)."""

    @property
    def live(self) -> int: ...

    @property
    def live_nodes(self) -> int: ...

    @property
    def queued(self) -> int: ...

    @property
    def adoptions(self) -> int: ...


BUILD = Described("eslurm_build_info", "gauge", "Always 1; which release runs.", ("version",))
CPU = Described("process_cpu_seconds_total", "counter", "CPU time of the process.")
RESIDENT = Described("process_resident_memory_bytes", "gauge", "Resident memory of the process.")
FILES = Described("process_open_fds", "gauge", "Open file descriptors.")
FILES_MAX = Described("process_max_fds", "gauge", "File descriptors that may be open.")
STARTED = Described("process_start_time_seconds", "gauge", "When the process began, since the epoch.")
LAG = Described(
    "eslurm_event_loop_lag_seconds",
    "gauge",
    "How late the event loop ran at worst since the last look at this.",
)
WATCHING = Described(
    "eslurm_watch_cpu_seconds_total", "counter", "CPU time spent on serving /metrics and /health."
)
PROCESS = (BUILD, CPU, RESIDENT, FILES, FILES_MAX, STARTED, LAG, WATCHING)

LOGGED = Described(
    "eslurm_log_messages_total", "counter", "Messages logged, by level; those left out included.", ("level",)
)
LEFT_OUT = Described(
    "eslurm_log_messages_left_out_total", "counter", "Messages left out because too many were alike."
)
LOG = (LOGGED, LEFT_OUT)

LINKS_NOW = Described("eslurm_links", "gauge", "Links to other processes that are up.")
SOCKETS = Described(
    "eslurm_link_sockets", "gauge", "Open connections: links, and dials and handshakes under way."
)
LINKS_UP = Described("eslurm_links_opened_total", "counter", "Links that came up.")
LINKS_DOWN = Described("eslurm_links_closed_total", "counter", "Links that ended.")
DIALS = Described("eslurm_link_dials_total", "counter", "Tries to reach another process.")
DIALS_FAILED = Described("eslurm_link_dials_failed_total", "counter", "Those of them that failed.")
REFUSED = Described(
    "eslurm_link_hellos_refused_total",
    "counter",
    "Peers that were refused: another cluster, key or protocol.",
)
ITEMS_OUT = Described("eslurm_link_sent_items_total", "counter", "Items sent.")
ITEMS_IN = Described("eslurm_link_received_items_total", "counter", "Items received.")
BYTES_OUT = Described("eslurm_link_sent_bytes_total", "counter", "Bytes of frames sent.")
BYTES_IN = Described("eslurm_link_received_bytes_total", "counter", "Bytes of frames received.")
OVERFLOWS = Described(
    "eslurm_link_overflows_total", "counter", "Links closed because their peer took too little of its queue."
)
ECONOMIES = Described(
    "eslurm_link_economies_total",
    "counter",
    "Links closed or put off to keep to the budget of connections: evicted, parked, put_off.",
    ("how",),
)
LINKS = (
    *(LINKS_NOW, SOCKETS, LINKS_UP, LINKS_DOWN, DIALS, DIALS_FAILED, REFUSED),
    *(ITEMS_OUT, ITEMS_IN, BYTES_OUT, BYTES_IN, OVERFLOWS, ECONOMIES),
)

CERTIFICATE_END = Described(
    "eslurm_certificate_not_after_timestamp_seconds",
    "gauge",
    "When the certificate in force ends, and the first of the authorities'; nothing without TLS.",
    ("file",),
)
OWN = (CERTIFICATE_END, *PROCESS, *LOG)
"""The part that every daemon has."""

LISTS_SENT = Described("eslurm_relay_lists_sent_total", "counter", "Lists of nodes given to children.")
LISTS_RECEIVED = Described(
    "eslurm_relay_lists_received_total", "counter", "Lists of nodes to serve that came."
)
ACKNOWLEDGED = Described("eslurm_relay_acknowledgements_total", "counter", "Acknowledgements from children.")
REFUSALS = Described(
    "eslurm_relay_refusals_total", "counter", "Lists that could not be delivered, or were refused by a child."
)
REPLIES = Described("eslurm_relay_replies_total", "counter", "Replies from children, partial ones included.")
SUSPECTS = Described("eslurm_relay_suspects_total", "counter", "Children that did not serve their list.")
ADOPTIONS = Described(
    "eslurm_relay_adoptions_total", "counter", "Lists of suspects whose other nodes were served from here."
)
LIVE = Described("eslurm_relay_broadcasts", "gauge", "Broadcasts under way here.")
LIVE_NODES = Described("eslurm_relay_nodes", "gauge", "Nodes in the lists that are under way here.")
QUEUED = Described("eslurm_relay_queued_sends", "gauge", "Lists that wait for their turn to be sent.")
RELAY = (
    *(LISTS_SENT, LISTS_RECEIVED, ACKNOWLEDGED, REFUSALS, REPLIES, SUSPECTS, ADOPTIONS),
    *(LIVE, LIVE_NODES, QUEUED),
)


def own_families(certificates: Certificates | None, lag_s: float) -> Iterator[MetricFamily]:
    """The process as it is now, its certificates and what it logged; `lag_s` is how late its loop ran."""
    yield CERTIFICATE_END.by(certificates.ends() if certificates is not None else {})
    yield BUILD.by({__version__: 1})
    yield CPU.is_(vitals.cpu_s())
    yield RESIDENT.is_(vitals.rss_bytes())
    yield FILES.is_(vitals.open_files())
    yield FILES_MAX.is_(vitals.open_files_max())
    yield STARTED.is_(vitals.started_s())
    yield LAG.is_(lag_s)
    yield WATCHING.is_(status.counts.cpu_s)
    yield LOGGED.by(logs.counts.by_level)
    yield LEFT_OUT.is_(logs.counts.left_out)


def link_families(counts: LinkCounts) -> Iterator[MetricFamily]:
    """All links of the process."""
    yield LINKS_NOW.is_(counts.links_now)
    yield SOCKETS.is_(counts.sockets_now)
    yield LINKS_UP.is_(counts.links_up)
    yield LINKS_DOWN.is_(counts.links_down)
    yield DIALS.is_(counts.dials)
    yield DIALS_FAILED.is_(counts.dials_failed)
    yield REFUSED.is_(counts.hellos_refused)
    yield ITEMS_OUT.is_(counts.items_out)
    yield ITEMS_IN.is_(counts.items_in)
    yield BYTES_OUT.is_(counts.bytes_out)
    yield BYTES_IN.is_(counts.bytes_in)
    yield OVERFLOWS.is_(counts.queue_full_closes)
    yield ECONOMIES.by(
        {"evicted": counts.evictions, "parked": counts.links_parked, "put_off": counts.links_put_off}
    )


def relay_families(counts: RelayCounts, relay: RelayState) -> Iterator[MetricFamily]:
    """The process' part in broadcasts."""
    yield LISTS_SENT.is_(counts.lists_sent)
    yield LISTS_RECEIVED.is_(counts.lists_received)
    yield ACKNOWLEDGED.is_(counts.acknowledgements)
    yield REFUSALS.is_(counts.refusals)
    yield REPLIES.is_(counts.replies)
    yield SUSPECTS.is_(counts.suspects)
    yield ADOPTIONS.is_(relay.adoptions)
    yield LIVE.is_(relay.live)
    yield LIVE_NODES.is_(relay.live_nodes)
    yield QUEUED.is_(relay.queued)
