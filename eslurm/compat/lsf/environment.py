"""LSF's variables of a job that `bsub` has submitted: those known then, and those known on its nodes."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SUBMIT_DIRECTORY = "LS_SUBCWD"
"""The variable that marks a job of `bsub`."""
_CHARS_MAX = 65_536
"""Longer lists of hosts are left out: a program would not start."""


def submitted_variables(cwd: str, host: str, queue: str) -> dict[str, str]:
    """The variables that are known when the job is submitted."""
    return {SUBMIT_DIRECTORY: cwd, "LSB_SUB_HOST": host, **({"LSB_QUEUE": queue} if queue else {})}


def job_variables(job: Mapping[str, str], slots: Sequence[tuple[str, int]]) -> dict[str, str]:
    """The variables of a job on its first node. `job` has Slurm's, `slots` each node's tasks."""
    number, name = job["SLURM_JOB_ID"], job.get("SLURM_JOB_NAME", "")
    task = job.get("SLURM_ARRAY_TASK_ID", "")
    array = job.get("SLURM_ARRAY_JOB_ID", number)
    values = {
        "LSB_JOBID": array,
        "LSB_JOBINDEX": task or "0",
        "LSB_BATCH_JID": f"{array}[{task}]" if task else number,
        "LSB_JOBNAME": f"{name}[{task}]" if task else name,
        "LSB_QUEUE": job.get("SLURM_JOB_PARTITION", ""),
        "LSB_DJOB_NUMPROC": str(sum(tasks for _, tasks in slots)),
        "LSB_MAX_NUM_PROCESSORS": str(sum(tasks for _, tasks in slots)),
        "LSB_MCPU_HOSTS": " ".join(f"{host} {tasks}" for host, tasks in slots),
    }
    if sum((len(host) + 1) * tasks for host, tasks in slots) <= _CHARS_MAX:
        values["LSB_HOSTS"] = " ".join(host for host, tasks in slots for _ in range(tasks))
    return {key: value for key, value in values.items() if len(value) <= _CHARS_MAX}
