"""Queries about broadcast trees: kept traces (`esctl broadcast`) and scores of predictions (`esctl tree report`)."""

from __future__ import annotations

from collections.abc import Callable

from esctld.lead.failure_prediction import FailurePrediction
from eslurm.core.dispatch.broadcaster import Broadcaster
from eslurm.core.dispatch.inflight import Answered
from eslurm.core.model.hostlist import fold
from eslurm.core.prediction.score import UNION, PredictorScore, Share
from eslurm.core.relay.results import Status
from eslurm.core.relay.trace import ROOT
from eslurm.core.state.cluster import State
from eslurm.telemetry.clocks import wall_us
from eslurm.v1 import controller_pb2 as pb

CONTROLLER = "controller"


class TreeQueries:
    """Queries of the API. `satellite_name` knows the satellites' numbers."""

    def __init__(
        self,
        state: State,
        broadcaster: Broadcaster,
        predictions: FailurePrediction,
        satellite_name: Callable[[int], str],
    ) -> None:
        self._state = state
        self._broadcaster = broadcaster
        self._predictions = predictions
        self._satellite_name = satellite_name

    # ---- broadcasts ----

    def broadcasts(self, request: pb.BroadcastsRequest) -> pb.BroadcastsReply:
        """Kept traces, newest first."""
        kept = [
            one
            for one in self._broadcaster.traces()
            if request.id in (0, one.broadcast_id) and request.kind in ("", one.kind)
        ]
        chosen = kept[: request.limit or 1]
        return pb.BroadcastsReply(
            broadcasts=[self._broadcast(one, with_tree=request.with_tree) for one in chosen],
            now_us=wall_us(),
        )

    def _broadcast(self, one: Answered, *, with_tree: bool) -> pb.BroadcastInfo:
        unreached = one.results.nodes(Status.UNREACHED)
        info = pb.BroadcastInfo(
            id=one.broadcast_id,
            kind=one.kind,
            started_us=one.started_us,
            took_us=one.took_us,
            nodes=len(one.nodes),
            ok=one.results.count(Status.OK),
            failed=one.results.count(Status.FAILED),
            unreached=len(unreached),
            predicted=len(one.predicted),
            width=one.width,
            grouping=one.grouping,
            satellites=[self._satellite_name(number) for number in one.satellites],
            reallocations=one.reallocations,
            takeovers=one.takeovers,
            unreached_nodes=fold(self._state.node_names(unreached)),
        )
        if with_tree and one.trace is not None:
            info.levels.extend(
                pb.BroadcastLevel(
                    hop=level.hop,
                    sends=level.sends,
                    acked_mean_us=level.acked_sum_us // max(1, level.sends),
                    acked_max_us=level.acked_max_us,
                    done_max_us=level.done_max_us,
                    adopted=level.adopted,
                )
                for level in one.trace.levels
            )
            info.spans.extend(
                pb.BroadcastSpan(
                    parent=self._name(span.parent),
                    child=self._name(span.child),
                    hop=span.hop,
                    nodes=span.nodes,
                    acked_us=span.acked_us,
                    done_us=span.done_us,
                    how=span.how,
                )
                for span in one.trace.spans
            )
            info.spans_omitted = one.trace.omitted
        return info

    def _name(self, number: int) -> str:
        if number == ROOT:
            return CONTROLLER
        if number < 0:
            return self._satellite_name(number)
        node = self._state.nodes.get(number)
        return node.name if node is not None else f"node {number}"

    # ---- predictions ----

    def report(self) -> pb.TreeReportReply:
        """Scores of failure predictions over the last day, and their gain."""
        config = self._state.config
        report = self._predictions.report()
        scores = {score.name: score for score in report.window.predictors}
        states = {UNION: "on", **self._predictions.states()}
        predicted = self._predictions.predicted()
        return pb.TreeReportReply(
            predictors=[
                _predictor(name, state, predicted.get(name, 0), scores.get(name))
                for name, state in states.items()
            ],
            broadcasts=report.window.broadcasts,
            failed_nodes=report.window.failed_nodes,
            since_us=report.window.since_us,
            now_us=report.now_us,
            grouping=config.relay_grouping,
            width=config.relay_width,
            widths=[
                pb.WidthScore(
                    nodes_up_to=one.nodes_up_to,
                    width=one.width,
                    median_us=one.median_us,
                    samples=one.samples,
                    chosen=one.chosen,
                )
                for one in self._broadcaster.widths()
            ],
        )


def _predictor(name: str, state: str, predicted: int, score: PredictorScore | None) -> pb.PredictorReport:
    found = pb.PredictorReport(name=name, state=state, predicted_now=predicted)
    if score is not None:
        found.precision.CopyFrom(_share(score.precision))
        found.recall.CopyFrom(_share(score.recall))
        found.recall_new.CopyFrom(_share(score.recall_new))
        found.leaf_share.CopyFrom(_share(score.leaf_share))
        found.random_leaf_share = score.random_leaf_share or 0.0
        found.lift = score.lift or 0.0
    return found


def _share(share: Share) -> pb.Share:
    return pb.Share(value=share.value or 0.0, low=share.low or 0.0, high=share.high or 0.0, of=share.of)
