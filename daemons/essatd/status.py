"""A satellite's metrics and health.

It is healthy while it is linked to a leading controller: without one, broadcasts and reports go other ways or wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from eslurm.core.relay.relay import Relay
from eslurm.links.kinds import is_agent
from eslurm.links.links import LinkTable
from eslurm.links.relay_counters import RelayCounters
from eslurm.ports.link import Link
from eslurm.telemetry import parts
from eslurm.telemetry.exposition import Described, MetricFamily
from eslurm.telemetry.status import Health
from eslurm.telemetry.vitals import LoopLag

LINKED = Described("eslurm_satellite_leader_linked", "gauge", "Whether a controller that leads is linked.")
EPOCH = Described("eslurm_satellite_leader_epoch", "gauge", "The leading controller's epoch; 0 without one.")
AGENTS = Described("eslurm_satellite_agents", "gauge", "Agent processes that are linked.")
BOOK = Described("eslurm_satellite_book_revision", "gauge", "Revision of the address book.")
SATELLITE = (LINKED, EPOCH, AGENTS, BOOK)


def described() -> list[Described]:
    """All metrics of a satellite, for the reference."""
    return [*SATELLITE, *parts.RELAY, *parts.LINKS, *parts.OWN]


class SatelliteStatus:
    """`leader` and `book_revision` give the satellite's present state."""

    def __init__(
        self,
        table: LinkTable,
        relay: Relay,
        counters: RelayCounters,
        controllers: Sequence[str],
        leader: Callable[[], Link | None],
        book_revision: Callable[[], int],
        tls: parts.Certificates | None = None,
    ) -> None:
        self._table = table
        self._relay = relay
        self._counters = counters
        self._controllers = controllers
        self._leader = leader
        self._book_revision = book_revision
        self._tls = tls
        # Its own: the controller's pings take the worst lag of another one.
        self.lag = LoopLag()

    def families(self) -> Iterator[MetricFamily]:
        """All of its metrics."""
        leader = self._leader()
        yield LINKED.is_(leader is not None)
        yield EPOCH.is_(leader.peer.epoch if leader is not None else 0)
        yield AGENTS.is_(sum(is_agent(link.peer.role) for link in self._table.links))
        yield BOOK.is_(self._book_revision())
        yield from parts.relay_families(self._counters, self._relay)
        yield from parts.link_families(self._table.counters)
        yield from parts.own_families(self._tls, self.lag.take_us() / 1e6)

    def health(self) -> Health:
        """Check whether a controller that leads is linked."""
        leader = self._leader()
        if leader is None:
            return Health(
                False, f"no controller that leads is linked: looking for {', '.join(self._controllers)}"
            )
        return Health(True, f"linked to the controller at {leader.peer.endpoint}, epoch {leader.peer.epoch}")
