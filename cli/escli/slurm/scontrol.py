"""`scontrol`: records of jobs, nodes and partitions; hold, release, requeue, suspend, resume, update."""

from __future__ import annotations

import os
import sys
import time

from escli import exits
from escli.failures import CommandFailed
from escli.slurm import frame
from escli.slurm.squeue import is_shown
from eslurm.compat.errors import OptionError
from eslurm.compat.hostlist import expand, fold
from eslurm.compat.slurm import job_fields, records, reservation_words, words
from eslurm.compat.slurm.release import version_line
from eslurm.compat.slurm.scontrol_options import COMMANDS
from eslurm.compat.slurm.scontrol_options import ROWS as ROWS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, TypeAlias

    from escli.api import Api
    from escli.slurm.frame import Context
    from eslurm.compat.slurm.getopt import Options

    Action: TypeAlias = Callable[["_Call", Sequence[str]], int]

NO_JOB = "slurm_load_jobs error: Invalid job id specified"
_FLAGS = ("oneliner", "details", "all", "hide", "quiet", "verbose")
_POLL_S = 1.0


class _Call:
    """One command: its surroundings and flags. `api` is opened where it is first needed."""

    def __init__(self, context: Context, given: Options) -> None:
        self.context = context
        self.given = given
        self.is_oneliner = given.has("oneliner")
        self.has_details = given.has("details")
        self.has_document = frame.wants_document(given)
        self._api: Api | None = None

    @property
    def api(self) -> Api:
        if self._api is None:
            clusters = frame.clusters_of(self.given, os.environ)
            self._api = self.context.open_api()
            if clusters:
                self._api = self.context.cluster_api(clusters[0], frame.own_cluster(self._api))
        return self._api

    def close(self) -> None:
        if self._api is not None:
            self._api.__exit__()

    def around(self, now_us: int) -> job_fields.Around:
        """The data that cells need besides the record."""
        moment = frame.moment_writer(os.environ)
        return job_fields.Around(now_us, "", self.context.release, moment, frame.group_name)


def run(context: Context, given: Options) -> int:
    """The command; returns the exit code."""
    call = _Call(context, given)
    rest = list(given.rest)
    while rest and rest[0].lower() in _FLAGS:
        word = rest.pop(0).lower()
        call.is_oneliner |= word == "oneliner"
        call.has_details |= word == "details"
    if not rest:
        raise frame.Failed("scontrol: error: the interactive mode is not supported: give a command")
    word = _command(rest[0].lower())
    try:
        return _ACTIONS[word](call, rest[1:])
    finally:
        call.close()


def _command(word: str) -> str:
    """The command that a word, or its beginning, names. Raises Failed."""
    found = [name for name in COMMANDS if name == word] or [
        name for name in COMMANDS if name.startswith(word)
    ]
    if not found:
        raise frame.Failed(f"invalid keyword: {word}")
    for name in found:
        if name in _ACTIONS:
            return name
    status = COMMANDS[found[0]].partition(" ")[2]
    raise frame.Failed(f"scontrol: error: {found[0]} is not supported: {status}")


# ---- show ----


def _show(call: _Call, rest: Sequence[str]) -> int:
    if not rest:
        raise frame.Failed("too few arguments for keyword:show")
    subject, equals, name = rest[0].partition("=")
    named = list(rest[1:])
    subject = subject.lower()
    if equals:
        subject, named = subject.removesuffix("id").removesuffix("name"), [name, *named]
    for known, action in _SUBJECTS.items():
        if len(subject) >= 3 and (known.startswith(subject) or subject == f"{known}s"):
            return action(call, named)
    raise frame.Failed(
        f"scontrol: error: show {subject} is not supported: see docs/reference/slurm-commands.md"
    )


