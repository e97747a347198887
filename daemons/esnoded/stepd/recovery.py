"""Outcomes of steps whose supervisor is gone: lost.

A supervisor leaves processes in a crash only (an orderly stop ends its steps first); `procd` ends them as it starts. Their
exit status belongs to a parent that is gone, so the outcome is `lost`, never a guess.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eslurm.ports.step_runner import StepEndCause, StepOutcome
from esnoded.stepd.journal import Unfinished


def lost_steps(
    unfinished: Iterable[Unfinished], survivors: Sequence[int], boot_id: str, now_us: int
) -> list[StepOutcome]:
    """The outcomes of an earlier supervisor's steps. `survivors` are processes that did not end, `now_us` is wall time."""
    outcomes = []
    for step in unfinished:
        if step.boot_id != boot_id:
            text = "the node was rebooted while it ran"
        else:
            text = "its step supervisor died while it ran"
            if survivors:
                text += f"; processes that did not end: {' '.join(map(str, survivors))}"
        outcomes.append(
            StepOutcome(step.key, 0, 0, StepEndCause.LOST, text, started_us=step.at_us, ended_us=now_us)
        )
    return outcomes
