"""A running job asks for changes of itself: for programs inside jobs, in Python and without anything but its library.

    from eslurm import job
    job.finish_part(1)                     # gives back the nodes of part 1
    job.extend(by=600)                     # ten minutes more
    job.grow(by=4)                         # four nodes more, as soon as that delays no promised job
    job.shrink(by=2)                       # gives two nodes back
    job.move_starts(earlier_by=1800)       # the other jobs of its pack start half an hour earlier
    job.set_dependency(42, "afterok:17")   # job 42, of the same user, waits for job 17
    job.report(idle=2, remaining_s=340)    # two of this node's cores are for others

Each call speaks one line of the protocol in docs/reference/job-protocol.md to the agent of its node, waits until the change
is durable, and returns what was before and what is after it. With `dry_run` nothing is changed. `JobError` says why not.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = [
    "Amounts",
    "Cores",
    "DependencySet",
    "Extended",
    "JobError",
    "MovedStart",
    "PartFinished",
    "Resized",
    "StartsMoved",
    "extend",
    "finish_part",
    "grow",
    "move_starts",
    "report",
    "set_dependency",
    "show",
    "shrink",
]

TIMEOUT_S = 90.0
"""For one answer. The agent itself gives up earlier."""
_ANSWER_BYTES_MAX = 8 << 20


class JobError(Exception):
    """The change was refused, or nothing is known of it; `code` is the protocol's word: INVALID, CONFLICT, UNAVAILABLE."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class Amounts:
    """Nodes of a job, each once, as a host list, and the sums of what it has there."""

    nodes: int
    node_names: str
    cpus: int
    memory_mib: int


@dataclass(frozen=True)
class PartFinished:
    """A part that is given back. `leaving` are the nodes that are free when nothing of the job is left there, `busy` those
    on which its `steps` have to end first, which got SIGKILL.
    """

    job: int
    part: int
    before: Amounts
    after: Amounts
    leaving: str
    busy: str
    steps: tuple[int, ...]


@dataclass(frozen=True)
class Extended:
    """The time limits before and after, in seconds, and the latest ends, in seconds since 1970 UTC.

    `text` is the planner's word: it gives as much as delays no other job. It has `decided`, or still has the wish.
    """

    job: int
    before_s: int
    after_s: int
    until_before: float
    until_after: float
    decided: bool
    text: str


@dataclass(frozen=True)
class Resized:
    """A change of this job's nodes. `leaving` are those that it gives back, `steps` those that had tasks there.

    `growth` is the id of the request for `more` nodes (0: none), and `state` what had become of it when the call returned:
    COMPLETED (the job has them), PENDING (it waits, until `planned_start` as planned, in seconds since 1970 UTC; 0.0: not
    known), CANCELLED. `withdrawn` is the request that had waited before (0: none). `text` says why it waits or ended.
    """

    job: int
    before: Amounts
    after: Amounts
    leaving: str
    steps: tuple[int, ...]
    growth: int
    more: int
    state: str
    planned_start: float
    withdrawn: int
    text: str


@dataclass(frozen=True)
class MovedStart:
    """Planned starts of one job, in seconds since 1970 UTC."""

    job: int
    before: float
    after: float


@dataclass(frozen=True)
class StartsMoved:
    """The starts of the pack's jobs that have not begun, which are `earlier_s` seconds earlier now.

    `text` is the planner's word: it gives as much as delays no other job. It has `decided`, or still has the wish.
    """

    pack: int
    earlier_s: float
    starts: tuple[MovedStart, ...]
    decided: bool
    text: str


@dataclass(frozen=True)
class DependencySet:
    """The conditions of another job before and after the change, as `esqueue -o %E` shows them."""

    job: int
    before: str
    after: str


@dataclass(frozen=True)
class Cores:
    """Cores of this job on this node. The application leaves `excluded` of them to others; `asked` is how many more it
    is asked for: it grants them by reporting more idle cores, or rejects. `level` is off, report or full (`--cooperate`).
    """

    job: int
    node: str
    level: str
    cores: int
    idle: int
    excluded: int
    asked: int

    @property
    def usable(self) -> int:
        """Cores on which the application may run now."""
        return self.cores - self.excluded