def _show_jobs(call: _Call, named: Sequence[str]) -> int:
    from escli.job_refs import job_refs, split_jobs
    from eslurm.v1 import controller_pb2 as pb

    parts = [part for word in named for part in split_jobs(word)]
    try:
        refs = job_refs(parts, "job")
    except OptionError:
        raise frame.Failed(NO_JOB) from None
    try:
        reply = call.api.call("Jobs", pb.JobsRequest(jobs=refs, finished_too=True))
    except CommandFailed as failure:
        raise frame.Failed(f"slurm_load_jobs error: {frame.trouble(failure)}") from None
    found = _with_tasks(call.api, reply.jobs, refs)
    if named and not found:
        raise frame.Failed(NO_JOB)
    fill_ended(call.api, found)
    around = call.around(reply.now_us)
    if call.has_document:
        from eslurm.compat.slurm.job_json import jobs_document

        frame.write_document(call.given, jobs_document(found, around, sys.argv, reply.now_us))
        return exits.OK
    if not found:
        frame.print_line("No jobs in the system")
    for info in found:
        sys.stdout.write(
            records.job_record(info, around, is_oneliner=call.is_oneliner, has_details=call.has_details)
        )
    return exits.OK


def _with_tasks(api: Api, infos: Sequence[Any], refs: Sequence[Any]) -> list[Any]:
    """The records that stand for jobs; of an array that is named as a whole its tasks, too."""
    from eslurm.v1 import controller_pb2 as pb

    whole = {ref.job_id for ref in refs if not ref.HasField("task")}
    found = {info.job_id: info for info in infos}
    if whole.intersection(info.job_id for info in infos if not is_shown(info) or info.array_tasks_left):
        everything = api.call("Jobs", pb.JobsRequest(finished_too=True))
        found |= {info.job_id: info for info in everything.jobs if info.array_job_id in whole}
    return [info for _, info in sorted(found.items()) if is_shown(info)]


def fill_ended(api: Api, infos: Sequence[Any]) -> None:
    """Add the nodes of jobs that have ended, which accounting alone remembers."""
    from eslurm.v1 import controller_pb2 as pb

    ended = {info.job_id: info for info in infos if info.state in words.ENDED and info.started_us}
    if not ended:
        return
    request = pb.AccountingRequest(jobs=[pb.JobRef(job_id=job_id) for job_id in ended], limit=10_000)
    for run in api.call("Accounting", request).attempts:
        info = ended.get(run.job_id)
        if info is not None:
            info.node_names, info.nodes, info.cpus = run.node_names, run.nodes, run.cpus


def _show_nodes(call: _Call, named: Sequence[str]) -> int:
    from eslurm.v1 import controller_pb2 as pb

    names = [name for word in named if word.upper() != "ALL" for name in expand(word, "node")]
    try:
        reply = call.api.call("Nodes", pb.NodesRequest(names=names))
    except CommandFailed as failure:
        if failure.code == exits.UNREACHABLE:
            raise frame.Failed(f"slurm_load_node error: {frame.trouble(failure)}") from None
        reply = pb.NodesReply()
    nodes = [node for node in reply.nodes if "LOGIN" not in node.flags]
    around = call.around(reply.now_us)
    known = {node.name for node in nodes}
    missing = next((name for name in names if name not in known), "")
    if call.has_document:
        from eslurm.compat.slurm.node_json import nodes_document

        frame.write_document(call.given, nodes_document(nodes, call.context.release, sys.argv))
        return exits.FAILED if missing else exits.OK
    for node in nodes:
        sys.stdout.write(records.node_record(node, around, is_oneliner=call.is_oneliner))
    if missing:
        frame.print_line(f"Node {missing} not found")
        return exits.FAILED
    return exits.OK


def _show_partitions(call: _Call, named: Sequence[str]) -> int:
    from eslurm.v1 import controller_pb2 as pb

    reply = call.api.call("Nodes", pb.NodesRequest())
    found = [one for one in reply.partitions if not one.role and (not named or one.name in named)]
    around = call.around(reply.now_us)
    if named and not found:
        frame.print_line(f"Partition {named[0]} not found")
        return exits.FAILED
    if call.has_document:
        from eslurm.compat.slurm.node_json import partitions_document

        frame.write_document(
            call.given, partitions_document(found, reply.nodes, call.context.release, sys.argv)
        )
        return exits.OK
    for one in found:
        sys.stdout.write(records.partition_record(one, reply.nodes, around, is_oneliner=call.is_oneliner))
    return exits.OK


