"""The wait for the ends of steps, of those that run without their commands above all (`eswait`)."""

from __future__ import annotations

from collections.abc import Iterable

from eslurm.core.model.job import Job
from eslurm.core.model.step import OVER, Step, StepState
from eslurm.core.state.view import View
from eslurm.ports.api import ApiError, Status
from eslurm.v1 import controller_pb2 as pb

TOLD_MAX = 100
"""Failed steps that an answer names."""


class StepEnds:
    """The steps of a job that a call waits for. Those that are over are looked at once.

    Raises ApiError for a step that is none of the job's.
    """

    def __init__(self, view: View, job: Job, numbers: Iterable[int]) -> None:
        self._view = view
        self._job_id = job.job_id
        self._code = self._count = 0
        self._failed: list[pb.Problem] = []
        named = sorted(set(numbers))
        self._left = named or self._without_command(job)
        self._count = len(self._left)
        for number in named:
            self._get(number)

    def look(self) -> pb.StepReply:
        """The answer as it is now. Raises ApiError when the job's attempt is over meanwhile."""
        left = []
        for number in self._left:
            step = self._get(number)
            if step.state not in OVER:
                left.append(number)
                continue
            code, text = _end(step)
            self._code = max(self._code, code)
            if code and len(self._failed) < TOLD_MAX:
                what = f"{self._job_id}.{number}"
                self._failed.append(pb.Problem(what=what, code="failed", text=text))
        self._left = left
        state = "WAITING" if left else "ENDED"
        return pb.StepReply(
            state=state, failed=self._failed, left=len(left), exit_code=self._code, waited=self._count
        )

    def _without_command(self, job: Job) -> list[int]:
        steps = self._view.steps
        count = job.attempt.next_step if job.attempt is not None else 0
        numbers = range(count)
        return [
            number
            for number in numbers
            if (step := steps.get((job.job_id, number))) is not None and step.launch.files is not None
        ]

    def _get(self, number: int) -> Step:
        step = self._view.steps.get((self._job_id, number))
        if step is None:
            raise ApiError(Status.NOT_FOUND, f"step {self._job_id}.{number} does not exist (any more)")
        return step


def _end(step: Step) -> tuple[int, str]:
    """(exit code, text) of a step that is over."""
    if step.state is StepState.FAILED:
        return 1, step.failed[0][1] if step.failed else "its tasks could not be started"
    if step.state is StepState.CANCELLED:
        return 1, "it was withdrawn while it waited for its turn"
    if step.signal:
        return step.exit_code, f"ended by signal {step.signal}"
    return step.exit_code, f"exit code {step.exit_code}"
