"""The result of a workflow's wish now (`--dry-run`): the planner's own answer, on a copy of its plan."""

from __future__ import annotations

from collections.abc import Generator

from eslurm.core.control.jobs.moves import wanted_end, wanted_starts
from eslurm.core.control.planning import take_snapshot
from eslurm.core.explain.whatif import WhatIf
from eslurm.core.model.messages import ExtendJob, MovePack
from eslurm.core.model.moves import ExtendGrant, MoveGrant
from eslurm.core.plan.cycle.moves import extend, move
from eslurm.core.plan.cycle.schedule import Schedule
from eslurm.core.plan.cycle.wishes import WantedEnd, WantedStarts
from eslurm.core.state.cluster import State


def would_move(
    state: State, schedule: Schedule, message: MovePack, now_us: int
) -> Generator[None, None, tuple[WantedStarts, MoveGrant]]:
    """The wish as the planner would get it, and its answer. Raises `Refused`."""
    wanted = wanted_starts(state, message, now_us)
    yield
    whatif = WhatIf(take_snapshot(state, now_us, None), schedule)
    whatif.schedule.held.update(schedule.held)
    yield from whatif.cycle.queries.keep_firm()
    return wanted, (yield from move(whatif.cycle, wanted))


def would_extend(
    state: State, schedule: Schedule, message: ExtendJob, now_us: int
) -> Generator[None, None, tuple[WantedEnd, ExtendGrant]]:
    """The wish as the planner would get it, and its answer. Raises `Refused`."""
    wanted = wanted_end(state, message)
    yield
    whatif = WhatIf(take_snapshot(state, now_us, None), schedule)
    whatif.schedule.held.update(schedule.held)
    grant, _ = extend(whatif.cycle, wanted)
    return wanted, grant