def _show_hostnames(_call: _Call, named: Sequence[str]) -> int:
    text = named[0] if named else os.environ.get("SLURM_JOB_NODELIST", "")
    if not text:
        raise frame.Failed("scontrol: error: host list is empty")
    try:
        frame.print_line("\n".join(expand(text, "hostnames")))
    except OptionError:
        raise frame.Failed(f"Invalid hostlist: {text}") from None
    return exits.OK


def _show_hostlist(_call: _Call, named: Sequence[str]) -> int:
    frame.print_line(fold(_hosts(named)))
    return exits.OK


def _show_sorted(_call: _Call, named: Sequence[str]) -> int:
    frame.print_line(fold(sorted(set(_hosts(named)), key=_natural)))
    return exits.OK


def _natural(name: str) -> tuple[str, int, str]:
    stem = name.rstrip("0123456789")
    digits = name[len(stem) :]
    return stem, int(digits) if digits else -1, name


def _hosts(named: Sequence[str]) -> tuple[str, ...]:
    if not named:
        raise frame.Failed("Hostlist is NULL")
    text = named[0]
    if text.startswith("/"):
        try:
            with open(text, encoding="utf-8") as file:
                text = ",".join(file.read().replace(",", " ").split())
        except OSError:
            raise frame.Failed(f"Can't open {named[0]}") from None
    try:
        return expand(text, "hostlist")
    except OptionError:
        raise frame.Failed(f"Invalid hostlist: {text}") from None


def _show_config(call: _Call, _named: Sequence[str]) -> int:
    from escli.slurm.config_text import config_text

    sys.stdout.write(config_text(call.api, call.context.release, frame.moment_writer(os.environ)))
    return exits.OK


def _show_licenses(call: _Call, named: Sequence[str]) -> int:
    from escli.slurm.scontrol_site import show_licenses

    _no_document(call, "licenses", "esctl show config")
    return show_licenses(call.api, named, is_oneliner=call.is_oneliner)


def _show_reservations(call: _Call, named: Sequence[str]) -> int:
    from escli.slurm.scontrol_site import show_reservations

    _no_document(call, "reservation", "esctl reservation show")
    return show_reservations(call.api, named, call.context.release, is_oneliner=call.is_oneliner)


def _show_topology(call: _Call, named: Sequence[str]) -> int:
    from escli.slurm.scontrol_site import show_topology

    _no_document(call, "topology", "esctl show config")
    return show_topology(call.api, named)


def _show_steps(call: _Call, named: Sequence[str]) -> int:
    from escli.slurm.scontrol_steps import show_steps

    _no_document(call, "step", "esctl show step")
    return show_steps(call.api, named, frame.moment_writer(os.environ), is_oneliner=call.is_oneliner)


def _show_daemons(call: _Call, _named: Sequence[str]) -> int:
    from escli.slurm.scontrol_cluster import show_daemons

    return show_daemons(call.api)


def _no_document(call: _Call, subject: str, other: str) -> None:
    if call.has_document:
        form = "yaml" if call.given.has("yaml") else "json"
        raise frame.Failed(f"scontrol: error: show {subject} --{form} is not supported: use {other} --json")


# ---- changes ----


def _ping(call: _Call, _rest: Sequence[str]) -> int:
    from eslurm.v1 import controller_pb2 as pb

    try:
        reply = call.api.call("Controllers", pb.ControllersRequest(), 5.0)
    except CommandFailed as failure:
        if failure.code != exits.UNREACHABLE:
            raise
        frame.print_line("Slurmctld(primary) is DOWN")
        return exits.FAILED
    ordered = sorted(reply.controllers, key=lambda one: one.role != "leader")
    for place, one in enumerate(ordered):
        role = "primary" if not place else "backup" if len(ordered) == 2 else f"backup{place}"
        frame.print_line(f"Slurmctld({role}) at {one.name} is UP")
    return exits.OK


