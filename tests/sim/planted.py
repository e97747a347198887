"""Bugs to plant: each takes `monkeypatch` and breaks one rule that the simulator must notice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from eslurm.core import courier
from eslurm.core.agent.fence import Fence
from eslurm.core.agent.lifecycle import Lifecycle
from eslurm.core.agent.machine import Agent
from eslurm.core.agent.outbox import Outbox
from eslurm.core.cluster import State
from eslurm.core.job import outcomes, requests, stopping
from eslurm.core.job.states import AttemptPhase, JobState, StopCause
from eslurm.core.resources.ledger import Ledger
from eslurm.core.wire import StepEnded
from eslurm.sim.controller import Controller
from eslurm.sim.host import Spool

Plant = Callable[[pytest.MonkeyPatch], None]


def show_before_commit(patch: pytest.MonkeyPatch) -> None:
    """Answers and effects leave as soon as they are decided."""
    begin, finish, release = Controller._begin, Controller._finish, Controller._release

    def hasty_begin(self: Controller, entries: Any, batch: Any) -> None:
        if not vars(batch).get("was_shown"):
            batch.was_shown = True
            release(self, entries, batch)
        begin(self, entries, batch)

    def plain_finish(self: Controller, entries: Any, batch: Any, fate: str) -> None:
        self._release = lambda entries, batch: self._wake()  # type: ignore[method-assign]
        finish(self, entries, batch, fate)
        del self._release

    patch.setattr(Controller, "_begin", hasty_begin)
    patch.setattr(Controller, "_finish", plain_finish)


def no_fence(patch: pytest.MonkeyPatch) -> None:
    """Nodes obey every epoch and every incarnation."""

    def own_incarnations(self: Agent, command: Any, nodes: Any) -> list[int | None]:
        served = self.roster.by_number
        return [served[number].incarnation if number in served else None for number in nodes]

    patch.setattr(Agent, "_command_refusal", lambda self, command: "")
    patch.setattr(Agent, "_incarnations", own_incarnations)


def launch_again(patch: pytest.MonkeyPatch) -> None:
    """A second copy of a launch is taken for a new one."""
    patch.setattr(Lifecycle, "_refusal", lambda self, node, launch, waiter: "")
    patch.setattr(Fence, "keep", lambda self, effect, outcome: None)


def drop_completions(patch: pytest.MonkeyPatch) -> None:
    """Some completions are acknowledged and forgotten."""
    on_step_ended = outcomes.on_step_ended

    def drop(state: State, report: StepEnded, now_us: int) -> Any:
        return [] if report.job_id % 5 == 0 else on_step_ended(state, report, now_us)

    patch.setattr(outcomes, "on_step_ended", drop)


def forget_reports(patch: pytest.MonkeyPatch) -> None:
    """An agent does not send again what was lost on the way."""
    patch.setattr(Outbox, "_requeue", lambda self, seqs: [self._in_flight.pop(seq) for seq in seqs])


def one_core_too_few(patch: pytest.MonkeyPatch) -> None:
    """Holding several cores books one less."""
    hold = Ledger.hold

    def less(self: Ledger, node: int, amounts: Any, until_us: int) -> None:
        hold(self, node, (amounts[0] - 1, *amounts[1:]) if amounts[0] > 1 else amounts, until_us)

    patch.setattr(Ledger, "hold", less)


def requeue_at_once(patch: pytest.MonkeyPatch) -> None:
    """A requeued job waits again while its old attempt still runs."""
    stop = stopping.stop

    def hasty(state: State, job: Any, cause: StopCause, now_us: int, by: str) -> Any:
        attempt = job.attempt
        if cause is StopCause.REQUEUE and attempt is not None and attempt.phase is AttemptPhase.RUNNING:
            over = stopping.ended(state, job, attempt, now_us, outcome=JobState.PENDING)
            return [replace(over, released=tuple(attempt.held))]
        return stop(state, job, cause, now_us, by)

    patch.setattr(requests, "stop", hasty)


def tombstones_unwritten(patch: pytest.MonkeyPatch) -> None:
    """The agent's spool loses the records that say an attempt is over."""
    write = Spool.write

    def lossy(self: Spool, record: Any, *, durable: bool) -> None:
        if type(record).__name__ != "Buried":
            write(self, record, durable=durable)

    patch.setattr(Spool, "write", lossy)


def effects_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A restarted controller does not send again what it owes."""
    patch.setattr(courier, "owed", lambda state: [])
    patch.setattr(courier.Courier, "on_registered", lambda self, number, now_us: None)
