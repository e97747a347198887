"""`squeue`: waiting and running jobs, in columns of letters or names, or as JSON."""

from __future__ import annotations

import os
import sys
import time

from escli import exits
from escli.failures import CommandFailed
from escli.slurm import frame
from eslurm.compat.hostlist import expand
from eslurm.compat.slurm import array_text, job_fields, layout, words
from eslurm.compat.slurm.getopt import UsageProblem
from eslurm.compat.slurm.release import has_wrapped_numbers
from eslurm.compat.slurm.squeue_options import ROWS as ROWS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from escli.api import Api
    from escli.slurm.frame import Context
    from eslurm.compat.slurm.getopt import Options
    from eslurm.compat.slurm.layout import Column

NO_JOB = "slurm_load_jobs error: Invalid job id specified"
_WRONG_STATE = (
    "error: Invalid job state specified: {}\nsqueue: error: Valid job states include: "
    + words.valid_states()
    + "\n"
)


def run(context: Context, given: Options) -> int:
    """The command; returns the exit code."""
    if given.has("helpFormat"):
        frame.print_line("\n".join(job_fields.FIELDS))
        return exits.OK
    if given.rest and given.has("jobs") and not given.last("jobs"):
        # `-j 17`: the option's value is optional, and yet squeue takes the next word for it.
        row, _, spelling = next(found for found in given.found if found[0].long == "jobs")
        given.add(row, given.rest.pop(0), spelling)
    if given.rest:
        raise UsageProblem(f"error: Unrecognized option: {given.rest[0]}", has_hint=True)
    if given.has("only-job-state") and not has_wrapped_numbers(context.release):
        raise UsageProblem("unrecognized option '--only-job-state'", has_hint=True)
    if given.has("steps"):
        from escli.slurm.squeue_steps import show_steps

        return show_steps(context, given)
    query = _Query(given)
    pause_s = _pause_s(given)
    while True:
        frame.without_collection(lambda: _show(context, given, query))
        if not pause_s:
            return exits.OK
        sys.stdout.flush()
        time.sleep(pause_s)
        frame.print_line("")


def _pause_s(given: Options) -> int:
    text = given.last("iterate")
    if not given.has("iterate"):
        return 0
    if not text.isdecimal() or not int(text):
        raise UsageProblem(f"error: --iterate={text}")
    return int(text)


class _Query:
    """The choice of jobs, from the options. Raises UsageProblem."""

    def __init__(self, given: Options) -> None:
        environ = os.environ
        states = given.listed("states") or environ.get("SQUEUE_STATES", "").split(",")
        self.is_start = given.has("start")
        self.states = (
            words.job_states([one for one in states if one], _WRONG_STATE) if any(states) else frozenset()
        )
        """None: all. Empty: those that wait or run."""
        if self.is_start and not any(states):
            self.states = frozenset({"PENDING"})
        self.jobs = [_job(word) for word in _job_words(given)]
        self.has_jobs = given.has("jobs") and bool(self.jobs)
        self.users = _users(given)
        self.not_me = frame.user_name() if given.has("notme") else ""
        self.names = given.listed("name") or _listed(environ, "SQUEUE_NAMES")
        self.partitions = given.listed("partitions") or _listed(environ, "SQUEUE_PARTITION")
        self.accounts = given.listed("accounts") or _listed(environ, "SQUEUE_ACCOUNT")
        self.qos = given.listed("qos") or _listed(environ, "SQUEUE_QOS")
        self.licenses = given.listed("licenses") or _listed(environ, "SQUEUE_LICENSES")
        self.reservation = given.last("reservation")
        self.nodes = (
            frozenset(expand(given.last("nodelist"), "--nodelist")) if given.has("nodelist") else None
        )

    def takes(self, info: Any) -> bool:
        """Check whether the job is among the chosen ones."""
        if self.states is not None:
            if self.states and info.state not in self.states:
                return False
            if not self.states and info.state in words.ENDED:
                return False
        return self._is_named(info) and (
            (not self.users or info.user in self.users or str(info.uid) in self.users)
            and (not self.not_me or info.user != self.not_me)
            and (not self.names or info.name in self.names)
            and (not self.partitions or info.partition in self.partitions)
            and (not self.accounts or info.account in self.accounts)
            and (not self.qos or info.qos in self.qos)
            and (not self.reservation or info.reservation == self.reservation)
            and (not self.licenses or any(one.name in self.licenses for one in info.request.wide))
            and (self.nodes is None or bool(self.nodes.intersection(_node_names(info))))
        )

    def _is_named(self, info: Any) -> bool:
        if not self.has_jobs:
            return True
        ids = (info.job_id, info.array_job_id)
        task = info.array_task if info.HasField("array_task") else -1
        for job_id, number in self.jobs:
            if job_id in ids and (number < 0 or number == task or _is_waiting(info, number)):
                return True
        return False


