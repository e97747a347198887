"""The site's program after each task of a step, which the step waits for.

Invariants: a task whose program ran has it once, and none begins when the step's time to end is over; no end of it changes
what is known of the task.
"""

from __future__ import annotations

import os

from eslurm.telemetry.clocks import boot_us
from esnoded.procd.log import complain
from esnoded.stepd.processes import Processes
from esnoded.stepd.step import Step, Task, signal_name
from esnoded.task.program import SpawnError


class TaskEpilogs:
    """Starts them, and logs the first that fails of each step."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes

    def begin(self, step: Step, task: Task, wait_status: int) -> Task | None:
        """The epilog of a task that has ended, to be watched; None if there is none to run."""
        if not self._processes.has_task_epilog or step.spec.endpoint is None or _is_too_late(step):
            return None
        try:
            pid, report_fd = self._processes.spawn_epilog(step.key, task.local, task.pid, wait_status)
        except SpawnError as error:
            self.failed(step, task, error.text)
            return None
        epilog = Task(task.local, pid, report_fd, is_epilog=True)
        step.epilogs.append(epilog)
        if not step.spawning and not any(one.alive for one in step.tasks):
            # The tasks have kept its limit.
            step.cancel_clock()
        return epilog

    def ended(self, step: Step, epilog: Task, wait_status: int) -> None:
        """It is over. One that failed by itself has said how."""
        if os.WIFSIGNALED(wait_status):
            self.failed(step, epilog, f"ended by signal {signal_name(os.WTERMSIG(wait_status))}")

    def failed(self, step: Step, task: Task, text: str) -> None:
        """Log a failure. Of many tasks the same program fails alike: the first stands for all."""
        if not step.has_failed_epilog:
            step.has_failed_epilog = True
            complain(f"the epilog of task {task.local} of step {step.key}: {text}")


def _is_too_late(step: Step) -> bool:
    """Check whether the step was ordered to end and its time to do so is over."""
    if step.cause is None:
        return False
    return step.kill_timer is None or step.kill_timer.due_us <= boot_us()
