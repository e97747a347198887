"""The call `Statistics`: the leader's counts of its term, for every user."""

from __future__ import annotations

from collections.abc import Callable

from esctld.lead.planner import Planner
from esctld.lead.statistics import CallCount, CycleCount, Statistics
from eslurm.api.methods import BY_NAME
from eslurm.core.control.privacy import USAGE, USERS, Visibility
from eslurm.core.dispatch.broadcaster import Broadcaster
from eslurm.core.state.view import View
from eslurm.ports.api import Caller
from eslurm.telemetry.clocks import wall_us
from eslurm.v1 import controller_pb2 as pb


class StatisticsAnswers:
    """Answers from the counts and from what is under way: `calls_open` and `depths` are asked at each call."""

    def __init__(
        self,
        counts: Statistics,
        view: View,
        planner: Planner,
        broadcaster: Broadcaster,
        calls_open: Callable[[], int],
        depths: Callable[[], dict[str, float]],
    ) -> None:
        self._counts = counts
        self._view = view
        self._planner = planner
        self._broadcaster = broadcaster
        self._calls_open = calls_open
        self._depths = depths

    async def call(self, request: pb.StatisticsRequest, caller: Caller) -> pb.StatisticsReply:
        """All counts. Where usage or users are private, others than operators see their own row of users alone."""
        counts, view, broadcaster = self._counts, self._view, self._broadcaster
        is_open = Visibility(view, caller.principal).is_open(USAGE, USERS)
        return pb.StatisticsReply(
            now_us=wall_us(),
            since_us=counts.since_us,
            calls_open=self._calls_open(),
            messages_waiting=int(sum(self._depths().values())),
            broadcasts_waiting=broadcaster.waiting,
            broadcasts_open=broadcaster.under_way,
            jobs_pending=view.pending_count,
            jobs_running=view.active_count,
            jobs_submitted=counts.submitted,
            attempts_started=counts.started,
            ended=[pb.StateCount(state=state, count=count) for state, count in sorted(counts.ended.items())],
            cycles=_cycles(counts.cycles, is_running=self._planner.is_planning),
            calls=[_calls(BY_NAME[name].number, row) for name, row in sorted(counts.by_method.items())],
            users=[
                _calls(uid, row)
                for uid, row in sorted(counts.by_user.items())
                if is_open or uid == caller.principal.uid
            ],
            users_skipped=counts.users_skipped if is_open else 0,
        )


def _calls(number: int, row: CallCount) -> pb.CallCounts:
    return pb.CallCounts(number=number, name=row.name, count=row.calls, spent_us=int(row.spent_s * 1e6))


def _cycles(counts: CycleCount, *, is_running: bool) -> pb.CycleCounts:
    return pb.CycleCounts(
        count=counts.cycles,
        is_running=is_running,
        last_at_us=counts.last_at_us,
        last_us=int(counts.last_s * 1e6),
        max_us=int(counts.max_s * 1e6),
        sum_us=int(counts.sum_s * 1e6),
        depth_last=counts.depth_last,
        depth_sum=counts.depth_sum,
        queue_last=counts.queue_last,
        queue_sum=counts.queue_sum,
        slots_last=counts.slots_last,
        slots_sum=counts.slots_sum,
        bounded=counts.bounded,
    )
