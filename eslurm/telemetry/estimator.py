"""The estimator's metrics, by Prometheus' naming conventions. Without labels that users could fill."""

from __future__ import annotations

from collections.abc import Callable
from math import nan

from prometheus_client import CollectorRegistry, Counter, Gauge

from eslurm.telemetry.exposition import Described


class EstimatorMetrics:
    """One instance per `esestd`, on a registry of its own. `now_s` is the wall clock in seconds."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.registry = CollectorRegistry()
        self.described: list[Described] = []
        self._now_s = now_s
        self._learnt_at_s: float | None = None
        self.sent = self._counter("eslurm_estimator_forecasts_sent", "Forecasts that the controller took.")
        self.unsent = self._gauge("eslurm_estimator_forecasts_waiting", "Forecasts that wait to be sent.")
        self.jobs = self._gauge("eslurm_estimator_jobs", "Jobs known that have not ended.")
        self.trainings = self._counter("eslurm_estimator_trainings", "Trainings that gave a model.")
        self.trainings_failed = self._counter("eslurm_estimator_trainings_failed", "Trainings that failed.")
        self.training_cpu_s = self._counter(
            "eslurm_estimator_training_cpu_seconds", "CPU time of all trainings."
        )
        self.answering = self._gauge(
            "eslurm_estimator_answering", "Whether there are forecasts: 0 after an error."
        )
        self.accuracy = self._gauge(
            "eslurm_estimator_accuracy_ratio",
            "Average estimation accuracy of first estimates, over the last 1,000 ended jobs.",
        )
        self.under = self._gauge(
            "eslurm_estimator_underestimated_ratio", "Share of them that ran longer than first estimated."
        )
        self.feed_lag_s = self._gauge(
            "eslurm_estimator_feed_lag_seconds", "Age of the newest event when it came."
        )
        self.model_age_s = self._gauge(
            "eslurm_estimator_model_age_seconds",
            "Time since the model in use was learnt here; not a number before the first.",
        )
        self.model_age_s.set_function(self._model_age_s)

    def learnt(self) -> None:
        """A model was learnt just now."""
        self._learnt_at_s = self._now_s()

    def _model_age_s(self) -> float:
        return nan if self._learnt_at_s is None else self._now_s() - self._learnt_at_s

    def _counter(self, name: str, text: str) -> Counter:
        self.described.append(Described(f"{name}_total", "counter", text))
        return Counter(name, text, registry=self.registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        self.described.append(Described(name, "gauge", text))
        return Gauge(name, text, registry=self.registry)
