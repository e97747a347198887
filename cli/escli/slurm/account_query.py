"""The choice of runs that `sacct` shows, from its options."""

from __future__ import annotations

import os

from escli import clock
from escli.slurm import frame
from eslurm.compat.errors import OptionError, whole_number
from eslurm.compat.hostlist import expand
from eslurm.compat.moments import parse_moment
from eslurm.compat.slurm import words
from eslurm.compat.slurm.getopt import UsageProblem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from eslurm.compat.slurm.getopt import Options
    from eslurm.compat.slurm.run_fields import Run

_WRONG_STATE = "fatal: unrecognized job state value '{}'"


class Query:
    """The options as one choice. Raises UsageProblem, Failed."""

    def __init__(self, given: Options) -> None:
        from escli.job_refs import job_refs, split_jobs

        named = [word.partition(".")[0] for text in given.all("jobs") for word in split_jobs(text) if word]
        try:
            self.refs = job_refs(named, "--jobs")
        except OptionError:
            raise frame.Failed(f"sacct: fatal: Bad job/step specified: {','.join(named)}") from None
        states = given.listed("state")
        self.states = words.job_states(states, _WRONG_STATE) if states else None
        self.users = _users(given, has_jobs=bool(self.refs))
        self.accounts = frozenset(given.listed("accounts"))
        self.partitions = frozenset(given.listed("partition"))
        self.qos = frozenset(given.listed("qos"))
        self.names = frozenset(given.listed("name"))
        self.wckeys = frozenset(given.listed("wckeys"))
        self.constraints = frozenset(given.listed("constraints"))
        self.nodes = (
            frozenset(expand(given.last("nodelist"), "--nodelist")) if given.has("nodelist") else None
        )
        self.cpus = _range(given, "ncpus")
        self.node_count = _range(given, "nnodes")
        self.has_duplicates = given.has("duplicates")
        self.by_task = given.has("array")
        self.until_us = _moment(given.last("endtime"), "--endtime") if given.has("endtime") else 0
        if given.has("starttime"):
            self.since_us = _moment(given.last("starttime"), "--starttime")
        else:
            self.since_us = 0 if self.refs else _moment("today", "--starttime")
        self.cut = (self.since_us, self.until_us) if given.has("truncate") else None

    def jobs_request(self) -> Any:
        """The question about jobs that the controller has."""
        from eslurm.v1 import controller_pb2 as pb

        # Whole arrays, though tasks are named: their waiting tasks stand in their records.
        refs = {ref.job_id: pb.JobRef(job_id=ref.job_id) for ref in self.refs}
        return pb.JobsRequest(jobs=refs.values(), finished_too=True, user=self._user())

    def accounting_request(self) -> Any:
        """The question about runs that have ended."""
        from eslurm.v1 import controller_pb2 as pb

        return pb.AccountingRequest(
            jobs=self.refs,
            user=self._user(),
            since_us=self.since_us,
            until_us=self.until_us,
            partition=next(iter(self.partitions)) if len(self.partitions) == 1 else "",
            name=next(iter(self.names)) if len(self.names) == 1 else "",
        )

    def _user(self) -> str:
        only = next(iter(self.users)) if len(self.users) == 1 else ""
        return "" if only.isdecimal() else only

    def takes(self, run: Run) -> bool:
        """Check whether the run is among the chosen ones, and cut its times if they are to be."""
        if not self._is_within(run):
            return False
        if self.states is not None and run.state not in self.states:
            return False
        if self.users and not self.users.intersection((run.user, str(run.uid))):
            return False
        for chosen, value in (
            (self.accounts, run.account),
            (self.partitions, run.partition),
            (self.qos, run.qos),
            (self.names, run.name),
            (self.wckeys, run.wckey),
            (self.constraints, run.constraint),
        ):
            if chosen and value not in chosen:
                return False
        if self.nodes is not None and not self.nodes.intersection(
            expand(run.node_names) if run.node_names else ()
        ):
            return False
        for bounds, number in ((self.cpus, run.cpus), (self.node_count, run.nodes)):
            if bounds is not None and not bounds[0] <= number <= bounds[1]:
                return False
        if self.cut is not None:
            _cut(run, *self.cut)
        return self._is_named(run)

    def _is_within(self, run: Run) -> bool:
        if run.ended_us and run.ended_us < self.since_us:
            return False
        return not (self.until_us and run.submitted_us > self.until_us)

    def _is_named(self, run: Run) -> bool:
        if not self.refs:
            return True
        head = run.label.partition("+")[0]
        for ref in self.refs:
            if not ref.HasField("task"):
                if str(ref.job_id) in (head.partition("_")[0], str(run.job_id)):
                    return True
            elif head == f"{ref.job_id}_{ref.task}" or (
                head.startswith(f"{ref.job_id}_[") and ref.task in _tasks(head)
            ):
                return True
        return False


def _tasks(label: str) -> list[int]:
    from eslurm.compat.slurm.array_text import task_numbers

    return task_numbers(label.partition("[")[2].rstrip("]"))


def _cut(run: Run, since_us: int, until_us: int) -> None:
    if run.started_us:
        run.started_us = max(run.started_us, since_us)
    if run.ended_us and until_us:
        run.ended_us = min(run.ended_us, until_us)


def _users(given: Options, *, has_jobs: bool) -> frozenset[str]:
    """The users whose jobs are shown; empty: all."""
    import pwd

    named = given.listed("user")
    for user in named:
        try:
            _ = pwd.getpwuid(int(user)) if user.isdecimal() else pwd.getpwnam(user)
        except (KeyError, OverflowError):
            if not user.isdecimal():
                raise frame.Failed(f"sacct: fatal: Invalid user id: {user}") from None
    if named or has_jobs or given.has("allusers") or os.getuid() == 0:
        return frozenset(named)
    return frozenset({frame.user_name()})


def _range(given: Options, long: str) -> tuple[int, int] | None:
    if not given.has(long):
        return None
    low, dash, high = given.last(long).partition("-")
    first, last = whole_number(low, 9), whole_number(high, 9) if dash else 1 << 40
    if not dash:
        last = first
    if first < 0 or last < first:
        raise UsageProblem(f"error: --{long}={given.last(long)}")
    return first, last


def _moment(text: str, option: str) -> int:
    """A time as sacct reads it. Raises Failed."""
    try:
        return parse_moment(text, clock.now_us(), clock.local_offset_s, option, past=True)
    except OptionError:
        raise frame.Failed(f"sacct: error: Invalid time specification: {text}") from None
