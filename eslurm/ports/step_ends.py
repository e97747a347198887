"""A runner's outcome of a step in the form of records and reports. Apart from the port: supervisors do without records."""

from __future__ import annotations

from eslurm.core.model.job import StepEnd
from eslurm.ports.step_runner import StepOutcome


def step_end(outcome: StepOutcome) -> StepEnd:
    """The outcome without the step's name, which reports carry separately."""
    return StepEnd(
        outcome.exit_code,
        outcome.signal,
        outcome.cause.value,
        outcome.text,
        outcome.started_us,
        outcome.ended_us,
        outcome.user_cpu_us,
        outcome.system_cpu_us,
        outcome.max_rss_kib,
    )
