"""The forecaster by hand, with a clock of the test's own: what it tells an estimator and what it hands on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from esestd import forecaster as forecaster_module
from esestd.follower import News
from esestd.forecaster import Forecaster
from eslurm.core.model.forecast import LONGEST_S, Forecast, exactly
from eslurm.ports.estimator import Lesson, Model
from eslurm.telemetry.estimator import EstimatorMetrics
from tests.kits.esestd import (
    Pupil,
    changed,
    ended,
    model_of,
    requeued,
    started,
    submitted,
    until,
    whole_run,
)
from tests.support.loops import run

DAY_S = 86_400


class Outbox:
    """Stands for the sender."""

    def __init__(self) -> None:
        self.sent: dict[int, Forecast] = {}

    def put(self, job_id: int, forecast: Forecast) -> None:
        self.sent[job_id] = forecast

    def drop(self, job_id: int) -> None:
        self.sent.pop(job_id, None)

    def clear(self) -> None:
        self.sent.clear()


class Desk:
    """A forecaster at an instant that the test sets. Make it inside the running loop."""

    def __init__(self, *pupils: Pupil, at_s: float = DAY_S) -> None:
        self.at_s = at_s
        self.outbox = Outbox()
        self.metrics = EstimatorMetrics(lambda: self.at_s)
        self.begun_anew = 0
        left = list(pupils)
        sender: Any = self.outbox
        self.forecaster = Forecaster(
            lambda: left.pop(0),
            sender,
            self.metrics,
            300,
            lambda: self.at_s,
            lambda *_: None,
            self._begin_anew,
        )

    def _begin_anew(self) -> None:
        self.begun_anew += 1

    def take(self, *events: Any, anew: bool = False, more: bool = False) -> None:
        for _ in self.forecaster.take(News(anew, events, more)):
            pass

    def tick(self) -> None:
        for _ in self.forecaster.tick():
            pass

    def count(self, name: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"eslurm_estimator_{name}")


def scene(play: Callable[[], None]) -> None:
    async def inside_a_loop() -> None:
        play()

    run(inside_a_loop())


def test_a_story_may_end_with_an_empty_part() -> None:
    def play() -> None:
        desk = Desk(Pupil())
        desk.take(submitted(1, DAY_S - 9), anew=True, more=True)
        assert desk.outbox.sent == {}
        desk.take()
        assert desk.outbox.sent == {1: exactly(100)}

    scene(play)


def test_news_that_come_late_are_told_as_of_then() -> None:
    """It was stopped for an hour: a question of now would push all later events to now."""

    def play() -> None:
        pupil = Pupil()
        desk = Desk(pupil)
        desk.take(anew=True)
        desk.at_s += 3_600
        desk.take(
            submitted(1, DAY_S + 10),
            started(1, DAY_S + 20),
            submitted(2, DAY_S + 30),
            ended(1, DAY_S + 90, 70),
        )
        assert [one[-1].at_s if one[0] == "submitted" else one[2] for one in pupil.told] == [
            DAY_S + 10,
            DAY_S + 20,
            DAY_S + 30,
            DAY_S + 90,
        ]
        desk.take(started(2, DAY_S + 100))
        desk.tick()
        # It has run for most of an hour: what was said at its start is looked at again.
        assert desk.outbox.sent[2].estimate_s > 3_400

    scene(play)


def test_a_clock_that_is_set_back_begins_anew(caplog: pytest.LogCaptureFixture) -> None:
    def play() -> None:
        desk = Desk(Pupil(), Pupil())
        desk.take(submitted(1, DAY_S), anew=True)
        desk.tick()
        desk.at_s -= forecaster_module.CLOCK_BACK_S
        desk.tick()
        assert desk.begun_anew == 0
        desk.at_s -= 7_200
        desk.tick()
        desk.tick()
        assert desk.begun_anew == 1
        now_s = int(desk.at_s)
        desk.take(submitted(1, now_s - 5), started(1, now_s - 5), anew=True)
        assert desk.outbox.sent == {1: exactly(100)}
        desk.at_s += 150
        desk.tick()
        assert desk.outbox.sent[1].estimate_s == 156, "time goes on"

    scene(play)
    assert "the clock was set back by 7200 s" in caplog.text


def test_a_failure_is_over_although_the_clock_was_set_back() -> None:
    def play() -> None:
        pupil = Pupil()
        pupil.wrong["submitted"] = KeyError("ada")
        desk = Desk(pupil, Pupil())
        desk.take(submitted(1, DAY_S), anew=True)
        assert not desk.forecaster.is_answering
        desk.tick()
        desk.at_s -= 40_000
        desk.tick()
        assert desk.begun_anew == 1
        desk.take(submitted(1, DAY_S - 40_000), anew=True)
        assert desk.outbox.sent == {1: exactly(100)}

    scene(play)


def test_on_a_young_cluster_those_who_wait_gain_by_each_run_that_doubles_what_is_known() -> None:
    """Not every run: a thousand that wait would be asked about a thousand times."""

    def play() -> None:
        pupil = Pupil()
        desk = Desk(pupil)
        desk.take(submitted(99, DAY_S), anew=True)
        looked_at = []
        for number in range(1, 10):
            desk.at_s += 10
            now_s = int(desk.at_s)
            desk.take(submitted(number, now_s - 5), started(number, now_s - 5), ended(number, now_s, 5))
            pupil.seconds, before = 1_000 * number, len(pupil.asked)
            desk.at_s += 1
            desk.tick()
            if [job_id for job_id, _ in pupil.asked[before:]] == [99]:
                looked_at.append(number)
                assert desk.outbox.sent[99].estimate_s == 1_000 * number
        assert looked_at == [1, 2, 4, 8]

    scene(play)


def test_no_forecast_is_longer_than_the_controller_takes() -> None:
    class Endless(Pupil):
        def answer(self, questions: Sequence[tuple[int, int]]) -> list[Forecast]:
            return [Forecast(5, 10**12, 10**13, 10**14) for _ in questions]

    def play() -> None:
        desk = Desk(Endless())
        desk.take(submitted(1, DAY_S), anew=True)
        assert desk.outbox.sent == {1: Forecast(5, LONGEST_S, LONGEST_S, LONGEST_S)}

    scene(play)


def test_an_end_that_is_told_twice_or_of_nobody_is_passed_over() -> None:
    def play() -> None:
        pupil = Pupil()
        desk = Desk(pupil)
        desk.take(anew=True)
        desk.take(
            *whole_run(1, DAY_S - 50, 20),
            ended(1, DAY_S - 20, 20),
            ended(77, DAY_S - 10, 5),
            started(1, DAY_S),
        )
        assert [one[0] for one in pupil.told] == ["submitted", "started", "ended"]
        # A job of no seconds never ran: no score is made of it.
        desk.take(submitted(2, DAY_S), ended(2, DAY_S, 0))
        assert (desk.count("jobs"), desk.outbox.sent) == (0, {})
        assert desk.count("accuracy_ratio") == pytest.approx(0.2)

    scene(play)


def test_a_lesson_that_failed_is_learnt_again_although_the_estimator_has_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Estimators count a lesson as taken, and offer the next one after hours."""
    caplog.set_level(logging.INFO)
    tries: list[int] = []

    def lesson() -> Model:
        tries.append(1)
        if len(tries) < 3:
            raise MemoryError("for now")
        return model_of(7)

    async def scenario() -> None:
        pupil = Pupil()
        lessons: list[Lesson] = [lesson]
        pupil.lessons = lessons
        desk = Desk(pupil)
        desk.take(submitted(1, DAY_S), anew=True)
        for times in (1, 2):
            await until(lambda times=times: desk.count("trainings_failed_total") == times)  # type: ignore[misc]
            desk.tick()
            assert len(tries) == times
            desk.at_s += times * forecaster_module.LESSON_AGAIN_S
            desk.tick()
        await until(lambda: desk.count("trainings_total") == 1)
        desk.at_s += 1
        desk.tick()
        assert desk.outbox.sent == {1: exactly(7)}

    run(scenario())


