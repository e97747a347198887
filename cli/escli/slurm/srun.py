"""`srun` inside a job: `esrun` under Slurm's name, for the options that mean the same in both."""

from __future__ import annotations

import os

from escli.slurm import frame
from eslurm.compat.filenames import FileNameFields, expand_pattern
from eslurm.compat.slurm.getopt import FLAG, HARMLESS
from eslurm.compat.slurm.srun_options import ROWS as ROWS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from escli.slurm.frame import Context
    from eslurm.compat.slurm.getopt import Options

STOPS = True
_FILES = ("output", "error", "open-mode")


def run(context: Context, given: Options) -> int:
    """The command; returns the exit code: the highest of its tasks."""
    if not given.has("jobid") and not os.environ.get("SLURM_JOB_ID"):
        raise frame.Failed("srun: error: not supported outside of jobs: submit a script with sbatch")
    if not given.rest:
        raise frame.Failed("srun: fatal: No command given to execute.")
    from escli.user import esrun

    words = []
    if not any(os.environ.get(name) for name in frame.NAMED_BY) and context.socket:
        words += ["--socket", context.socket]
    for row, value, _ in given.found:
        if row.treatment != HARMLESS and not row.treatment.startswith("only:") and row.long not in _FILES:
            words.append(f"--{row.long}" if row.kind == FLAG else f"--{row.long}={value}")
    _redirect(given)
    return esrun.main([*words, *given.rest])


def _redirect(given: Options) -> None:
    """Send output to the files that are named; without `--error` both go to the one of `--output`. Raises Failed."""
    if not given.has("output") and not given.has("error"):
        return
    mode = given.last("open-mode") or os.environ.get("SLURM_OPEN_MODE", "t")
    flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if mode.startswith("a") else os.O_TRUNC)
    output = _open(given, "output", flags) if given.has("output") else -1
    error = _open(given, "error", flags) if given.has("error") else output
    for opened, target in ((output, 1), (error, 2)):
        if opened >= 0:
            os.dup2(opened, target)
    for opened in {output, error} - {-1}:
        os.close(opened)


def _open(given: Options, long: str, flags: int) -> int:
    pattern = given.last(long)
    if pattern in ("none", "all"):
        return os.open(os.devnull, os.O_WRONLY) if pattern == "none" else -1
    tasks = given.last("ntasks") or os.environ.get("SLURM_NTASKS", "1")
    if tasks != "1" and any(letter in pattern for letter in ("%t", "%n", "%N")):
        raise frame.Failed(
            f"srun: error: --{long}={pattern} is not supported: a file for each of several tasks"
        )
    if "%J" in pattern or "%s" in pattern:
        raise frame.Failed(
            f"srun: error: --{long}={pattern} is not supported: the step's number is not known here"
        )
    name = expand_pattern(pattern, _fields())
    try:
        return os.open(name, flags, 0o666)
    except OSError as failure:
        raise frame.Failed(f"srun: error: Could not open stdout file {name}: {failure.strerror}") from None


def _fields() -> FileNameFields:
    env = os.environ.get
    array, task = env("SLURM_ARRAY_JOB_ID", "0"), env("SLURM_ARRAY_TASK_ID", "-1")
    return FileNameFields(
        int(env("SLURM_JOB_ID", "0")),
        job_name=env("SLURM_JOB_NAME", ""),
        user=env("SLURM_JOB_USER", ""),
        node_name=env("SLURMD_NODENAME", ""),
        array_job_id=int(array),
        array_task=int(task),
    )