def finish_part(
    part: int, *, kill: bool = False, dry_run: bool = False, job: int | None = None
) -> PartFinished:
    """Give back one part of this job, which then goes on without it. With `kill` its steps end by SIGKILL."""
    found = _ask("finish-part", job, {"part": part}, kill=kill, dry_run=dry_run)
    return PartFinished(
        int(found["job"]),
        int(found["part"]),
        _amounts(found, "before"),
        _amounts(found, "after"),
        found["leaving"],
        found["busy"],
        tuple(int(step) for step in found["steps"].split(",") if step),
    )


def extend(
    *, by: int | None = None, to: int | None = None, dry_run: bool = False, job: int | None = None
) -> Extended:
    """Give this job so many seconds more, or a time limit of so many, as far as no other job's planned start is later."""
    if (by is None) == (to is None):
        raise ValueError("give one of by and to")
    found = _ask("extend", job, {"by": by} if to is None else {"to": to}, dry_run=dry_run)
    return Extended(
        int(found["job"]),
        int(found["before-s"]),
        int(found["after-s"]),
        int(found["until-before-us"]) / 1e6,
        int(found["until-after-us"]) / 1e6,
        found["decided"] == "yes",
        found["text"],
    )


def grow(
    *,
    by: int | None = None,
    to: int | None = None,
    nodes: str | None = None,
    dry_run: bool = False,
    job: int | None = None,
) -> Resized:
    """Ask for so many nodes more for this job, so many in all, or these in all (`cn[1-4]`).

    With `to` the number that it has, a request that waits is withdrawn.
    """
    return _resize("grow", job, by, to, nodes, dry_run=dry_run)


def shrink(
    *,
    by: int | None = None,
    to: int | None = None,
    nodes: str | None = None,
    dry_run: bool = False,
    job: int | None = None,
) -> Resized:
    """Give so many nodes of this job back, all but so many, or these (`cn[3-4]`); never the one where its script runs."""
    return _resize("shrink", job, by, to, nodes, dry_run=dry_run)


def _resize(
    verb: str, job: int | None, by: int | None, to: int | None, nodes: str | None, *, dry_run: bool
) -> Resized:
    given: dict[str, object] = {
        name: value for name, value in (("by", by), ("to", to), ("nodes", nodes)) if value is not None
    }
    if len(given) != 1:
        raise ValueError("give one of by, to and nodes")
    found = _ask(verb, job, given, dry_run=dry_run)
    return Resized(
        int(found["job"]),
        _amounts(found, "before"),
        _amounts(found, "after"),
        found["leaving"],
        tuple(int(step) for step in found["steps"].split(",") if step),
        int(found["growth"]),
        int(found["more"]),
        found["growth-state"],
        int(found["planned-start-us"]) / 1e6,
        int(found["withdrawn"]),
        found["text"],
    )


def move_starts(
    *,
    earlier_by: int | None = None,
    to: float | None = None,
    asap: bool = False,
    dry_run: bool = False,
    job: int | None = None,
) -> StartsMoved:
    """Start those jobs of this job's pack that have not begun so many seconds earlier, the first of them at a time (seconds
    since 1970 UTC), or as early as possible: all by the same time, as far as no other job's planned start is later.
    """
    if (earlier_by is not None) + (to is not None) + asap != 1:
        raise ValueError("give one of earlier_by, to and asap")
    values: dict[str, object] = {}
    if earlier_by is not None:
        values["earlier"] = earlier_by
    if to is not None:
        values["to"] = int(to)
    found = _ask("move-starts", job, values, asap=asap, dry_run=dry_run)
    starts = [
        MovedStart(
            int(one), int(found[f"job-{one}-before-us"]) / 1e6, int(found[f"job-{one}-after-us"]) / 1e6
        )
        for one in found["jobs"].split(",")
        if one
    ]
    return StartsMoved(
        int(found["pack"]),
        int(found["earlier-us"]) / 1e6,
        tuple(starts),
        found["decided"] == "yes",
        found["text"],
    )