def _version(call: _Call, _rest: Sequence[str]) -> int:
    frame.print_line(version_line(call.context.release))
    return exits.OK


def _help(_call: _Call, _rest: Sequence[str]) -> int:
    for name, status in COMMANDS.items():
        frame.print_line(f"     {name:<24} {status.partition(' ')[2]}")
    return exits.OK


def _hold(call: _Call, rest: Sequence[str]) -> int:
    return _change_jobs(call, "hold", rest)


def _release(call: _Call, rest: Sequence[str]) -> int:
    return _change_jobs(call, "release", rest)


def _requeue(call: _Call, rest: Sequence[str]) -> int:
    return _change_jobs(call, "requeue", rest)


def _requeue_hold(call: _Call, rest: Sequence[str]) -> int:
    if rest and rest[0].lower().partition("=")[0] == "state":
        raise frame.Failed(f"scontrol: error: {rest[0]} is not supported: held jobs have no special state")
    return _change_jobs(call, "requeuehold", rest)


def _suspend(call: _Call, rest: Sequence[str]) -> int:
    return _change_jobs(call, "suspend", rest)


def _resume(call: _Call, rest: Sequence[str]) -> int:
    return _change_jobs(call, "resume", rest)


def _change_jobs(call: _Call, action: str, rest: Sequence[str]) -> int:
    from eslurm.v1 import controller_pb2 as pb

    if not rest:
        raise frame.Failed(f"too few arguments for keyword:{action}")
    jobs = _jobs(call, rest)
    if action in ("hold", "release"):
        reply = call.api.call(
            "Hold", pb.HoldRequest(jobs=jobs, release=action == "release"), request_id=os.urandom(16)
        )
    elif action in ("requeue", "requeuehold"):
        request = pb.RequeueRequest(jobs=jobs, hold=action == "requeuehold")
        reply = call.api.call("Requeue", request, request_id=os.urandom(16))
    else:
        reply = call.api.call(
            "Suspend", pb.SuspendRequest(jobs=jobs, resume=action == "resume"), request_id=os.urandom(16)
        )
    code = _told(reply)
    if action == "release" and any(problem.code == "not_found" for problem in reply.problems):
        frame.print_error("slurm_suspend error: Invalid job id specified")
    return code


def _top(call: _Call, rest: Sequence[str]) -> int:
    """The first job that is named is first in the end."""
    from eslurm.v1 import controller_pb2 as pb

    if not rest:
        raise frame.Failed("too few arguments for keyword:top")
    code = exits.OK
    for ref in reversed(_jobs(call, rest)):
        try:
            call.api.call("TopJob", pb.TopJobRequest(job=ref), request_id=os.urandom(16))
        except CommandFailed as failure:
            frame.print_error(f"{frame.trouble(failure)} for job {ref.job_id}")
            code = exits.FAILED
    return code


def _jobs(call: _Call, rest: Sequence[str]) -> list[Any]:
    """The jobs that the words name: by ids, or by `jobname=NAME`. Raises Failed."""
    from escli.job_refs import job_refs, split_jobs
    from eslurm.v1 import controller_pb2 as pb

    found = []
    for word in rest:
        key, equals, value = word.partition("=")
        if equals and key.lower() in ("name", "jobname"):
            reply = call.api.call("Jobs", pb.JobsRequest(name=value))
            found += [pb.JobRef(job_id=info.job_id) for info in reply.jobs]
            continue
        for part in split_jobs(value if equals and key.lower() in ("jobid", "job") else word):
            try:
                found += job_refs([part], "job")
            except OptionError:
                raise frame.Failed(f"Invalid job id specified for job {part}") from None
    return found


def _told(reply: Any) -> int:
    for problem in reply.problems:
        text = "Invalid job id specified" if problem.code == "not_found" else str(problem.text)
        frame.print_error(f"{text} for job {problem.what}" if problem.what else text)
    return exits.FAILED if reply.problems else exits.OK


