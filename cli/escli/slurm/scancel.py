"""`scancel`: end jobs, tasks of arrays, or send them a signal."""

from __future__ import annotations

import os

from escli import exits
from escli.failures import CommandFailed
from escli.slurm import frame
from eslurm.compat.errors import OptionError
from eslurm.compat.slurm import words
from eslurm.compat.slurm.array_text import is_array, task_numbers
from eslurm.compat.slurm.getopt import UsageProblem
from eslurm.compat.slurm.scancel_options import FILTERS
from eslurm.compat.slurm.scancel_options import ROWS as ROWS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from escli.api import Api
    from escli.slurm.frame import Context
    from eslurm.compat.slurm.getopt import Options

COMMAND = "scancel"
_KILL = 9
_VARIABLES = {
    "SCANCEL_ACCOUNT": "account",
    "SCANCEL_NAME": "name",
    "SCANCEL_PARTITION": "partition",
    "SCANCEL_QOS": "qos",
    "SCANCEL_STATE": "state",
    "SCANCEL_USER": "user",
    "SCANCEL_WCKEY": "wckey",
}


def run(context: Context, given: Options) -> int:
    """The command; returns the exit code."""
    filters = {long: ",".join(given.listed(long)) for long in FILTERS if given.has(long) and long != "me"}
    for name, long in _VARIABLES.items():
        if os.environ.get(name) and long not in filters:
            filters[long] = os.environ[name]
    if given.has("me"):
        filters["user"] = frame.user_name()
    if not given.rest and not filters:
        raise frame.Failed("scancel: error: No job identification provided")
    signum = _signal(given)
    reach = _reach(given, signum)
    signum = 0 if reach == "job" else signum
    _check_words(given.rest)
    clusters = frame.clusters_of(given, os.environ)
    code = exits.OK
    with context.open_api() as api:
        if not clusters:
            return _cancel(api, given, filters, signum, reach)
        own = frame.own_cluster(api)
        for name in frame.cell_names(api, clusters, own):
            with context.cluster_api(name, own) as cell:
                code = max(code, _cancel(cell, given, filters, signum, reach, is_quiet="all" in clusters))
    return code


def _signal(given: Options) -> int:
    """The signal's number; 0: end the jobs."""
    if not given.has("signal"):
        return 0
    from eslurm.compat.signals import parse_signal

    try:
        return parse_signal(given.last("signal"), "--signal")
    except OptionError:
        raise UsageProblem(f"error: Unknown job signal: {given.last('signal')}") from None


def _reach(given: Options, signum: int) -> str:
    """The reach of the signal: `steps`, or `all` with `--full`; `job`: it ends the job, as SIGKILL does."""
    if given.has("batch"):
        raise frame.Failed(
            "scancel: error: --batch is not supported: a signal reaches the script with all that it has started: --full"
        )
    if not signum or signum == _KILL:
        return "job"
    return "all" if given.has("full") else "steps"


def _check_words(rest: Sequence[str]) -> None:
    """Raise Failed for a word that names no job, or a step."""
    for word in rest:
        if not word[:1].isdecimal():
            raise frame.Failed(f"scancel: error: Invalid job id {word}")
        if "." in word:
            raise frame.Failed(
                f"scancel: error: {word}: signals for single steps are not supported: name the job"
            )


def _cancel(
    api: Api, given: Options, filters: dict[str, str], signum: int, reach: str, *, is_quiet: bool = False
) -> int:
    from escli.job_refs import job_refs, split_jobs
    from eslurm.v1 import controller_pb2 as pb

    named = []
    for word in (part for words_ in given.rest for part in split_jobs(words_)):
        try:
            named += job_refs([word.removesuffix("_*").removesuffix("_[*]")], "JOB")
        except OptionError:
            raise frame.Failed(f"scancel: error: Invalid job id {word}") from None
    if filters:
        named = _chosen(api, filters, named, with_cron=given.has("cron"))
        if not named:
            return exits.OK
    if given.has("verbose"):
        for ref in named:
            text = f"{ref.job_id}_{ref.task}" if ref.HasField("task") else str(ref.job_id)
            what = f"Signal {signum} to" if signum else "Terminating"
            frame.warn(COMMAND, f"{what} job {text}")
    try:
        reply = api.call(
            "Cancel",
            pb.CancelRequest(
                jobs=named, signal=signum, reach=reach if signum else "", cron=given.has("cron")
            ),
            request_id=os.urandom(16),
        )
    except CommandFailed as failure:
        raise frame.Failed(f"scancel: error: Kill job error: {frame.trouble(failure)}") from None
    code = exits.OK
    for problem in reply.problems:
        text, is_fault = _problem(problem)
        if not is_quiet and (is_fault or given.has("verbose")):
            frame.warn(COMMAND, f"error: Kill job error on job id {problem.what}: {text}")
        code = exits.FAILED if is_fault and not is_quiet else code
    return code


def _problem(problem: Any) -> tuple[str, bool]:
    """Slurm's words for why a job was not cancelled, and whether the command fails for it: not where the job has ended."""
    if problem.code == "not_found":
        return "Invalid job id specified", False
    if problem.code == "conflict":
        return "Job/step already completing or completed", False
    if problem.code == "invalid" and "--cron" in problem.text:
        return "Cannot cancel scrontab jobs without --cron flag.", True
    if problem.code == "denied":
        return "Access/permission denied", True
    return str(problem.text), True


def _chosen(api: Api, filters: dict[str, str], named: Sequence[Any], *, with_cron: bool) -> list[Any]:
    """The living jobs that all filters take, of `named` if some are named."""
    from eslurm.v1 import controller_pb2 as pb

    wanted = {long: set(text.split(",")) for long, text in filters.items()}
    states = words.job_states(sorted(wanted.pop("state", ())), "error: Invalid job state specified: {}")
    nodes = _nodes(filters.get("nodelist", ""))
    wanted.pop("nodelist", None)
    found = []
    for info in api.call("Jobs", pb.JobsRequest()).jobs:
        record = {
            "account": info.account,
            "name": info.name,
            "partition": info.partition,
            "qos": info.qos,
            "reservation": info.reservation,
            "user": info.user,
            "wckey": info.wckey,
        }
        if any(record[long] not in values for long, values in wanted.items() if long != "user"):
            continue
        if "user" in wanted and not wanted["user"].intersection((info.user, str(info.uid))):
            continue
        if info.cron and not with_cron:
            continue
        if info.state in words.ENDED or (states and info.state not in states):
            continue
        if nodes and not nodes.intersection(_nodes(info.node_names)):
            continue
        if named and not any(ref.job_id in (info.job_id, info.array_job_id) for ref in named):
            continue
        if info.HasField("array_task"):
            found.append(pb.JobRef(job_id=info.array_job_id, task=info.array_task))
        elif info.array_tasks_left and info.tasks_running:
            # Its running tasks have records of their own, which may not be chosen.
            found += [
                pb.JobRef(job_id=info.job_id, task=task) for task in task_numbers(info.array_tasks_left)
            ]
        elif info.array_tasks_left or not is_array(info):
            found.append(pb.JobRef(job_id=info.job_id))
    return found


def _nodes(text: str) -> set[str]:
    from eslurm.compat.hostlist import expand

    return set(expand(text)) if text else set()
