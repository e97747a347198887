"""The forecaster reports job events to the estimator, asks it for forecasts, and sends the changed ones.

All questions of one part of the events are answered together. Invariant: an error of the estimator, wherever it is raised,
costs its forecasts and nothing else: it is discarded, the process goes on, and after a while a new one gets a full replay.
Errors are logged by their kind and place: their texts may hold users' words, and are for debugging only.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from esestd.follower import News
from esestd.live_jobs import LiveJob, LiveJobs, Scores
from esestd.sender import Sender
from esestd.trainer import Learnt, Trainer
from eslurm.core.model.forecast import LONGEST_S, Forecast, Submitted
from eslurm.estimator.session import Session, tell_limit
from eslurm.ports.estimator import Estimator, Lesson, Model
from eslurm.telemetry.estimator import EstimatorMetrics
from eslurm.v1 import controller_pb2 as pb

log = logging.getLogger("esestd")

SLICE: Final = 256
"""Events or questions between two looks at what else there is to do."""
ASKED_PER_TICK_MAX: Final = 4_096
BROKEN_S: Final = 300
LESSON_AGAIN_S: Final = 300
LESSON_AGAIN_MAX_S: Final = 6 * 3600
CLOCK_BACK_S: Final = 60
"""After a larger step back of the clock, events with a time in the future would hold up all that follow."""

Kind = pb.JobEvent.Kind


class Forecaster:
    """Drives one estimator after another. Everything is called on the event loop.

    `make` gives an estimator with the models of earlier ones; `keep` stores a fresh model; `wall_s` is the time.
    """

    def __init__(
        self,
        make: Callable[[], Estimator],
        sender: Sender,
        metrics: EstimatorMetrics,
        refresh_s: float,
        wall_s: Callable[[], float],
        keep: Callable[[Model, dict[str, float]], None],
        begin_anew: Callable[[], None],
    ) -> None:
        self._make = make
        self._sender = sender
        self._metrics = metrics
        self._refresh_s = refresh_s
        self._wall_s = wall_s
        self._keep = keep
        self._begin_anew = begin_anew
        self._live_jobs = LiveJobs()
        self._scores = Scores()
        self._session: Session[LiveJob] | None = None
        self._novice: Estimator | None = None
        """One that is still being told what was before."""
        self._told_s = 0
        self._ticked_s = 0.0
        self._broken_until_s: float | None = None
        self._trainer = Trainer(self._on_learnt)
        self._pupil: Session[LiveJob] | None = None
        """The session of the lesson that is under way."""
        self._lesson: Lesson | None = None
        """The last one that was begun."""
        self._next_lesson: Lesson | None = None
        self._lesson_again_at_s: float | None = None
        self._lesson_again_s = LESSON_AGAIN_S

    @property
    def is_answering(self) -> bool:
        """True when an estimator has all events and gives forecasts."""
        return self._session is not None

    @property
    def is_learning(self) -> bool:
        """True while a lesson is under way on its thread."""
        return self._trainer.busy

    def take(self, news: News) -> Iterator[None]:
        """Process events, a slice at a time."""
        if news.anew:
            self._begin()
        if self._novice is not None:
            yield from self._tell_story(self._novice, news)
        elif self._session is not None:
            yield from self._go_on(self._session, news.events)
        self._metrics.jobs.set(len(self._live_jobs))
        if news.events and not news.more:
            self._metrics.feed_lag_s.set(max(0.0, self._wall_s() - news.events[-1].at_us / 1e6))

    def tick(self) -> Iterator[None]:
        """Do what is due: upkeep, lessons, and old forecasts; a slice at a time."""
        self._look_at_clock()
        session = self._session
        if session is None:
            return
        now_s = self._now_s()
        with self._surviving():
            lesson = self._lesson
            if (
                lesson is not None
                and self._lesson_again_at_s is not None
                and now_s >= self._lesson_again_at_s
            ):
                self._lesson_again_at_s = None
                session.again(lesson, now_s)
            session.tick(now_s)
        due = self._live_jobs.due(now_s, self._refresh_s, ASKED_PER_TICK_MAX)
        yield from self._ask_all(session, due)

    def _look_at_clock(self) -> None:
        """Begin anew after the pause that follows a failure, or when the clock was set back."""
        before_s, self._ticked_s = self._ticked_s, self._wall_s()
        was_set_back = self._ticked_s < before_s - CLOCK_BACK_S
        if was_set_back:
            log.warning("the clock was set back by %d s: all jobs are replayed", before_s - self._ticked_s)
        if was_set_back or (self._broken_until_s is not None and self._ticked_s >= self._broken_until_s):
            self._broken_until_s = None
            self._begin_anew()

    # ---- the story ----

    def _begin(self) -> None:
        """Make a new estimator, which gets a full replay before questions."""
        self._put_aside()
        self._broken_until_s = None
        with self._surviving():
            self._novice = self._make()

    def _tell_story(self, novice: Estimator, news: News) -> Iterator[None]:
        """Report ended jobs without a session's upkeep in between: they raise no questions."""
        for at in range(0, len(news.events), SLICE):
            with self._surviving():
                for event in news.events[at : at + SLICE]:
                    self._tell(novice, event)
            if self._novice is not novice:
                return
            yield
        if not news.more:
            self._novice = None
            yield from self._begin_session(novice)

    def _begin_session(self, estimator: Estimator) -> Iterator[None]:
        """Ask about all live jobs."""
        log.info("%d jobs live", len(self._live_jobs))
        session: Session[LiveJob] = Session(estimator, self._deliver, teach=self._teach)
        self._session = session
        self._lesson_again_at_s = None
        self._metrics.answering.set(1)
        with self._surviving():
            session.tick(self._now_s())
        yield from self._ask_all(session, list(self._live_jobs))

    def _go_on(self, session: Session[LiveJob], events: Sequence[Any]) -> Iterator[None]:
        over = {event.job_id for event in events if event.kind == Kind.ENDED}
        for at in range(0, len(events), SLICE):
            with self._surviving():
                for event in events[at : at + SLICE]:
                    known = self._tell(session, event)
                    if known is not None and not (event.kind == Kind.STARTED and event.job_id in over):
                        # As of then: news may be late, and what follows must not come to lie before the question.
                        self._ask(session, known, self._told_s)
            yield
            if session is not self._session:
                return
        with self._surviving():
            session.flush()

    def _tell(self, pupil: Estimator | Session[LiveJob], event: Any) -> LiveJob | None:
        """Report one event; returns the job when it is worth asking about now. Nonsense is skipped."""
        at_s = self._told_s = max(self._told_s, event.at_us // 1_000_000)
        known = self._live_jobs.find(event.job_id)
        if event.kind == Kind.CHANGED and known is not None and known.runs_since_s is not None:
            # Of what runs, nothing else can be changed.
            _tell_limit(pupil, event.job_id, at_s, event.job.limit_s)
            return known
        if event.kind in (Kind.SUBMITTED, Kind.CHANGED):
            if known is not None:
                pupil.ended(event.job_id, at_s, 0)
            return self._submitted(pupil, described(event, at_s))
        if known is None:
            return None
        if event.kind == Kind.STARTED:
            pupil.started(event.job_id, at_s)
            self._live_jobs.started(known, at_s)
            return known
        if event.kind == Kind.REQUEUED:
            # What was begun is no run to learn from: it comes as if it had just been submitted.
            pupil.ended(event.job_id, at_s, 0)
            return self._submitted(pupil, msgspec.structs.replace(known.job, at_s=at_s))
        if event.kind == Kind.ENDED:
            pupil.ended(event.job_id, at_s, event.runtime_s)
            self._live_jobs.ended(known, at_s, event.runtime_s)
            self._sender.drop(event.job_id)
            self._score(known)
        return None

    def _submitted(self, pupil: Estimator | Session[LiveJob], job: Submitted) -> LiveJob:
        pupil.submitted(job)
        return self._live_jobs.submitted(job)

    # ---- questions ----

    def _ask_all(self, session: Session[LiveJob], jobs: Sequence[LiveJob]) -> Iterator[None]:
        for at in range(0, len(jobs), SLICE):
            if session is not self._session:
                return
            with self._surviving():
                for known in jobs[at : at + SLICE]:
                    if self._live_jobs.find(known.job.job_id) is known:
                        self._ask(session, known, self._now_s())
            yield
        if session is self._session:
            with self._surviving():
                session.flush()

    def _ask(self, session: Session[LiveJob], known: LiveJob, at_s: int) -> None:
        session.ask(known, known.job.job_id, at_s)
        self._live_jobs.asked(known, at_s)

    def _deliver(self, answers: Iterable[tuple[LiveJob, Forecast]]) -> None:
        for known, forecast in answers:
            is_first = not known.first_s
            if self._live_jobs.answered(known, forecast):
                self._sender.put(known.job.job_id, bounded(forecast))
            if is_first:
                # It may have ended before its first question was answered.
                self._score(known)

    def _score(self, known: LiveJob) -> None:
        if known.first_s and known.ran_s:
            self._scores.add(known.first_s, known.ran_s)
            scores = self._scores.as_dict()
            self._metrics.accuracy.set(scores["aea"])
            self._metrics.under.set(scores["under"])

    def _now_s(self) -> int:
        """The time, never before the last event: the controller's clock may be ahead of this one."""
        self._told_s = max(self._told_s, int(self._wall_s()))
        return self._told_s

    # ---- lessons ----

    def _teach(self, lesson: Lesson) -> None:
        if self._trainer.busy:
            # Of an estimator before this one; its thread cannot be stopped.
            self._next_lesson = lesson
            return
        self._pupil, self._lesson = self._session, lesson
        self._trainer.teach(lesson)

    def _on_learnt(self, learnt: Learnt) -> None:
        self._metrics.training_cpu_s.inc(learnt.cpu_s)
        pupil, self._pupil = self._pupil, None
        if pupil is not None and pupil is self._session:
            with self._surviving():
                self._graduate(pupil, learnt)
        lesson, self._next_lesson = self._next_lesson, None
        if lesson is not None and self._session is not None and self._session.learning:
            self._teach(lesson)

    def _graduate(self, session: Session[LiveJob], learnt: Learnt) -> None:
        model, error = learnt.model, learnt.error
        if model is not None:
            session.flush()
            try:
                session.adopt(model)
            except ValueError as refusal:
                error = refusal
        if model is None or error is not None:
            self._metrics.trainings_failed.inc()
            log.warning(
                "a training failed: %s; the former model stays, the next try is in %d s",
                told(error),
                self._lesson_again_s,
            )
            log.debug("a training failed", exc_info=error)
            self._lesson_again_at_s = self._now_s() + self._lesson_again_s
            self._lesson_again_s = min(2 * self._lesson_again_s, LESSON_AGAIN_MAX_S)
            return
        self._lesson, self._lesson_again_s = None, LESSON_AGAIN_S
        self._metrics.trainings.inc()
        self._metrics.learnt()
        self._live_jobs.renew(self._now_s())
        log.info("trained within %.1f s of CPU time", learnt.cpu_s)
        self._keep(model, self._scores.as_dict())

    # ---- errors ----

    def _put_aside(self) -> None:
        """Discard the estimator and all knowledge of jobs."""
        self._session = self._novice = None
        self._lesson = self._next_lesson = None
        self._live_jobs, self._told_s = LiveJobs(), 0
        self._sender.clear()
        self._metrics.answering.set(0)

    @contextmanager
    def _surviving(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            log.warning(
                "the estimator failed: %s; no forecasts until another try in %d s", told(error), BROKEN_S
            )
            log.debug("the estimator failed", exc_info=error)
            self._put_aside()
            self._broken_until_s = self._wall_s() + BROKEN_S


def _tell_limit(pupil: Estimator | Session[LiveJob], job_id: int, at_s: int, limit_s: int) -> None:
    if isinstance(pupil, Session):
        pupil.limit_changed(job_id, at_s, limit_s)
    else:
        tell_limit(pupil, job_id, at_s, limit_s)


def described(event: Any, at_s: int) -> Submitted:
    """The job of an event in the estimator port's form."""
    job = event.job
    return Submitted(
        event.job_id,
        at_s,
        job.user,
        job.group,
        job.account,
        job.name,
        job.command,
        job.partition,
        job.nodes,
        job.cores,
        job.memory_mib,
        job.limit_s,
    )


def bounded(forecast: Forecast) -> Forecast:
    """A forecast within the controller's bounds: one bad number costs all forecasts of the message."""
    if max(forecast.p90_s, forecast.estimate_s) <= LONGEST_S:
        return forecast
    spans = (forecast.p10_s, forecast.p50_s, forecast.p90_s, forecast.estimate_s)
    return Forecast(*(min(seconds, LONGEST_S) for seconds in spans))


def told(error: BaseException | None) -> str:
    """The kind and place of an error, without its text."""
    if error is None:
        return "no model"
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{where}"
