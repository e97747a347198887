"""The estimator's metrics and health, over HTTP.

Its duty is to follow the controller's feed with an estimator that answers. Without it plans count on time limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from esestd.follower import Follower
from eslurm.telemetry import parts
from eslurm.telemetry.collected import Collected, page_of
from eslurm.telemetry.estimator import EstimatorMetrics
from eslurm.telemetry.exposition import Described, MetricFamily
from eslurm.telemetry.status import Health, StatusServer
from eslurm.telemetry.vitals import LoopLag

LINKED = Described(
    "eslurm_estimator_linked", "gauge", "Whether the controller's feed was answered last time."
)


def described() -> list[Described]:
    """All metrics of the estimator, for the reference."""
    return [LINKED, *EstimatorMetrics(lambda: 0.0).described, *parts.OWN]


class EstimatorStatus:
    """Make it inside the running loop. `is_answering` says whether there are forecasts."""

    def __init__(
        self,
        name: str,
        follower: Follower,
        metrics: EstimatorMetrics,
        is_answering: Callable[[], bool],
        tls: parts.Certificates | None = None,
    ) -> None:
        self._name = name
        self._tls = tls
        self._follower = follower
        self._is_answering = is_answering
        self._lag = LoopLag()
        metrics.registry.register(Collected(self._families))
        self._server = StatusServer(lambda: page_of(metrics.registry), self.health)

    async def open(self, listen: str) -> None:
        """Serve there. Raises OSError."""
        self._lag.start()
        await self._server.start(listen)

    async def close(self) -> None:
        """Serve no more."""
        self._lag.stop()
        await self._server.stop()

    def health(self) -> Health:
        """True when it follows the controller and gives forecasts."""
        if not self._follower.linked:
            return Health(False, self._follower.trouble or "has not reached a controller yet")
        if not self._is_answering():
            return Health(False, f"estimator {self._name} gives no forecasts yet, or has failed: see the log")
        return Health(True, f"follows the controller, estimator {self._name} answers")

    def _families(self) -> Iterator[MetricFamily]:
        yield LINKED.is_(self._follower.linked)
        yield from parts.own_families(self._tls, self._lag.take_us() / 1e6)