def _is_waiting(info: Any, task: int) -> bool:
    return bool(info.array_tasks_left) and task in array_text.task_numbers(info.array_tasks_left)


def _node_names(info: Any) -> tuple[str, ...]:
    return expand(info.node_names) if info.node_names else ()


def _listed(environ: Any, name: str) -> list[str]:
    return [word for word in environ.get(name, "").split(",") if word]


def _users(given: Options) -> frozenset[str]:
    if given.has("me"):
        return frozenset({frame.user_name()})
    import pwd

    named = given.listed("user") or _listed(os.environ, "SQUEUE_USERS")
    for user in named:
        try:
            _ = pwd.getpwuid(int(user)) if user.isdecimal() else pwd.getpwnam(user)
        except (KeyError, OverflowError):
            if not user.isdecimal():
                frame.warn("squeue", f"error: Invalid user: {user}")
    return frozenset(named)


def _job_words(given: Options) -> list[str]:
    from escli.job_refs import split_jobs

    return [word for value in given.all("jobs") for word in split_jobs(value) if word]


def _job(word: str) -> tuple[int, int]:
    """(job, task) of `17`, `17_4`, `17_[4]`; task -1: all."""
    job, underscore, task = word.partition("_")
    task = task.strip("[]")
    if not job.isdecimal() or (underscore and not task.isdecimal() and task != "*"):
        raise UsageProblem(f"error: Invalid job id: {word}")
    return int(job), int(task) if task.isdecimal() else -1


def _show(context: Context, given: Options, query: _Query) -> None:
    clusters = frame.clusters_of(given, os.environ)
    with context.open_api() as api:
        if not clusters:
            _show_one(context, given, query, api)
            return
        own = frame.own_cluster(api)
        for name in frame.cell_names(api, clusters, own):
            with context.cluster_api(name, own) as cell:
                if name != own:
                    frame.check_reached(cell, name, context.command)
                if not given.has("noheader") and not frame.wants_document(given):
                    frame.print_line(f"CLUSTER: {name}")
                _show_one(context, given, query, cell)


def _show_one(context: Context, given: Options, query: _Query, api: Api) -> None:
    try:
        reply, cluster = _ask(api, query, given)
    except CommandFailed as failure:
        raise frame.Failed(f"slurm_load_jobs error: {frame.trouble(failure)}") from None
    # Without it one unknown job is an error, beside others it is none.
    must_exist = len(query.jobs) == 1 and not given.has("only-job-state")
    if query.has_jobs and must_exist and not any(map(query._is_named, reply.jobs)):
        raise frame.Failed(NO_JOB)
    infos = [info for info in reply.jobs if query.takes(info) and is_shown(info)]
    around = job_fields.Around(
        reply.now_us,
        cluster,
        context.release,
        frame.moment_writer(os.environ),
        frame.group_name,
        has_own_units=given.has("noconvert"),
    )
    if given.has("array"):
        infos = unfolded(infos)
    infos = sorted_by(
        infos, given.last("sort") or os.environ.get("SQUEUE_SORT", ""), around, is_start=query.is_start
    )
    if frame.wants_document(given):
        from eslurm.compat.slurm.job_json import jobs_document

        frame.write_document(given, jobs_document(infos, around, sys.argv, reply.now_us))
        return
    if given.has("long") and not given.has("noheader"):
        frame.print_line(frame.now_line())
    lines = table(_columns(given), infos, around, has_header=not given.has("noheader"))
    sys.stdout.write("".join(lines))