def _update(call: _Call, rest: Sequence[str]) -> int:
    keys = [word.partition("=")[0].lower() for word in rest]
    if not rest:
        raise frame.Failed("No valid entity in update command")
    if "jobid" in keys or "job" in keys:
        return _update_job(call, rest)
    if keys[0].startswith("nodename"):
        return _update_node(call, rest)
    if "partitionname" in keys and not any(key in reservation_words.NAME for key in keys):
        from escli.slurm.scontrol_cluster import update_partition

        return update_partition(call.api, rest)
    if any(key in reservation_words.NAME for key in keys):
        from escli.slurm import scontrol_reservation

        return scontrol_reservation.update(call.api, rest)
    raise frame.Failed(f"Update of this parameter is not supported: {rest[0]}", "Request aborted")


def _update_job(call: _Call, rest: Sequence[str]) -> int:
    from escli.admin.updates import job_update

    job = next(word for word in rest if word.partition("=")[0].lower() in ("jobid", "job"))
    others = [word for word in rest if word is not job]
    job_id = job.partition("=")[2]
    for word in others:
        if word.lower() in ("hold", "holdjob"):
            return _change_jobs(call, "hold", [job_id])
    try:
        reply = call.api.call(
            "UpdateJob", job_update(call.api, [f"JobId={job_id}", *others]), request_id=os.urandom(16)
        )
    except OptionError as error:
        if "cannot be updated" in str(error):
            raise frame.Failed(
                f"Update of this parameter is not supported: {error.value}", "Request aborted"
            ) from None
        raise
    return _told(reply)


_STATES: Mapping[str, str] = {
    "drain": "drain",
    "resume": "resume",
    "undrain": "resume",
    "down": "lost",
    "idle": "resume",
}


def _update_node(call: _Call, rest: Sequence[str]) -> int:
    from eslurm.v1 import controller_pb2 as pb

    values = {key.lower(): value for key, _, value in (word.partition("=") for word in rest)}
    for word in rest:
        if word.partition("=")[0].lower() not in ("nodename", "state", "reason"):
            raise frame.Failed(f"Update of this parameter is not supported: {word}", "Request aborted")
    action = _STATES.get(values.get("state", "").lower())
    if action is None:
        raise frame.Failed(f"Invalid input: State={values.get('state', '')}", "Request aborted")
    if action in ("drain", "lost") and not values.get("reason"):
        raise frame.Failed("You must specify a reason when DOWNING a node", "Request denied")
    names = list(expand(values["nodename"], "NodeName"))
    request = pb.UpdateNodesRequest(names=names, action=action, reason=values.get("reason", ""))
    reply = call.api.call("UpdateNodes", request, request_id=os.urandom(16))
    for problem in reply.problems:
        frame.print_error(f"slurm_update error: {problem.text}")
    for note in reply.notes:
        frame.print_error(f"slurm_update: {note}")
    return exits.FAILED if reply.problems else exits.OK


def _reconfigure(call: _Call, rest: Sequence[str]) -> int:
    from escli.admin.reconfigure import ask

    if rest:
        raise frame.Failed(f"too many arguments for keyword:reconfigure {rest[0]}")
    reply = ask(call.api)
    for problem in reply.problems:
        text = f"{problem.what}: {problem.text}" if problem.what else problem.text
        frame.print_error(f"slurm_reconfigure error: {text}")
    for key in reply.needs_restart:
        frame.print_error(f"{key}: needs a restart of the controller")
    return exits.FAILED if reply.problems else exits.OK


def _create(call: _Call, rest: Sequence[str]) -> int:
    from escli.slurm import scontrol_reservation

    entity = rest[0].partition("=")[0].lower() if rest else ""
    if entity in reservation_words.NAME:
        # The word `reservation` alone only says what is created.
        words = rest if "=" in rest[0] else rest[1:]
        return scontrol_reservation.create(call.api, words)
    raise frame.Failed(
        f"scontrol: error: create {entity} is not supported: edit the file, then reconfigure"
        if entity
        else "scontrol: error: Invalid creation entity: use create reservation"
    )


