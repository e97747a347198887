"""Helpers of the tests of `esestd`: a controller with a feed behind real API servers, and estimators that obey a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from eslurm.api.authoriser import Authoriser
from eslurm.api.methods import Method
from eslurm.api.principals import Principals
from eslurm.api.unix_server import UnixServer
from eslurm.core.control.jobs.forecasts import FORECASTS_MAX
from eslurm.core.control.rights import Level
from eslurm.core.model.forecast import Forecast, Submitted, exactly
from eslurm.core.model.job import Principal
from eslurm.ports.api import ApiError, Caller, Status
from eslurm.ports.estimator import Lesson, Model
from eslurm.telemetry.clocks import wall_us
from eslurm.v1 import controller_pb2 as pb

PATIENCE_S = 50.0
LIFE_BITS = 32


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until something is so; fail after a while."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - conditions of any kind, seen from outside
            await asyncio.sleep(0.002)


def submitted(job_id: int, at_s: int, user: str = "ada", limit_s: int = 3600, **fields: Any) -> pb.JobEvent:
    job = pb.JobDescription(user=user, limit_s=limit_s, nodes=1, cores=4, **fields)
    return pb.JobEvent(kind=pb.JobEvent.SUBMITTED, job_id=job_id, at_us=at_s * 1_000_000, job=job)


def changed(job_id: int, at_s: int, **fields: Any) -> pb.JobEvent:
    event = submitted(job_id, at_s, **fields)
    event.kind = pb.JobEvent.CHANGED
    return event


def started(job_id: int, at_s: int) -> pb.JobEvent:
    return pb.JobEvent(kind=pb.JobEvent.STARTED, job_id=job_id, at_us=at_s * 1_000_000)


def requeued(job_id: int, at_s: int) -> pb.JobEvent:
    return pb.JobEvent(kind=pb.JobEvent.REQUEUED, job_id=job_id, at_us=at_s * 1_000_000)


def ended(job_id: int, at_s: int, runtime_s: int) -> pb.JobEvent:
    return pb.JobEvent(kind=pb.JobEvent.ENDED, job_id=job_id, at_us=at_s * 1_000_000, runtime_s=runtime_s)


def whole_run(job_id: int, at_s: int, runtime_s: int, **fields: Any) -> list[pb.JobEvent]:
    """A job from its submission to its end."""
    return [
        submitted(job_id, at_s, **fields),
        started(job_id, at_s),
        ended(job_id, at_s + runtime_s, runtime_s),
    ]


def now_s() -> int:
    return wall_us() // 1_000_000


class Controller:
    """The controller's end: a feed of `events`, a table of the forecasts it was sent. A `ApiService`."""

    def __init__(self) -> None:
        self.life = 1
        self.events: list[pb.JobEvent] = []
        self.forecasts: dict[int, pb.Forecast] = {}
        self.sent: list[pb.SetForecastsRequest] = []
        self.refuse: ApiError | None = None
        self.refuse_forecasts: ApiError | None = None
        self.page_max = 10_000
        self.begun = 0
        """Streams of job events that started from the beginning."""
        self._moved = asyncio.Event()

    def tell(self, *events: pb.JobEvent) -> None:
        """Something happens."""
        self.events += events
        self._moved.set()

    def succeed(self) -> None:
        """Another controller leads, with the same jobs."""
        self.life += 1
        self.forecasts.clear()
        self._moved.set()

    async def call(self, method: Method[Any, Any], request: Any, _caller: Caller) -> Any:
        if self.refuse is not None:
            raise self.refuse
        if method.name == "JobFeed":
            return await self._feed(request)
        if method.name == "SetForecasts":
            if self.refuse_forecasts is not None:
                raise self.refuse_forecasts
            if len(request.forecasts) > FORECASTS_MAX:
                raise ApiError(Status.INVALID_ARGUMENT, "too many in one message")
            self.sent.append(request)
            self.forecasts.update({one.job_id: one.forecast for one in request.forecasts})
            return pb.ChangeReply()
        return pb.PingReply(now_us=wall_us())

    async def _feed(self, request: pb.JobFeedRequest) -> pb.JobFeedReply:
        at = request.cursor & (1 << LIFE_BITS) - 1
        anew = request.cursor >> LIFE_BITS != self.life
        if anew:
            at = 0
            self.begun += 1
        elif at >= len(self.events) and request.wait_ms:
            self._moved.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(request.wait_ms / 1000):
                    await self._moved.wait()
            if request.cursor >> LIFE_BITS != self.life:
                return await self._feed(request)
        events = self.events[at : at + min(request.events_max, self.page_max)]
        return pb.JobFeedReply(events=events, next=self.life << LIFE_BITS | at + len(events), from_start=anew)


UNAVAILABLE = ApiError(Status.UNAVAILABLE, "it starts")


@asynccontextmanager
async def unix_door(
    controller: Controller, path: Path, *, operator: bool = True
) -> AsyncIterator[UnixServer]:
    """The controller behind a socket."""
    principals = Principals(lookup=lambda uid, gid: Principal("me", uid, gid, (gid,)))
    one = UnixServer(
        path,
        Authoriser(controller, lambda _principal: Level.OPERATOR if operator else Level.USER),
        principals,
    )
    await one.start()
    try:
        yield one
    finally:
        await one.stop()
        principals.close()


class Pupil:
    """An `Estimator` that remembers what it was told and answers `seconds`; set `wrong` to make a method raise."""

    name = "pupil"

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.asked: list[tuple[int, int]] = []
        self.batches: list[int] = []
        self.seconds = 100
        self.wrong: dict[str, BaseException] = {}
        self.lessons: list[Lesson] = []
        self.models: list[Model] = []
        self.started_at: dict[int, int] = {}

    def _maybe_wrong(self, method: str) -> None:
        if method in self.wrong:
            raise self.wrong[method]

    def submitted(self, job: Submitted) -> None:
        self._maybe_wrong("submitted")
        self.told.append(("submitted", job))

    def started(self, job_id: int, at_s: int) -> None:
        self.told.append(("started", job_id, at_s))
        self.started_at[job_id] = at_s

    def ended(self, job_id: int, at_s: int, runtime_s: int) -> None:
        self.told.append(("ended", job_id, at_s, runtime_s))
        self.started_at.pop(job_id, None)

    def ask(self, job_id: int, at_s: int) -> tuple[int, int]:
        self.asked.append((job_id, at_s))
        return job_id, at_s

    def answer(self, questions: Sequence[tuple[int, int]]) -> list[Forecast]:
        self._maybe_wrong("answer")
        self.batches.append(len(questions))
        return [
            exactly(max(self.seconds, at_s - self.started_at.get(job_id, at_s) + 1))
            for job_id, at_s in questions
        ]

    def due(self, at_s: int) -> bool:
        return bool(self.lessons)

    def settle(self, at_s: int) -> None:
        self._maybe_wrong("settle")

    def lesson(self, at_s: int) -> Lesson | None:
        return self.lessons.pop(0) if self.lessons else None

    def adopt(self, model: Model) -> None:
        self._maybe_wrong("adopt")
        if "seconds" not in model.arrays:
            raise ValueError("a model of another kind")
        self.models.append(model)
        self.seconds = int(model.arrays["seconds"][0])


def model_of(seconds: int) -> Model:
    """A model that a `Pupil` can learn."""
    return Model({"seconds": np.array([seconds])}, {"features": [], "window_jobs": 1, "learnt_at_s": 1})