def set_dependency(job: int, on: str, *, dry_run: bool = False) -> DependencySet:
    """Let another waiting job of this user wait for `on` (`afterok:17`), or for nothing ("")."""
    found = _ask("set-dependency", job, {"on": on}, dry_run=dry_run)
    return DependencySet(int(found["job"]), found["before"], found["after"])


def report(
    *,
    idle: int | None = None,
    remaining_s: int | None = None,
    worker: int = 0,
    reject: bool = False,
    wait_s: int = 0,
    job: int | None = None,
    node: str | None = None,
) -> Cores:
    """Say how many cores of this node the application does not use, and what work is left in seconds of one core.

    Several processes on a node each speak for themselves, as `worker` 0, 1, ...: their idle cores add up, and stay when
    they end. Fewer than before asks for cores back: run nothing on them before `excluded` has fallen; with `wait_s` the
    call returns when it has, or after so long. `reject` rejects what was `asked`.
    """
    name = os.environ.get("SLURMD_NODENAME", "") if node is None else node
    given = {
        "idle": idle,
        "remaining": remaining_s,
        "worker": worker or None,
        "wait": wait_s or None,
        "node": name or None,
    }
    values: dict[str, object] = {key: value for key, value in given.items() if value is not None}
    found = _ask("report", job, values, timeout_s=TIMEOUT_S + wait_s, reject=reject)
    return Cores(
        int(found["job"]),
        found["node"],
        found["level"],
        int(found["cores"]),
        int(found["idle"]),
        int(found["excluded"]),
        int(found["asked"]),
    )


def show(*, job: int | None = None) -> dict[str, str]:
    """This job as the controller knows it, by the words of the protocol."""
    return _ask("show", job, {})


def _amounts(found: dict[str, str], word: str) -> Amounts:
    return Amounts(
        int(found[f"{word}-nodes"]),
        found[f"{word}-node-names"],
        int(found[f"{word}-cpus"]),
        int(found[f"{word}-memory-mib"]),
    )


def _ask(
    verb: str, job: int | None, values: dict[str, object], *, timeout_s: float = TIMEOUT_S, **flags: bool
) -> dict[str, str]:
    """The answer's values. Raises `JobError`, OSError."""
    named = job if job is not None else _own_job()
    words = [verb, f"job={named}", *[f"{name}={_encoded(str(value))}" for name, value in values.items()]]
    words += [name.replace("_", "-") for name, is_given in flags.items() if is_given]
    found: dict[str, str] = {}
    for line in _lines(" ".join(words), timeout_s):
        if line == "ok":
            return found
        if line.startswith("error "):
            _, code, text = line.split(" ", 2)
            raise JobError(code, _decoded(text))
        name, _, value = line.partition("=")
        found[name] = _decoded(value)
    raise JobError("UNAVAILABLE", "the agent of this node has ended: it may have done it")


def _own_job() -> int:
    text = os.environ.get("ESLURM_JOB_ID", "")
    if not text.isdecimal():
        raise JobError("INVALID", "this process is in no job: ESLURM_JOB_ID is not set")
    return int(text)


def _lines(request: str, timeout_s: float) -> Iterator[str]:
    path = os.environ.get("ESLURM_JOB_SOCKET", "")
    if not path:
        raise JobError(
            "UNAVAILABLE", "this node's agent has no socket for jobs: ESLURM_JOB_SOCKET is not set"
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        connection.connect(path)
        connection.sendall(request.encode("ascii") + b"\n")
        with connection.makefile("rb") as answer:
            while line := answer.readline(_ANSWER_BYTES_MAX):
                if line.endswith(b"\n"):
                    yield line[:-1].decode("utf-8")


def _encoded(text: str) -> str:
    return re.sub(
        r"[^!-$&-~]", lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8")), text
    )


def _decoded(text: str) -> str:
    raw = re.sub(rb"%([0-9A-Fa-f]{2})", lambda found: bytes((int(found[1], 16),)), text.encode("utf-8"))
    return raw.decode("utf-8", "replace")
