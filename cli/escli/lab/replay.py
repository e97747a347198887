"""`eslurm replay`: an exported log, played to a moment and shown in the tables of esqueue and esinfo.

Exit codes: 0 shown, or no contradiction found; 1 the file is damaged or cannot be played; 2 wrong usage; 5 a contradiction
was found (`--until-violation`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from escli import clock, exits
from escli.admin import show
from escli.as_json import fields_of
from escli.tables import render
from escli.user import queue_columns
from escli.user.esinfo import by_node, by_partition
from eslurm.api.infos import job_info, node_info, partition_info, partitions_of_nodes
from eslurm.compat.errors import OptionError, whole_number
from eslurm.compat.moments import format_moment, parse_moment
from eslurm.core.model.job import Job
from eslurm.core.model.job_states import FINAL
from eslurm.core.state.cluster import State
from eslurm.core.state.view import View
from eslurm.ports.store import LoggedFact
from eslurm.replay.logfile import DamagedLog, LogFile
from eslurm.replay.player import CannotApply, Player, Verdict, decoded, find_violation, listed
from eslurm.v1 import controller_pb2 as pb

VIOLATION = 5
_FACTS_MAX = 1_000_000_000
_HASH_CHARS_SHOWN = 12


class Wanted(msgspec.Struct, frozen=True):
    """The requested output. `facts` is a range of revisions as given."""

    at: str = ""
    queue: bool = False
    nodes: bool = False
    job: int = 0
    facts: str = ""
    until_violation: bool = False
    as_json: bool = False


class CannotReplay(Exception):
    """The error text, in one line, and the exit code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def run(path: Path, wanted: Wanted, say: Callable[[str], None]) -> int:
    """Do the requested work; returns the exit code. Raises `CannotReplay`."""
    try:
        log = LogFile(path)
        if wanted.facts:
            return _facts(log, wanted, say)
        if wanted.until_violation:
            return _violation(log, wanted, say)
        return _picture(log, wanted, say)
    except OSError as error:
        raise CannotReplay(exits.USAGE, f"{path}: cannot be read: {error.strerror}") from None
    except (DamagedLog, CannotApply) as error:
        raise CannotReplay(exits.FAILED, str(error)) from None
    except OptionError as error:
        raise CannotReplay(exits.USAGE, str(error)) from None


# ---- a moment ----


def _picture(log: LogFile, wanted: Wanted, say: Callable[[str], None]) -> int:
    player = Player(log)
    at_us = _moment(log, wanted.at)
    begins_us = _begins_us(log, player)
    if at_us is not None and at_us < begins_us:
        begins = format_moment(begins_us, clock.local_offset_s)
        raise CannotReplay(exits.USAGE, f"--at: {wanted.at} lies before {begins}, where the log begins")
    player.play(until_us=at_us, progress=_progress)
    ended = player.peek() is None
    picture = StateView(player.state, player.state.now_us if at_us is None else at_us)
    ends_us = max(player.state.now_us, log.header.exported_us)
    note = ""
    if ended and picture.now_us > ends_us:
        # The time after the log's end is unknown: clocks stop there.
        picture.now_us = ends_us
        note = f"the log ends at {format_moment(ends_us, clock.local_offset_s)}: that is what is shown"
    if wanted.as_json:
        say(json.dumps(_as_json(log, picture, wanted, ended), indent=1))
    else:
        say("\n".join(_as_text(log, picture, wanted, note)).rstrip("\n"))
    return exits.OK


def _moment(log: LogFile, text: str) -> int | None:
    """The requested time. A clock time is that of the day on which the log ends."""
    if not text:
        return None
    end = log.find_end()
    now_us = end.last_us if end is not None and end.last_us else log.header.exported_us
    return parse_moment(text, now_us, clock.local_offset_s, "--at", past=True)


def _begins_us(log: LogFile, player: Player) -> int:
    if log.base:
        return player.state.now_us
    first = player.peek()
    return first.at_us if first is not None else 0


class StateView:
    """A state as the messages that commands show."""

    def __init__(self, state: State, now_us: int) -> None:
        self.state = state
        self.now_us = now_us

    def queue(self) -> list[pb.JobInfo]:
        """The jobs that wait and run, as esqueue orders them."""
        chosen = [
            self.job(job) for job in self.state.jobs.values() if job.state not in FINAL or job.tasks_running
        ]
        # As esqueue: an array's record whose last tasks are running has nothing to show that they do not.
        chosen = [info for info in chosen if info.array_tasks_left or not info.tasks_running]
        return sorted(chosen, key=queue_columns.sort_key)

    def job(self, job: Job) -> pb.JobInfo:
        """One job. Its waiting reason is not in the log: plans are made of facts, not kept."""
        info = job_info(self.state, job, None)
        if info.reason_text == "not looked at by a plan yet":
            info.reason = info.reason_text = ""
        return info

    def nodes(self) -> list[pb.NodeInfo]:
        """All nodes in configured order."""
        view = View(self.state)
        inside = partitions_of_nodes(view.config)
        return [
            node_info(view, node, inside.get(node.name, []), sorted(view.jobs_on.get(number, ())))
            for number, node in sorted(view.nodes.items())
        ]

    def partitions(self) -> list[pb.PartitionInfo]:
        """All partitions."""
        return [partition_info(partition) for partition in self.state.config.partitions]


