"""The controller's metrics, by Prometheus' naming conventions. Labels are bounded: never ids or users' words."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)


class ControllerMetrics:
    """One instance per controller, on a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.inbox = Gauge("eslurm_inbox_messages", "Messages waiting to be decided.", registry=self.registry)
        self.stall = Histogram(
            "eslurm_dispatcher_stall_seconds",
            "How long deciding one batch held the event loop.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.commit = Histogram(
            "eslurm_commit_seconds",
            "Time until a batch was durable.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.plan = Histogram(
            "eslurm_plan_seconds", "CPU time of one planning cycle.", buckets=_SECONDS, registry=self.registry
        )
        self.facts = Counter("eslurm_facts_committed", "Facts made durable.", registry=self.registry)
        self.refused_full = Counter(
            "eslurm_requests_refused_full",
            "Requests refused because too many waited.",
            registry=self.registry,
        )
        self.refused_limits = Counter(
            "eslurm_requests_refused_limits",
            "Requests refused because of a limit on users or on all, by limit.",
            ["limit"],
            registry=self.registry,
        )
        self.jobs = Gauge("eslurm_jobs", "Jobs in memory by state.", ["state"], registry=self.registry)
        self.nodes = Gauge("eslurm_nodes", "Nodes by state.", ["state"], registry=self.registry)
        self.satellites = Gauge(
            "eslurm_satellites", "Satellites by state.", ["state"], registry=self.registry
        )
        self.broadcasts_waiting = Gauge(
            "eslurm_broadcasts_waiting", "Broadcasts that wait for a satellite.", registry=self.registry
        )
        self.suspects = Counter(
            "eslurm_broadcast_suspects",
            "Children that did not serve their list while the controller watched them.",
            registry=self.registry,
        )
        self.unreached = Counter(
            "eslurm_broadcast_unreached_nodes",
            "Nodes that a broadcast did not reach.",
            ["kind"],
            registry=self.registry,
        )
        self.reallocations = Counter(
            "eslurm_broadcast_reallocations",
            "Shares of a failed satellite given to another one.",
            registry=self.registry,
        )
        self.takeovers = Counter(
            "eslurm_broadcast_takeovers",
            "Shares that the controller sent itself for want of a satellite.",
            registry=self.registry,
        )
        self.predicted = Gauge(
            "eslurm_predicted_nodes", "Nodes predicted to fail.", ["predictor"], registry=self.registry
        )
        self.precision = Gauge(
            "eslurm_prediction_precision_ratio",
            "Share of the predicted nodes that did fail, over a day.",
            ["predictor"],
            registry=self.registry,
        )
        self.recall = Gauge(
            "eslurm_prediction_recall_ratio",
            "Share of the failed nodes that were predicted, over a day.",
            ["predictor"],
            registry=self.registry,
        )
        self.leaf_share = Gauge(
            "eslurm_prediction_leaf_ratio",
            "Share of the failed nodes that were on leaves, over a day.",
            ["predictor"],
            registry=self.registry,
        )
        self.lift = Gauge(
            "eslurm_prediction_lift_ratio",
            "That share over what random places would have given.",
            ["predictor"],
            registry=self.registry,
        )
        self.broadcast = Histogram(
            "eslurm_broadcast_seconds",
            "Time until a broadcast's outcome was known.",
            ["kind"],
            buckets=_SECONDS,
            registry=self.registry,
        )
