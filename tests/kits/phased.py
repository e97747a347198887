"""A world in virtual time: its nodes run a prolog and an epilog of given lengths, and its planner keeps promises."""

from __future__ import annotations

import heapq
from collections.abc import Callable

import msgspec

from eslurm.core.control.planning import messages_of, next_cycle_in_us, plan_slices
from eslurm.core.model import facts
from eslurm.core.model.job import StepEnd
from eslurm.core.model.job_states import FINAL
from eslurm.core.model.protocol import (
    End,
    NodeGone,
    PhaseReported,
    Prepare,
    Preparing,
    Start,
    Started,
    StepEnded,
)
from eslurm.core.plan.cycle.cycle import exhaust
from eslurm.core.plan.cycle.plan import Plan, PlanLimits
from eslurm.core.plan.cycle.schedule import Schedule
from eslurm.core.state.cluster import State
from tests.kits.core import SECOND, World

PHASES = ("prolog", "epilog")
_PREPARING = msgspec.msgpack.encode(Preparing(300))


class Phased(World):
    """Each job runs until its time limit. `prolog_s` and `epilog_s` are those of phases that begin from now on."""

    def __init__(
        self, prolog_s: float, epilog_s: float, *, nodes: int = 1, policy: str = "conservative"
    ) -> None:
        self.schedule = Schedule()
        self._placed: dict[int, int] = {}
        super().__init__(nodes, restarts=False, policy=policy)
        self.prolog_s, self.epilog_s = prolog_s, epilog_s
        self._due: list[tuple[int, int, Callable[[], object]]] = []
        self._order = 0
        for number in range(nodes):
            self.register(number, session="phased", phases=PHASES)

    def run(self, until: Callable[[], bool] | None = None) -> None:
        """Let time pass until that is so; else until all jobs have ended."""
        while not (until() if until is not None else self._is_over()):
            plan = self._cycle()
            if self.state.plan_wanted:
                continue
            next_us = self.now_us + next_cycle_in_us(plan, self.now_us)
            if self._due and self._due[0][0] <= next_us:
                self.now_us, _, happen = heapq.heappop(self._due)
                happen()
            else:
                self.now_us = next_us
            self.pass_time(0)

    def promised(self) -> dict[int, int]:
        """The planned start of each job that still waits after a cycle."""
        plan = self._cycle()
        return {job_id: bookings[0].start_us for job_id, bookings in plan.bookings.items()}

    def placed(self) -> dict[int, int]:
        """The time at which each job was placed: its nodes are its own from then on."""
        return dict(self._placed)

    def _observe(self, state: State, fact: facts.Fact) -> None:
        super()._observe(state, fact)
        if isinstance(fact, facts.JobPlaced):
            self._placed[fact.job_id] = self.now_us

    def _is_over(self) -> bool:
        return all(job.state in FINAL for job in self.state.jobs.values())

    def _cycle(self) -> Plan:
        slices = plan_slices(self.state, self.now_us, self.schedule, PlanLimits(), keeps_promises=True)
        plan = exhaust(slices)
        for message in messages_of(plan):
            self.send(message)
        self._serve()
        return plan

    # ---- what nodes do ----

    def _serve(self) -> None:
        while sent := self.sends():
            for send in sent:
                match send.body:
                    case Prepare(launch=launch):
                        self.done(send, payload=_PREPARING)
                        for node in send.nodes:
                            self._begin_prolog(node, launch.job_id)
                    case Start(job_id=job_id):
                        self.done(send, payload=msgspec.msgpack.encode(Started(self.now_us)))
                        limit_s = self.job(job_id).spec.time_limit_s
                        self._at(limit_s, lambda job_id=job_id: self._end_script(job_id))  # type: ignore[misc]
                    case End(job_id=job_id):
                        self.done(send)
                    case _:
                        self.done(send)

    def _begin_prolog(self, node: int, job_id: int) -> None:
        end = self._end_of(self.prolog_s)
        self._at(
            self.prolog_s,
            lambda: self.report(PhaseReported(node, self._incarnation(node), job_id, 1, "prolog", end)),
        )

    def _end_script(self, job_id: int) -> None:
        attempt = self.attempt(job_id)
        end = StepEnd(0, started_us=attempt.started_us, ended_us=self.now_us)
        epilog = self._end_of(self.epilog_s)
        for node in attempt.nodes:
            self._at(
                self.epilog_s,
                lambda node=node: self.report(  # type: ignore[misc]
                    NodeGone(node, self._incarnation(node), job_id, 1, epilog)
                ),
            )
        self.report(StepEnded(attempt.first, self._incarnation(attempt.first), job_id, 1, end, gone=False))

    def _end_of(self, seconds: float) -> StepEnd:
        return StepEnd(0, started_us=self.now_us, ended_us=self.now_us + round(seconds * SECOND))

    def _incarnation(self, node: int) -> int:
        return self.state.nodes[node].incarnation

    def _at(self, in_s: float, happen: Callable[[], object]) -> None:
        self._order += 1
        heapq.heappush(self._due, (self.now_us + round(in_s * SECOND), self._order, happen))