def _as_text(log: LogFile, picture: StateView, wanted: Wanted, note: str) -> Iterator[str]:
    state = picture.state
    names = " (names replaced)" if log.header.anonymised else ""
    yield (
        f"cluster {log.header.cluster}{names} at {format_moment(picture.now_us, clock.local_offset_s)}: "
        f"revision {state.revision}, epoch {state.epoch}, {state.active_count} jobs running, "
        f"{state.pending_count} pending"
    )
    if note:
        yield note
    everything = not (wanted.queue or wanted.nodes or wanted.job)
    if wanted.queue or everything:
        columns, cells = queue_columns.by_letters(queue_columns.DEFAULT)
        yield ""
        yield render(columns, queue_columns.fill(picture.queue(), cells, picture.now_us)).rstrip("\n")
    if wanted.nodes:
        yield ""
        yield by_node(picture.nodes(), True, is_long=True).rstrip("\n")
    elif everything:
        yield ""
        yield by_partition(picture.nodes(), picture.partitions(), True, is_long=False).rstrip("\n")
    if wanted.job:
        yield ""
        yield show.job_block(picture.job(_job(state, wanted.job)), picture.now_us)


def _as_json(log: LogFile, picture: StateView, wanted: Wanted, ended: bool) -> dict[str, Any]:
    state = picture.state
    found: dict[str, Any] = {
        "cluster": log.header.cluster,
        "anonymised": log.header.anonymised,
        "at_us": picture.now_us,
        "revision": state.revision,
        "revision_us": state.now_us,
        "epoch": state.epoch,
        "log_ended": ended,
    }
    everything = not (wanted.queue or wanted.nodes or wanted.job)
    if wanted.queue or everything:
        found["jobs"] = [fields_of(info) for info in picture.queue()]
    if wanted.nodes or everything:
        found["nodes"] = [fields_of(info) for info in picture.nodes()]
        found["partitions"] = [fields_of(info) for info in picture.partitions()]
    if wanted.job:
        found["job"] = fields_of(picture.job(_job(state, wanted.job)))
    return found


def _job(state: State, job_id: int) -> Job:
    job = state.find_job(job_id)
    if job is None:
        text = (
            f"job {job_id} is not in the cluster's memory at that moment: it came later, or had ended before"
        )
        raise CannotReplay(exits.FAILED, text)
    return job


# ---- facts ----


def _facts(log: LogFile, wanted: Wanted, say: Callable[[str], None]) -> int:
    first, last = _range(wanted.facts)
    shown = (_fact(fact) for fact in listed(log, first, last))
    if wanted.as_json:
        say(json.dumps(list(shown), indent=1))
        return exits.OK
    for one in shown:
        content = json.dumps(one["fact"], separators=(",", ":"))
        at = format_moment(one["at_us"], clock.local_offset_s)
        say(f"{one['revision']:>8} {at} {one['epoch']:>3} {one['kind']} {content}")
    return exits.OK


def _range(text: str) -> tuple[int, int]:
    """`100-200`, `100-` or `100`."""
    low, dash, high = text.partition("-")
    first = whole_number(low, 9)
    last = whole_number(high, 9) if high else (_FACTS_MAX if dash else first)
    if first < 0 or last < first:
        raise OptionError("--facts", text, "is no range of revisions", "use e.g. --facts 100-200")
    return first, last


def _fact(fact: LoggedFact) -> dict[str, Any]:
    return {
        "revision": fact.revision,
        "at_us": fact.at_us,
        "epoch": fact.epoch,
        "kind": fact.kind,
        "fact": named(decoded(fact)),
    }


def named(value: Any) -> Any:
    """A struct of the core as plain names and values (they are stored as arrays); long hashes shortened."""
    if isinstance(value, msgspec.Struct):
        return {name: named(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, (tuple, list)):
        return [named(one) for one in value]
    if isinstance(value, frozenset):
        return sorted(named(one) for one in value)
    if isinstance(value, bytes):
        return value.hex()[:_HASH_CHARS_SHOWN]
    return getattr(value, "value", value)


# ---- contradictions ----


def _violation(log: LogFile, wanted: Wanted, say: Callable[[str], None]) -> int:
    verdict = find_violation(log, until_us=_moment(log, wanted.at), progress=_progress)
    say(json.dumps(_verdict(verdict), indent=1) if wanted.as_json else _story(verdict))
    return VIOLATION if verdict.violation is not None else exits.OK


def _verdict(verdict: Verdict) -> dict[str, Any]:
    found: dict[str, Any] = {"facts": verdict.facts, "whole_checks": verdict.whole_checks, "violation": None}
    if verdict.violation is not None:
        one = verdict.violation
        found["violation"] = {
            "revision": one.fact.revision,
            "at_us": one.fact.at_us,
            "epoch": one.fact.epoch,
            "kind": one.fact.kind,
            "fact": named(one.content) if one.content is not None else None,
            "text": one.text,
            "objects": list(one.objects),
        }
    return found


def _story(verdict: Verdict) -> str:
    """The finding, or the extent of the checks without one."""
    how = (
        f"{verdict.facts} facts played; the records that each changed were checked after it, "
        f"the whole state {verdict.whole_checks} times"
    )
    one = verdict.violation
    if one is None:
        return f"no contradiction: {how}"
    content = (
        json.dumps(named(one.content), separators=(",", ":")) if one.content is not None else "unreadable"
    )
    lines = [
        f"contradiction after revision {one.fact.revision} "
        f"({format_moment(one.fact.at_us, clock.local_offset_s)}, epoch {one.fact.epoch}): {one.text}",
        f"  fact   {one.fact.kind} {content}",
    ]
    lines += [f"  {line}" for line in one.objects]
    return "\n".join([*lines, f"  {how}"])


def _progress(played: int) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"eslurm: {played} facts played\n")
