"""Failure predictions beside the controller: predictors and their sources, the prediction of each broadcast, and scores.

Observes every broadcast's outcome, passes it to the predictors, scores them (E-34), and gives the broadcaster the union of
their predictions. Invariant: nothing here changes a node's state (E-26), and no failure here, be it a site's predictor or
Prometheus, delays a broadcast.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import lru_cache, partial

from prometheus_client import Counter

from eslurm.alerts.feeds import AlertSources
from eslurm.alerts.plugins import ThreadedPredictor, plugin
from eslurm.config.problems import ConfigError
from eslurm.config.sections import FailureSection
from eslurm.core.dispatch.inflight import Answered
from eslurm.core.model.units import SECOND_US
from eslurm.core.prediction.alerts import FiringAlerts
from eslurm.core.prediction.builtin import BUILT_IN, make_built_in
from eslurm.core.prediction.health import HealthReports
from eslurm.core.prediction.predictor import BroadcastSeen, FailurePredictor, NodesKnown
from eslurm.core.prediction.score import UNION, PredictorScore, Report, Scoreboard
from eslurm.core.prediction.union import NOTHING, Prediction, Predictors
from eslurm.core.relay.construct import TreeShape
from eslurm.core.relay.grouping import find_grouping
from eslurm.core.relay.results import Status
from eslurm.core.state.cluster import State
from eslurm.telemetry.metrics import ControllerMetrics

log = logging.getLogger("esctld.failure_prediction")

REFRESH_S = 1.0
GAUGES_EVERY = 5
PREDICTIONS_KEPT = 64
"""Enough for the broadcasts that are under way while predictions change."""


@lru_cache(maxsize=16)
def _shape(width: int, root_width: int, grouping: str) -> TreeShape:
    return TreeShape(width, root_width, find_grouping(grouping))


class FailurePrediction:
    """Made inside the running loop; a `core.dispatch.inflight.Observer`. Raises `ConfigError` that names the key."""

    def __init__(
        self,
        failure: FailureSection,
        state: State,
        metrics: ControllerMetrics,
        set_predicted: Callable[[frozenset[int]], None],
        now_us: Callable[[], int],
    ) -> None:
        self._state = state
        self._metrics = metrics
        self._set_predicted = set_predicted
        self._now_us = now_us
        self._config_revision = -1
        self._book = FiringAlerts()
        self._health = HealthReports()
        self._plugins: list[ThreadedPredictor] = []
        self._predictors = Predictors(lambda notice: log.warning("%s", notice))
        self._scores = Scoreboard(now_us())
        self._unreached: dict[str, Counter] = {}
        self._recent: deque[tuple[int, Prediction]] = deque(((0, NOTHING),), maxlen=PREDICTIONS_KEPT)
        for name in failure.predictors:
            try:
                self._predictors.add(name, self._make(name, failure))
            except ValueError as error:
                raise ConfigError(str(error)) from None
        self._feeds = AlertSources(failure, self._book, now_us)

    def _make(self, name: str, failure: FailureSection) -> FailurePredictor:
        settings = failure.settings.get(name, {})
        lost_us = int(self._state.config.node_lost_after_s * SECOND_US)
        # The table `alerts` is of the feeds that fill the book.
        own = {} if name == "alerts" else settings
        built_in = make_built_in(name, own, lost_us, self._book)
        if built_in is not None:
            return built_in
        made = plugin(
            name,
            settings,
            failure.plugin_timeout_s,
            log.warning,
            partial(self._predictors.switch_off, name),
            BUILT_IN,
        )
        self._plugins.append(made)
        return made

    # ---- life ----

    async def start(self) -> None:
        """Listen to the alert sources. Raises OSError when the webhook's address cannot be had."""
        # Before the first alert: one for an unknown node would be dropped.
        self._refresh()
        await self._feeds.start()

    async def run(self) -> None:
        """Keep predictions and gauges fresh until cancelled: alerts come at any time."""
        turn = 0
        while True:
            self._refresh()
            if turn % GAUGES_EVERY == 0:
                self._gauge()
            turn += 1
            await asyncio.sleep(REFRESH_S)

    async def close(self) -> None:
        """Close the sources, without waiting for a site's code."""
        for one in self._plugins:
            one.close()
        await self._feeds.close()

    # ---- broadcasts (Observer) ----

    def on_answered(self, answered: Answered) -> None:
        """Score the prediction of this broadcast, then learn from it."""
        now_us = answered.started_us + answered.took_us
        unreached = answered.results.nodes(Status.UNREACHED)
        self._count(answered, len(unreached))
        shape = _shape(answered.width, answered.root_width, answered.grouping)
        self._scores.record(
            now_us, answered.nodes, unreached, self._prediction_of(answered), shape, len(answered.shares)
        )
        suspects = [number for number in answered.suspects if number > 0]
        self._predictors.observe(BroadcastSeen(now_us, answered.nodes, unreached, suspects))
        if answered.kind == "heartbeat":
            health = self._health.on_answers(answered.results, now_us)
            if health is not None:
                self._predictors.observe(health)
        self._refresh()

    def _count(self, answered: Answered, unreached: int) -> None:
        """Count it; most broadcasts have nothing to count."""
        counted = self._unreached.get(answered.kind)
        if counted is None:
            counted = self._unreached[answered.kind] = self._metrics.unreached.labels(answered.kind)
        for counter, count in (
            (counted, unreached),
            (self._metrics.suspects, len(answered.suspects)),
            (self._metrics.reallocations, answered.reallocations),
            (self._metrics.takeovers, answered.takeovers),
        ):
            if count:
                counter.inc(count)

    def _prediction_of(self, answered: Answered) -> Prediction:
        """Each predictor's prediction when the broadcast was made."""
        made_us = answered.started_us - answered.waited_us
        for since_us, prediction in reversed(self._recent):
            if since_us <= made_us:
                return prediction
        return Prediction(answered.predicted)

    # ---- what is predicted now ----

    def _refresh(self) -> None:
        if self._config_revision != self._state.config_revision:
            self._config_revision = self._state.config_revision
            names = {number: node.name for number, node in self._state.nodes.items()}
            self._predictors.observe(NodesKnown(names))
            self._scores.keep_known(names)
            self._health.keep_known(names)
        now_us = self._now_us()
        prediction = self._predictors.predicted(now_us)
        if prediction is not self._recent[-1][1]:
            self._recent.append((now_us, prediction))
            self._set_predicted(prediction.all)

    # ---- for people and Prometheus ----

    def report(self) -> Report:
        """All scores, over a day and since the start."""
        return self._scores.report(self._now_us())

    def states(self) -> dict[str, str]:
        """By predictor `on`, or the reason why it is off."""
        return self._predictors.states()

    def problems(self) -> dict[int, tuple[str, ...]]:
        """Problems that nodes last reported of their hosts."""
        return self._health.problems()

    def predicted(self) -> dict[str, int]:
        """Number of nodes that each predictor and all together predict now."""
        now = self._recent[-1][1]
        return {UNION: len(now.all)} | {name: len(now.by_name.get(name, ())) for name in self.states()}

    def _gauge(self) -> None:
        metrics = self._metrics
        for name, count in self.predicted().items():
            metrics.predicted.labels(name).set(count)
        for score in self.report().window.predictors:
            self._gauge_score(score)

    def _gauge_score(self, score: PredictorScore) -> None:
        metrics = self._metrics
        for gauge, value in (
            (metrics.precision, score.precision.value),
            (metrics.recall, score.recall.value),
            (metrics.leaf_share, score.leaf_share.value),
            (metrics.lift, score.lift),
        ):
            if value is not None:
                gauge.labels(score.name).set(value)
