"""`sbcast`: copy a file to all nodes of a job, by a step with one task on each of them that reads it as its input."""

from __future__ import annotations

import os
import stat

from escli import exits, program
from escli.failures import CommandFailed
from escli.options import Words
from escli.slurm import frame
from escli.user.step_claim import NOTHING
from escli.user.step_following import interrupts_of_step
from escli.user.step_programs import PartProgram
from escli.user.step_run import check_here, run_step
from eslurm.compat.slurm.small_options import SBCAST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from escli.api import Api
    from escli.slurm.frame import Context
    from eslurm.compat.slurm.getopt import Options

ROWS = SBCAST
STOPS = True
COMMAND = "sbcast"
_TASK = """\
name=$1 dest=$2 size=$3 mode=$4 force=$5 times=$6
fails() {
    echo "sbcast: error: REQUEST_FILE_BCAST($SLURMD_NODENAME): $1" >&2
    exit 1
}
if [ -d "$dest" ]; then dest=${dest%/}/$name; fi
if [ "$force" = no ] && [ -e "$dest" ]; then fails "File exists"; fi
part=$(mktemp "$dest.XXXXXX" 2>/dev/null) || fails "Can't create a file beside $dest"
trap 'rm -f "$part"' EXIT
cat >"$part" || fails "Can't write $dest"
[ "$(wc -c <"$part")" -eq "$size" ] || fails "Only a part of $dest has come"
chmod "$mode" "$part"
if [ -n "$times" ]; then touch -d "@$times" "$part"; fi
if [ "$force" = yes ]; then
    mv -f "$part" "$dest" || fails "Can't write $dest"
else
    # Of two that come at the same time one finds the other's file.
    ln "$part" "$dest" 2>/dev/null || fails "File exists"
fi
"""


class _Texts:
    """Each node says itself what has failed there."""

    def failed(self, node: str, tasks: Sequence[int], status: int) -> None:
        """Its task has told it, unless a signal ended it."""
        if status < 0:
            program.warn(COMMAND, f"error: REQUEST_FILE_BCAST({node}): ended by signal {-status}")

    def ended(self, statuses: Mapping[int, int]) -> None:
        """All is told."""

    def problem(self, label: str, text: str) -> None:
        """A node that has not answered."""
        program.warn(COMMAND, f"error: {text}")

    def ending(self, label: str, waited_s: int, ended: Sequence[int], running: Sequence[int]) -> None:
        """No task ends the others."""

    def interrupted(self, label: str, ended: Sequence[int], running: Sequence[int]) -> None:
        """One interrupt ends the copy."""

    def waits(self, job_id: int) -> None:
        """It shares the cores of other steps, and waits for none."""

    def begins(self, label: str) -> None:
        """It has never waited."""

    def timed_out(self, label: str, node: str, limit_s: int) -> None:
        """It has no limit of its own."""

    def refused(self, job_id: int, text: str) -> str:
        """The reason as it is."""
        return text


def run(context: Context, given: Options) -> int:
    """The command; returns the exit code: 1 when a node has no copy."""
    if len(given.rest) != 2:
        raise frame.Failed(
            f"sbcast: error: Need two file names, have {len(given.rest)}: use sbcast SOURCE DEST"
        )
    source, target = given.rest
    job_id = _job_id(given)
    arguments = _arguments(source, target, given)
    words = Words()
    words.put("input", "all", "--input")
    words.put("job-name", COMMAND, "--job-name")
    words.put("quit-on-interrupt", "", "--quit-on-interrupt")
    with context.open_api() as api:
        check_here(api)
        nodes = _nodes(api, job_id)
        copying = PartProgram(0, ("/bin/sh", "-c", _TASK, COMMAND, *arguments), nodes, nodes, 1)
        code = run_step(api, words, job_id, [copying], os.environ, interrupts_of_step(), _Texts(), NOTHING)
    return exits.FAILED if code else exits.OK


def _job_id(given: Options) -> int:
    text = given.last("jobid") or os.environ.get("SLURM_JOB_ID", "")
    if not text:
        raise frame.Failed(
            "sbcast: error: Need a job id to run this command.  Run from within a Slurm job or use the --jobid option."
        )
    if not (text.isascii() and text.isdigit() and len(text) < 12):
        raise frame.Failed(f"sbcast: error: Invalid job id: {text}")
    return int(text)


def _arguments(source: str, target: str, given: Options) -> tuple[str, ...]:
    """The arguments of the task; this process reads the source from now on. Raises Failed."""
    try:
        fd = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise frame.Failed(f"sbcast: error: Can't open `{source}`: {error.strerror}") from None
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        raise frame.Failed(f"sbcast: error: Can't open `{source}`: it is no file")
    os.dup2(fd, 0)
    os.close(fd)
    force = "yes" if given.has("force") else "no"
    times = f"{found.st_mtime_ns / 1e9:.9f}" if given.has("preserve") else ""
    mode = f"{stat.S_IMODE(found.st_mode) & 0o777:o}"
    return os.path.basename(source), target, str(found.st_size), mode, force, times


def _nodes(api: Api, job_id: int) -> int:
    """The number of the job's nodes. Raises Failed, CommandFailed."""
    from eslurm.v1 import controller_pb2 as pb

    try:
        jobs = api.call("Jobs", pb.JobsRequest(jobs=[pb.JobRef(job_id=job_id)])).jobs
    except CommandFailed as failure:
        raise frame.Failed(f"sbcast: error: {frame.trouble(failure)}") from None
    if not jobs or jobs[0].state != "RUNNING":
        raise frame.Failed(f"sbcast: error: Job {job_id} does not run")
    if len(jobs[0].parts) > 1:
        raise frame.Failed(
            f"sbcast: error: job {job_id} has several parts: not supported: use srun --het-group"
        )
    return int(jobs[0].nodes)
