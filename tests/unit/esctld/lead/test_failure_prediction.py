"""Predictions beside the controller: answers in, predicted nodes out, scores for people; failing parts stop nothing."""

from __future__ import annotations

import logging
from importlib.metadata import EntryPoint

import pytest

from escli.admin.tree_report import report
from esctld.lead.failure_prediction import FailurePrediction
from esctld.lead.trees import TreeQueries
from eslurm.alerts import plugins
from eslurm.config.problems import ConfigError
from eslurm.config.sections import FailureSection
from eslurm.core.dispatch.inflight import Answered
from eslurm.core.prediction.predictor import FailurePredictor
from eslurm.core.relay.results import OK, from_mapping, unreached
from eslurm.core.state.cluster import State
from eslurm.telemetry.metrics import ControllerMetrics
from tests.kits.core import World

NODES = 40
NOW_US = 1_000_000_000


class Site:
    """A controller's foresight over `NODES` nodes, and what it told the broadcaster."""

    def __init__(self, *predictors: str, **settings: dict[str, object]) -> None:
        self.state: State = World(nodes=NODES).state
        self.predicted: list[frozenset[int]] = []
        self.now_us = NOW_US
        self.metrics = ControllerMetrics()
        self.predictions = FailurePrediction(
            FailureSection(predictors=list(predictors), settings=dict(settings)),
            self.state,
            self.metrics,
            self.predicted.append,
            lambda: self.now_us,
        )

    def answer(self, silent: set[int]) -> None:
        numbers = tuple(sorted(self.state.nodes))
        outcomes = {number: unreached("silent") if number in silent else OK for number in numbers}
        at_us, self.now_us = self.now_us, self.now_us + 1_000
        self.predictions.on_answered(
            Answered(
                broadcast_id=at_us,
                kind="heartbeat",
                started_us=at_us,
                waited_us=0,
                took_us=1_000,
                nodes=numbers,
                shares=(len(numbers),),
                predicted=self.predicted[-1] if self.predicted else frozenset(),
                results=from_mapping(outcomes),
                suspects=(),
                width=4,
                root_width=0,
                grouping="balanced",
            )
        )
        self.now_us += 5_000_000


def test_who_was_silent_is_predicted_and_scored_from_then_on() -> None:
    site = Site("history", "health", "alerts")
    doomed = set(sorted(site.state.nodes)[:2])
    site.answer(doomed)
    assert site.predicted[-1] == doomed
    site.answer(doomed)
    scores = {score.name: score for score in site.predictions.report().window.predictors}
    # Met twice, foreseen the second time; the alerts knew nothing.
    assert scores["union"].recall.value == 0.5
    assert scores["history"].precision.value == 1.0
    assert scores["alerts"].recall.value == 0.0
    assert site.predictions.predicted() == {"union": 2, "history": 2, "health": 0, "alerts": 0}
    counted = site.metrics.registry.get_sample_value(
        "eslurm_broadcast_unreached_nodes_total", {"kind": "heartbeat"}
    )
    assert counted == 4


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (
            FailureSection(predictors=["histroy"]),
            "failure.predictors: 'histroy' is unknown: use alerts, health",
        ),
        (FailureSection(predictors=["health", "health"]), "'health' is there twice"),
        (FailureSection(settings={"history": {"calm": 0}}), "failure.settings.history"),
        (FailureSection(settings={"alerts": {"qurey": "up"}}), "failure.settings.alerts"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_the_start(failure: FailureSection, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        FailurePrediction(failure, State("main"), ControllerMetrics(), lambda _: None, lambda: NOW_US)
    assert words in str(error.value)


class Broken:
    """A site's predictor that fails as soon as it is asked."""

    def observe(self, observation: object) -> None:
        pass

    def predict(self, now_us: int) -> set[int]:
        raise OSError("no sensor")


def broken(settings: object) -> FailurePredictor:
    """Its factory."""
    return Broken()


def test_a_sites_predictor_that_raises_is_switched_off_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    point = EntryPoint("sensor", f"{__name__}:broken", plugins.ENTRY_POINT_GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [point])
    monkeypatch.setattr(EntryPoint, "load", lambda self: broken)
    site = Site("history", "sensor")
    doomed = set(sorted(site.state.nodes)[:1])
    with caplog.at_level(logging.WARNING):
        for _ in range(1_000):
            site.answer(doomed)
            if site.predictions.states()["sensor"] != "on":
                break
    assert "no sensor" in site.predictions.states()["sensor"]
    assert "sensor" in caplog.text
    assert site.predicted[-1] == doomed


def test_people_see_the_union_first_and_what_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site("history")
    site.answer(set(sorted(site.state.nodes)[:1]))

    class Quiet:
        """A broadcaster that has measured nothing."""

        def traces(self) -> tuple[Answered, ...]:
            return ()

        def widths(self) -> list[object]:
            return []

    trees = TreeQueries(site.state, Quiet(), site.predictions, str)  # type: ignore[arg-type]
    lines = report(trees.report()).splitlines()
    assert lines[3].startswith("union")
    assert "1 failed nodes" in lines[0]
