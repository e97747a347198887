"""The controller's metrics, by Prometheus' naming conventions: what is counted as it happens.

`esctld.lead.state_metrics` has what is looked at now and then, such as the queue. Labels are bounded: never ids or users'
words.
"""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from eslurm.core.model.retry_words import CAUSES
from eslurm.telemetry.exposition import Described

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
_WAITS = (0.1, 1.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 12 * 3600.0, 86_400.0, 7 * 86_400.0)
_PHASES = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)
NODE_PHASES = {"prolog": "node_prolog", "epilog": "node_epilog"}
"""The label of each phase of a node."""
CONTROLLER_PHASES = {"prolog": "controller_prolog", "epilog": "controller_epilog"}
"""The label of each phase on the controller's host."""
PHASE_LABELS = (*NODE_PHASES.values(), *CONTROLLER_PHASES.values(), "gateways")
"""All phases of jobs that are measured here; of gateways, failures only."""
LEVELS_MAX = 8
"""Trees are shallow: five levels of width 32 hold more nodes than there are."""


class ControllerMetrics:
    """One instance per controller process, on a registry of its own. `described` is what the reference shows."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.described: list[Described] = []
        self._build_core()
        self._build_jobs()
        self._build_phases()
        self._build_broadcasts()
        self._build_predictions()

    def _build_core(self) -> None:
        self.stall = self._histogram(
            "eslurm_dispatcher_stall_seconds", "How long deciding one batch held the event loop.", _SECONDS
        )
        self.commit = self._histogram("eslurm_commit_seconds", "Time until a batch was durable.", _SECONDS)
        self.plan = self._histogram("eslurm_plan_seconds", "CPU time of one planning cycle.", _SECONDS)
        self.broken_promises = self._counter(
            "eslurm_promises_broken", "Planned starts that this controller, as a new leader, could not keep."
        )
        self.facts = self._counter("eslurm_facts_committed", "Facts made durable.")
        self.refused_full = self._counter(
            "eslurm_requests_refused_full", "Requests refused because too many waited."
        )
        self.calls = self._counter(
            "eslurm_calls",
            "Calls of commands and programs, by the way in: a controller's socket, an agent's, a login "
            "host's, or with a token.",
            ["door"],
        )
        self.audit_written = self._counter("eslurm_audit_lines_written", "Lines written to the audit log.")
        self.audit_lost = self._counter(
            "eslurm_audit_lines_lost",
            "Lines of the audit log that could not be written or found no room to wait.",
        )
        self.foreign_words = self._counter(
            "eslurm_foreign_words",
            "Reports and calls that hosts sent for nodes that their memberships do not name: refused.",
        )
        self.refused_limits = self._counter(
            "eslurm_requests_refused_limits",
            "Requests refused because of a limit on users or on all, by limit.",
            ["limit"],
        )

    def _build_jobs(self) -> None:
        self.submitted = self._counter("eslurm_jobs_submitted", "Jobs accepted; an array is one.")
        self.refused = self._counter(
            "eslurm_submissions_refused",
            "Submissions that were refused, by kind of refusal; those over a limit of requests are not among them.",
            ["reason"],
        )
        self.started = self._counter("eslurm_attempts_started", "Attempts whose script began.")
        self.wait = self._histogram(
            "eslurm_job_wait_seconds", "Time from a job's submission to the begin of its script.", _WAITS
        )
        self.mails = self._counter(
            "eslurm_mails",
            "Messages about jobs by their end: sent, refused, failed (they are tried again), or given up.",
            ["end"],
        )
        self.ended = self._counter(
            "eslurm_attempts_ended", "Attempts that ended, by what became of the job.", ["outcome"]
        )
        self.retries = self._counter(
            "eslurm_retries", "Attempts that were followed by a retry (--retry-on), by cause.", ["cause"]
        )
        for cause in CAUSES:
            # The first retry is an increase only after a 0.
            self.retries.labels(cause)
        self.finished_waiting = self._counter(
            "eslurm_jobs_ended_waiting", "Jobs that ended without a live attempt, by state.", ["state"]
        )
        self.node_moves = self._counter(
            "eslurm_node_transitions", "Changes of nodes' states, by the new one.", ["state"]
        )
        self.forecasts = self._counter(
            "eslurm_forecasts_taken", "Forecasts of the estimator that were taken."
        )
        self.forecast_at = self._gauge(
            "eslurm_forecast_last_timestamp_seconds",
            "When the last forecast came, since the epoch; 0 when none came since this controller began.",
        )

    def _build_phases(self) -> None:
        self.phase_seconds = self._histogram(
            "eslurm_phase_seconds",
            "How long prologs and epilogs ran, on each node and on the controller's host, those that failed included.",
            _PHASES,
            ["phase"],
        )
        self.phase_failures = self._counter(
            "eslurm_phase_failures",
            "Phases of jobs that failed: prologs and epilogs on a node or on the controller's host, and the start of a "
            "job's gateways.",
            ["phase"],
        )
        for phase in PHASE_LABELS:
            # The first failure is an increase only after a 0.
            self.phase_failures.labels(phase)

    def phase_ended(self, phase: str, took_us: int, *, is_good: bool = True) -> None:
        """Count the end of a phase; `took_us` 0: how long it ran is not known."""
        if took_us:
            self.phase_seconds.labels(phase).observe(took_us / 1e6)
        if not is_good:
            self.phase_failures.labels(phase).inc()

    def _build_broadcasts(self) -> None:
        self.broadcast = self._histogram(
            "eslurm_broadcast_seconds", "Time until a broadcast's outcome was known.", _SECONDS, ["kind"]
        )
        self.level = self._histogram(
            "eslurm_broadcast_level_seconds",
            "Of traced broadcasts: time until the slowest list of a level of the tree was done.",
            _SECONDS,
            ["kind", "level"],
        )
        self.acknowledged = self._histogram(
            "eslurm_broadcast_acknowledge_seconds",
            "Of traced broadcasts: mean time until the lists of a level were acknowledged.",
            _SECONDS,
            ["level"],
        )
        self.adopted = self._counter(
            "eslurm_broadcast_adopted_lists",
            "Of traced broadcasts: lists of suspects that their parents took over, by level.",
            ["level"],
        )
        self.suspects = self._counter(
            "eslurm_broadcast_suspects",
            "Children that did not serve their list while the controller watched them.",
        )
        self.unreached = self._counter(
            "eslurm_broadcast_unreached_nodes", "Nodes that a broadcast did not reach.", ["kind"]
        )
        self.reallocations = self._counter(
            "eslurm_broadcast_reallocations", "Shares of a failed satellite given to another one."
        )
        self.takeovers = self._counter(
            "eslurm_broadcast_takeovers", "Shares that the controller sent itself for want of a satellite."
        )

    def _build_predictions(self) -> None:
        self.predicted = self._gauge("eslurm_predicted_nodes", "Nodes predicted to fail.", ["predictor"])
        self.precision = self._gauge(
            "eslurm_prediction_precision_ratio",
            "Share of the predicted nodes that did fail, over a day.",
            ["predictor"],
        )
        self.recall = self._gauge(
            "eslurm_prediction_recall_ratio",
            "Share of the failed nodes that were predicted, over a day.",
            ["predictor"],
        )
        self.leaf_share = self._gauge(
            "eslurm_prediction_leaf_ratio",
            "Share of the failed nodes that were on leaves, over a day.",
            ["predictor"],
        )
        self.lift = self._gauge(
            "eslurm_prediction_lift_ratio",
            "That share over what random places would have given.",
            ["predictor"],
        )

    def _counter(self, name: str, text: str, labels: Sequence[str] = ()) -> Counter:
        self.described.append(Described(f"{name}_total", "counter", text, tuple(labels)))
        return Counter(name, text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
        self.described.append(Described(name, "gauge", text, tuple(labels)))
        return Gauge(name, text, labels, registry=self.registry)

    def _histogram(
        self, name: str, text: str, buckets: Sequence[float], labels: Sequence[str] = ()
    ) -> Histogram:
        self.described.append(Described(name, "histogram", text, tuple(labels)))
        return Histogram(name, text, labels, buckets=buckets, registry=self.registry)
