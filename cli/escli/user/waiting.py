"""`essubmit --wait`: watch one job until it has ended, print its progress, return its exit code.

The controller may restart meanwhile, or another one take over: the job goes on, and so does the wait.
"""

from __future__ import annotations

import sys
import time

from escli import exits, program
from escli.api import GIVE_UP_S, is_away
from escli.failures import CommandFailed
from escli.user.queue_columns import run_us
from eslurm.compat.durations import format_duration
from eslurm.compat.errors import escaped
from eslurm.compat.states import FINAL_STATES, reason_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from escli.api import Api

_POLL_S = 2
_CALL_MARGIN_S = 10.0
_PAUSE_S = 0.2


class Progress:
    """Prints changes: one line that is rewritten on a terminal, a line per change elsewhere."""

    def __init__(self, command: str, *, is_terminal: bool, quiet: bool) -> None:
        self._command = command
        self._is_terminal = is_terminal
        self._quiet = quiet
        self._told = ""

    def show(self, text: str, clock_text: str = "") -> None:
        """`clock_text` is shown beside the text, but its change alone prints nothing."""
        if self._quiet:
            return
        if self._is_terminal:
            sys.stderr.write(f"\r\x1b[K{escaped(text)} {clock_text}".rstrip())
            sys.stderr.flush()
        elif text != self._told:
            program.warn(self._command, text)
        self._told = text

    def close(self) -> None:
        if self._is_terminal and self._told and not self._quiet:
            sys.stderr.write("\n")
            sys.stderr.flush()


def wait_for_jobs(api: Api, job_ids: Sequence[int], command: str, *, quiet: bool = False) -> int:
    """Wait for the end of all these jobs; the exit code of the first one that did not end with 0."""
    code = exits.OK
    for job_id in job_ids:
        ended = wait_for_job(api, job_id, command, quiet=quiet)
        if ended == exits.INTERRUPTED:
            return ended
        code = code or ended
    return code


def wait_for_job(
    api: Api, job_id: int, command: str, *, quiet: bool = False, sleep: Callable[[float], None] = time.sleep
) -> int:
    """Wait for the job's end; its exit code, or 128 + the signal that ended it.

    A job that did not complete has at least exit code 1. Ctrl-C ends the waiting, not the job.
    """
    progress = Progress(command, is_terminal=sys.stderr.isatty(), quiet=quiet)
    try:
        info = _watch(api, job_id, progress, sleep)
    except KeyboardInterrupt:
        progress.close()
        program.warn(command, f"no longer waiting; job {job_id} goes on (escancel {job_id} ends it)")
        return exits.INTERRUPTED
    progress.close()
    return exit_code_of(info)


def exit_code_of(info: Any) -> int:
    """A command's exit code for an ended job."""
    if info.exit_signal:
        return 128 + int(info.exit_signal)
    if info.state != "COMPLETED":
        return int(info.exit_code) & 0xFF or exits.FAILED
    return int(info.exit_code) & 0xFF


def _watch(api: Api, job_id: int, progress: Progress, sleep: Callable[[float], None]) -> Any:
    from eslurm.v1 import controller_pb2 as pb

    request = pb.WaitJobsRequest(jobs=[pb.JobRef(job_id=job_id)], timeout_s=_POLL_S)
    silent_since = 0.0
    while True:
        asked_at = time.monotonic()
        try:
            reply = api.call("WaitJobs", request, _POLL_S + _CALL_MARGIN_S)
        except CommandFailed as failure:
            if not is_away(failure):
                raise
            silent_since = silent_since or asked_at
            if asked_at - silent_since > GIVE_UP_S:
                raise
            progress.show(f"job {job_id}: the controller does not answer; still waiting")
            sleep(_POLL_S)
            continue
        silent_since = 0.0
        if not reply.jobs:
            return _from_accounting(api, job_id)
        info = reply.jobs[0]
        progress.show(*describe(info, reply.now_us))
        if info.state in FINAL_STATES:
            return info
        if time.monotonic() - asked_at < _PAUSE_S:
            # It answers early when something changed; changes in quick succession must not become a busy loop.
            sleep(_PAUSE_S)


def _from_accounting(api: Api, job_id: int) -> Any:
    """The last attempt of a job that has left the controller's memory."""
    from eslurm.v1 import controller_pb2 as pb

    reply = api.call("Accounting", pb.AccountingRequest(jobs=[pb.JobRef(job_id=job_id)], limit=1000))
    if not reply.attempts:
        raise CommandFailed(exits.FAILED, f"job {job_id} is not known to the controller any more")
    return max(reply.attempts, key=lambda attempt: attempt.ended_us)


def describe(info: Any, now_us: int) -> tuple[str, str]:
    """(the state in words, how long it has been running)."""
    where = (
        f" on {info.node_names}" if info.node_names and info.state not in ("PENDING", *FINAL_STATES) else ""
    )
    why = f" ({reason_name(info.reason)})" if info.state == "PENDING" and info.reason else ""
    if info.state == "TRANSFERRED":
        why = f" ({info.reason_text})"
    end = ""
    if info.state in FINAL_STATES:
        end = f", signal {info.exit_signal}" if info.exit_signal else f", exit code {info.exit_code}"
    done = info.tasks_done + info.tasks_failed
    tasks = f", tasks: {info.tasks_running} running, {done} ended" if done or info.tasks_running else ""
    running = info.started_us and not info.ended_us
    elapsed = format_duration(run_us(info, now_us) // 1_000_000) if running else ""
    return f"job {info.job_id}: {info.state.lower()}{where}{why}{end}{tasks}", elapsed
