"""Sends the newest forecast of each job to the controller, in batches.

Invariant: at most one forecast of a job waits, so the queue is bounded by the live jobs; an unsent forecast is sent later
unless a newer one has replaced it; one that the controller refuses is dropped and logged.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import islice

from esestd.leader_calls import Away, LeaderCalls
from eslurm.api.methods import SET_FORECASTS
from eslurm.core.control.jobs.forecasts import FORECASTS_MAX
from eslurm.core.model.forecast import Forecast
from eslurm.ports.api import ApiRefused, Status
from eslurm.telemetry.estimator import EstimatorMetrics
from eslurm.v1 import controller_pb2 as pb

log = logging.getLogger("esestd")

CALL_S = 10.0
AGAIN_S = 1.0
_LATER = (Status.RESOURCE_EXHAUSTED, Status.ABORTED, Status.PERMISSION_DENIED, Status.UNAUTHENTICATED)


class Sender:
    """Sends forecasts as soon as there are any. `run` ends when it is cancelled."""

    def __init__(self, leader: LeaderCalls, metrics: EstimatorMetrics, model: str) -> None:
        self._leader = leader
        self._metrics = metrics
        self._model = model
        self._waiting: dict[int, Forecast] = {}
        self._some = asyncio.Event()

    def put(self, job_id: int, forecast: Forecast) -> None:
        """Send this forecast of the job, in place of one not yet sent."""
        self._waiting[job_id] = forecast
        self._metrics.unsent.set(len(self._waiting))
        self._some.set()

    def drop(self, job_id: int) -> None:
        """Forget the job, which is over."""
        self._waiting.pop(job_id, None)

    def clear(self) -> None:
        """Forget everything: another controller leads, or a replay begins."""
        self._waiting.clear()

    async def run(self) -> None:
        """Send forecasts, for ever."""
        while True:
            await self._some.wait()
            batch = dict(islice(self._waiting.items(), FORECASTS_MAX))
            if not batch:
                self._some.clear()
            elif not await self._send(batch):
                await asyncio.sleep(AGAIN_S)
            self._metrics.unsent.set(len(self._waiting))

    async def _send(self, batch: dict[int, Forecast]) -> bool:
        """Send a batch; True when it is settled."""
        request = pb.SetForecastsRequest(model=self._model)
        for job_id, one in batch.items():
            forecast = pb.Forecast(
                p10_s=one.p10_s, p50_s=one.p50_s, p90_s=one.p90_s, estimate_s=one.estimate_s
            )
            request.forecasts.append(pb.JobForecast(job_id=job_id, forecast=forecast))
        try:
            await self._leader.call(SET_FORECASTS, request, CALL_S)
        except Away:
            # The follower tells of it: both call one leader.
            return False
        except ApiRefused as error:
            if error.status in _LATER:
                return False
            log.warning("the controller refuses %d forecasts, they are dropped: %s", len(batch), error)
        else:
            self._metrics.sent.inc(len(batch))
        for job_id, one in batch.items():
            if self._waiting.get(job_id) is one:
                del self._waiting[job_id]
        return True