def _ask(api: Api, query: _Query, given: Options) -> tuple[Any, str]:
    from eslurm.v1 import controller_pb2 as pb

    request = pb.JobsRequest(
        finished_too=query.has_jobs or query.states is None or bool(query.states & words.ENDED)
    )
    if len(query.users) == 1:
        request.user = next(iter(query.users))
    for job_id, _task in query.jobs:
        request.jobs.add(job_id=job_id)
    reply = api.call("Jobs", request)
    if query.is_start:
        _add_starts(api, reply)
    needs_name = frame.wants_document(given) or "cluster" in given.last("Format").lower()
    return reply, frame.own_cluster(api) if needs_name else ""


def _add_starts(api: Api, reply: Any) -> None:
    from escli.user.plan_table import next_starts
    from eslurm.v1 import controller_pb2 as pb

    starts = next_starts(api.call("Plan", pb.PlanRequest(limit=10_000)))
    for info in reply.jobs:
        if info.state == "PENDING" and info.job_id in starts:
            info.planned_start_us, info.planned_nodes = (
                starts[info.job_id].start_us,
                starts[info.job_id].nodes,
            )


def is_shown(info: Any) -> bool:
    """Check that the record stands for a job, or for tasks that wait: not for an array whose tasks all have begun, nor for a
    running job's request for more nodes.
    """
    return not info.grows and (bool(info.array_tasks_left) or not array_text.is_array(info))


def unfolded(infos: Sequence[Any]) -> list[Any]:
    """One record for each waiting task of an array."""
    found: list[Any] = []
    for info in infos:
        if not info.array_tasks_left:
            found.append(info)
            continue
        for task in array_text.task_numbers(info.array_tasks_left):
            one = type(info)()
            one.CopyFrom(info)
            one.array_job_id, one.array_task = info.job_id, task
            found.append(one)
    return found


def sorted_by(
    infos: Sequence[Any], text: str, around: job_fields.Around, *, is_start: bool = False
) -> list[Any]:
    """The jobs in the order of `P,t,-p`: the first letter counts most. Raises UsageProblem."""
    found = sorted(infos, key=lambda info: job_fields.SORT_KEYS["i"](info, around))
    for word in reversed((text or ("S" if is_start else job_fields.DEFAULT_SORT)).split(",")):
        is_down = word.startswith("-")
        for letter in reversed(word.lstrip("+-")):
            key = job_fields.SORT_KEYS.get(letter)
            if key is None:
                raise UsageProblem(f"error: Invalid sort specification: {letter}")
            found.sort(key=_key(key, around), reverse=is_down)
    return found


def _key(key: Callable[[Any, job_fields.Around], Any], around: job_fields.Around) -> Callable[[Any], Any]:
    return lambda info: key(info, around)


def _columns(given: Options) -> list[Column]:
    """The columns of the last of -o, -O, -l, --start; else of SQUEUE_FORMAT. Raises UsageProblem."""
    shapes = [row.long for row, _, _ in given.found if row.long in ("format", "Format")]
    if shapes:
        return named_columns(given.last(shapes[-1]), are_letters=shapes[-1] == "format")
    if given.has("start"):
        return named_columns(job_fields.START, are_letters=True)
    if given.has("long"):
        return named_columns(job_fields.LONG, are_letters=True)
    for name in ("SQUEUE_FORMAT", "SQUEUE_FORMAT2"):
        if os.environ.get(name):
            return named_columns(os.environ[name], are_letters=name == "SQUEUE_FORMAT")
    return named_columns(job_fields.DEFAULT, are_letters=True)


def named_columns(text: str, *, are_letters: bool) -> list[Column]:
    """The columns of a format, each by the name of its field. Raises UsageProblem."""
    text = job_fields.ALL if are_letters and text.lower() == "%all" else text
    return layout.fields(text, job_fields.BY_LETTER, job_fields.BY_LOWER, "job", are_letters=are_letters)


def table(
    columns: Sequence[Column], infos: Sequence[Any], around: job_fields.Around, *, has_header: bool
) -> list[str]:
    """The lines, each with its end."""
    shown = [
        (column, column.key not in job_fields.UNCUT, job_fields.FIELDS[column.key] if column.key else None)
        for column in columns
    ]
    lines = []
    if has_header:
        heads = [
            column.show(field[1] if field else "", is_cut=column.key not in job_fields.UNCUT_HEADS)
            for column, _, field in shown
        ]
        lines.append("".join(heads) + "\n")
    for info in infos:
        cells = [
            column.show(field[2](info, around) if field else "", is_cut=is_cut)
            for column, is_cut, field in shown
        ]
        lines.append("".join(cells) + "\n")
    return lines