class Heeding(Pupil):
    def limit_changed(self, job_id: int, at_s: int, limit_s: int) -> None:
        self.told.append(("limit", job_id, at_s, limit_s))


def test_a_new_limit_of_a_running_job_is_told_and_the_job_asked_about_again() -> None:
    def play() -> None:
        pupil = Heeding()
        desk = Desk(pupil)
        # In the story, too.
        desk.take(
            submitted(1, DAY_S - 90), started(1, DAY_S - 80), changed(1, DAY_S - 80, limit_s=60), anew=True
        )
        assert pupil.told[1:] == [("started", 1, DAY_S - 80), ("limit", 1, DAY_S - 80, 60)]
        pupil.seconds = 700
        desk.take(changed(1, DAY_S + 5, limit_s=7_200))
        assert pupil.told[-1] == ("limit", 1, DAY_S + 5, 7_200)
        assert pupil.asked[-1] == (1, DAY_S + 5)
        assert desk.outbox.sent[1] == exactly(700), "it still runs, and its forecast is sent"
        desk.take(ended(1, DAY_S + 20, 100))
        assert pupil.told[-1] == ("ended", 1, DAY_S + 20, 100)
        # While it waits, what it asks for is another job.
        desk.take(submitted(2, DAY_S + 30), changed(2, DAY_S + 40, limit_s=9))
        assert [one[0] for one in pupil.told[-3:]] == ["submitted", "ended", "submitted"]

    scene(play)


def test_an_estimator_that_heeds_no_limits_is_not_told_of_them() -> None:
    def play() -> None:
        pupil = Pupil()
        desk = Desk(pupil)
        desk.take(submitted(1, DAY_S), started(1, DAY_S), anew=True)
        desk.take(changed(1, DAY_S + 5, limit_s=7_200))
        assert [one[0] for one in pupil.told] == ["submitted", "started"]
        assert pupil.asked[-1] == (1, DAY_S + 5) and desk.outbox.sent[1] == exactly(100)

    scene(play)


def test_a_job_whose_limit_was_changed_asks_for_what_it_asked_for_when_it_waits_again() -> None:
    def play() -> None:
        pupil = Heeding()
        desk = Desk(pupil)
        desk.take(submitted(1, DAY_S), started(1, DAY_S), anew=True)
        desk.take(changed(1, DAY_S + 5, limit_s=7_200), requeued(1, DAY_S + 9))
        assert pupil.told[-1][1].limit_s == 3_600

    scene(play)
