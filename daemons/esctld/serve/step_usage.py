"""The call `StepUsage`: what live steps of a job use now, as their nodes measure it when they are asked.

Invariants: a job's user and operators alone are answered, because the use tells what programs do; a call is about a bounded
number of steps and nodes, and so is what a user, and all of them together, may have asked at a time. A user's calls are
bounded in their rate, too: each costs the step supervisor of a node up to some tens of milliseconds.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping

from eslurm.api.limits import USERS_MAX, Budget
from eslurm.core.control.jobs.access import get_seen
from eslurm.core.control.rights import is_operator
from eslurm.core.model.hostlist import fold
from eslurm.core.model.job import Job, Principal
from eslurm.core.model.job_states import STARTED
from eslurm.core.model.messages import RefusalCode, Refused
from eslurm.core.model.protocol import MEASURES, Measure
from eslurm.core.model.step import LIVE
from eslurm.core.model.step_key import BATCH_STEP
from eslurm.core.model.step_usage import (
    NODES_MEASURED_MAX,
    STEPS_MEASURED_MAX,
    PlacedAmount,
    StepUsage,
    StepUse,
    merged,
    read_measured,
)
from eslurm.core.relay.results import Results, Status
from eslurm.core.state.view import View
from eslurm.ports.api import ApiError, Caller
from eslurm.ports.api import Status as ApiStatus
from eslurm.v1 import controller_pb2 as pb

ASKED_MAX = 32
"""Calls that wait for nodes; those beyond are to come again."""
ASKED_OF_USER_MAX = 2
CALLS_OF_USER_PER_S = 4.0
"""Calls of one user that nodes are asked for; a user saves up those of `BURST_S`, operators have no bound."""
BUSY_RETRY_S = 0.5
WHY_CHARS_MAX = 200
TOO_OLD = "its agent is of a release that does not measure steps"
SILENT = "no answer in time"
NOT_ASKED = f"one call asks {NODES_MEASURED_MAX} nodes at most"

Ask = Callable[[tuple[int, ...], Measure], Awaitable[Results]]
"""Asks nodes, and gathers their answers."""


class StepUsages:
    """Answers for the running jobs of the committed view."""

    def __init__(self, view: View, ask: Ask, clock: Callable[[], float] = time.monotonic) -> None:
        self._view = view
        self._ask = ask
        self._clock = clock
        self._asked: Counter[int] = Counter()
        # The user who has not asked for longest comes first.
        self._budgets: OrderedDict[int, Budget] = OrderedDict()

    async def call(self, request: pb.StepUsageRequest, caller: Caller) -> pb.StepUsageReply:
        """The use of the steps that live, and the nodes that have not measured. Raises `Refused`, `ApiError`."""
        who = caller.principal
        job = get_seen(self._view, who, request.job.job_id)
        self._check(who, job)
        if not 0 < len(request.steps) <= STEPS_MEASURED_MAX:
            text = f"steps: {len(request.steps)} of them: name 1 to {STEPS_MEASURED_MAX} in a call"
            raise Refused(RefusalCode.INVALID, text)
        if job.state not in STARTED or job.attempt is None:
            raise Refused(RefusalCode.CONFLICT, f"job {job.job_id} is {job.state.value}: it has no steps")
        placed = self._placed(job, sorted(set(request.steps)))
        silence: dict[str, list[int]] = {}
        nodes: list[int] = []
        for node in sorted({node for several in placed.values() for node in several}):
            if request.node and self._name(node) != request.node:
                continue
            if (why := self._why_not(node, len(nodes))) is None:
                nodes.append(node)
            else:
                silence.setdefault(why, []).append(node)
        uses: dict[int, list[tuple[int, StepUse]]] = {}
        if nodes:
            question = Measure(job.job_id, job.attempt.number, tuple(placed), request.processes)
            results = await self._ask_bounded(who, tuple(nodes), question)
            uses = _sorted(results, nodes, placed, silence)
        return pb.StepUsageReply(
            steps=[self._info(merged(uses[step])) for step in sorted(uses)],
            silent=[
                pb.NodeSilence(node_names=fold(self._view.node_names(those)), why=why)
                for why, those in silence.items()
            ],
        )

    def _check(self, who: Principal, job: Job) -> None:
        if who.uid != job.spec.user.uid and not is_operator(self._view, who):
            raise Refused(
                RefusalCode.DENIED,
                f"job {job.job_id} belongs to {job.spec.user.name}: only its user and operators see what it uses",
            )

    def _placed(self, job: Job, steps: Iterable[int]) -> dict[int, tuple[int, ...]]:
        """The nodes of each of these steps that lives."""
        placed: dict[int, tuple[int, ...]] = {}
        for number in steps:
            step = self._view.steps.get((job.job_id, number))
            if number == BATCH_STEP and not job.spec.no_script and job.attempt is not None:
                placed[number] = (job.attempt.first,)
            elif step is not None and step.state in LIVE:
                placed[number] = step.nodes
        return placed

    def _why_not(self, number: int, asked: int) -> str | None:
        """The reason why a node is not asked; None: it is."""
        node = self._view.nodes.get(number)
        if node is None or node.protocol < MEASURES:
            return TOO_OLD
        return NOT_ASKED if asked >= NODES_MEASURED_MAX else None

    async def _ask_bounded(self, who: Principal, nodes: tuple[int, ...], question: Measure) -> Results:
        if self._asked[who.uid] >= ASKED_OF_USER_MAX or self._asked.total() >= ASKED_MAX:
            raise ApiError(
                ApiStatus.RESOURCE_EXHAUSTED,
                "too many questions about the use of steps are open: try again in a moment",
                BUSY_RETRY_S,
            )
        if not is_operator(self._view, who):
            self._charge(who.uid)
        self._asked[who.uid] += 1
        try:
            return await self._ask(nodes, question)
        finally:
            self._asked[who.uid] -= 1
            if not self._asked[who.uid]:
                del self._asked[who.uid]

    def _charge(self, uid: int) -> None:
        """Count one call of a user. Raises `ApiError` with the time to come again, when there were too many."""
        now_s = self._clock()
        budget = self._budgets.pop(uid, None) or Budget(CALLS_OF_USER_PER_S, 1.0, now_s)
        self._budgets[uid] = budget
        if len(self._budgets) > USERS_MAX:
            self._budgets.popitem(last=False)
        if budget.left_share(now_s) <= 0:
            raise ApiError(
                ApiStatus.RESOURCE_EXHAUSTED,
                f"more than {CALLS_OF_USER_PER_S:g} questions a second about the use of steps: try again in a moment",
                budget.retry_after_s(now_s),
            )
        budget.take(1.0)

    def _info(self, usage: StepUsage) -> pb.StepUsageInfo:
        return pb.StepUsageInfo(
            step=usage.step,
            node_names=fold(self._view.node_names(usage.nodes)),
            tasks=_u32(usage.tasks),
            cpu_us=self._amount(usage.cpu_us),
            memory_kib=self._amount(usage.memory_kib),
            virtual_kib=self._amount(usage.virtual_kib),
            faults=self._amount(usage.faults),
            processes=[
                pb.NodeProcesses(
                    node=self._name(node),
                    pids=map(_u32, use.pids),
                    local_ranks=[min(max(rank, -1), 2**31 - 1) for rank in use.local_ranks],
                    first_task=_u32(use.first_task),
                )
                for node, use in usage.named
            ],
            is_partial=usage.is_partial,
        )

    def _amount(self, amount: PlacedAmount) -> pb.UsageAmount:
        return pb.UsageAmount(
            total=_u64(amount.total),
            most=_u64(amount.most),
            most_task=_u32(amount.most_task),
            most_node=self._name(amount.most_node),
            least=_u64(amount.least),
            least_task=_u32(amount.least_task),
            least_node=self._name(amount.least_node),
        )

    def _name(self, number: int) -> str:
        node = self._view.nodes.get(number)
        return node.name if node is not None else ""


def _sorted(
    results: Results,
    nodes: Iterable[int],
    placed: Mapping[int, tuple[int, ...]],
    silence: dict[str, list[int]],
) -> dict[int, list[tuple[int, StepUse]]]:
    """The measurements by step, in the order of nodes; nodes without one are added to the silent ones.

    A node speaks for the steps that it was asked about and that it has, whatever it sends.
    """
    uses: dict[int, list[tuple[int, StepUse]]] = {}
    outcomes = results.expand()
    for node in nodes:
        outcome = outcomes.get(node)
        if outcome is None or outcome.status is Status.UNREACHED:
            silence.setdefault(SILENT, []).append(node)
            continue
        measured = read_measured(outcome.payload) if outcome.status is Status.OK else None
        if measured is None:
            why = outcome.text[:WHY_CHARS_MAX] or "its answer cannot be read"
            silence.setdefault(why, []).append(node)
            continue
        by_step = {use.step: use for use in measured.uses}
        for step, where in placed.items():
            if node in where and step in by_step:
                uses.setdefault(step, []).append((node, by_step[step]))
    return uses


def _u32(value: int) -> int:
    return min(max(value, 0), 2**32 - 1)


def _u64(value: int) -> int:
    return min(max(value, 0), 2**64 - 1)