def _delete(call: _Call, rest: Sequence[str]) -> int:
    from escli.slurm import scontrol_reservation

    entity, _, name = rest[0].partition("=") if rest else ("", "", "")
    name = name or (rest[1].partition("=")[2] or rest[1] if len(rest) > 1 else "")
    if entity.lower() in reservation_words.NAME and name:
        return scontrol_reservation.delete(call.api, name)
    raise frame.Failed(
        f"scontrol: error: delete {entity} is not supported: edit the file, then reconfigure"
        if entity and entity.lower() not in reservation_words.NAME
        else "scontrol: error: Invalid deletion entity: use delete ReservationName=NAME"
    )


def _token(call: _Call, rest: Sequence[str]) -> int:
    from escli.slurm.scontrol_cluster import token

    return token(call.api, rest)


def _takeover(call: _Call, rest: Sequence[str]) -> int:
    from escli.slurm.scontrol_cluster import takeover

    return takeover(call.api, rest)


def _list_steps(call: _Call, rest: Sequence[str]) -> int:
    from escli.slurm.scontrol_steps import list_steps

    return list_steps(call.api, rest)


def _list_pids(call: _Call, rest: Sequence[str]) -> int:
    from escli.slurm.scontrol_steps import list_pids

    return list_pids(call.api, rest)


def _write(call: _Call, rest: Sequence[str]) -> int:
    from escli.admin.scripts import fetched, print_bytes, write

    subject = rest[0].lower() if rest else ""
    if not subject or not "batch_script".startswith(subject):
        raise frame.Failed(
            f"scontrol: error: write {subject} is not supported: use write batch_script JOB [FILE|-]"
        )
    if not 2 <= len(rest) <= 3:
        raise frame.Failed(f"too {'many' if len(rest) > 3 else 'few'} arguments for keyword:write")
    text = fetched(call.api, rest[1])
    path = rest[2] if len(rest) > 2 else f"slurm-{rest[1]}.sh"
    if path == "-":
        print_bytes(text)
        return exits.OK
    write(path, text)
    frame.print_line(f"batch script for job {rest[1]} written to {path}")
    return exits.OK


def _list_jobs(call: _Call, rest: Sequence[str]) -> int:
    from escli.slurm.scontrol_cluster import list_jobs

    return list_jobs(call.api, rest)


def _wait_job(call: _Call, rest: Sequence[str]) -> int:
    from escli.job_refs import job_refs
    from eslurm.v1 import controller_pb2 as pb

    if not rest:
        raise frame.Failed("too few arguments for keyword:wait_job")
    refs = job_refs([rest[0]], "wait_job")
    while True:
        reply = call.api.call("Jobs", pb.JobsRequest(jobs=refs, finished_too=True))
        if not reply.jobs or reply.jobs[0].state in words.ENDED:
            raise frame.Failed(f"Job {rest[0]} is no longer running" if reply.jobs else NO_JOB)
        if reply.jobs[0].state == "RUNNING":
            frame.print_line(f"Nodes {reply.jobs[0].node_names} are ready for job")
            return exits.OK
        time.sleep(_POLL_S)


_SUBJECTS: Mapping[str, Action] = {
    "job": _show_jobs,
    "node": _show_nodes,
    "partition": _show_partitions,
    "config": _show_config,
    "hostnames": _show_hostnames,
    "hostlist": _show_hostlist,
    "hostlistsorted": _show_sorted,
    "licenses": _show_licenses,
    "reservation": _show_reservations,
    "topology": _show_topology,
    "daemons": _show_daemons,
    "step": _show_steps,
}
_ACTIONS: Mapping[str, Action] = {
    "show": _show,
    "ping": _ping,
    "version": _version,
    "help": _help,
    "hold": _hold,
    "uhold": _hold,
    "release": _release,
    "requeue": _requeue,
    "requeuehold": _requeue_hold,
    "suspend": _suspend,
    "resume": _resume,
    "update": _update,
    "create": _create,
    "delete": _delete,
    "token": _token,
    "takeover": _takeover,
    "listjobs": _list_jobs,
    "top": _top,
    "liststeps": _list_steps,
    "listpids": _list_pids,
    "write": _write,
    "wait_job": _wait_job,
    "reconfigure": _reconfigure,
}
