"""The choice of runs that `sacct` shows, from its options."""

from __future__ import annotations

import os
from operator import attrgetter

from escli import clock
from escli.slurm import frame
from eslurm.compat.errors import OptionError, whole_number
from eslurm.compat.hostlist import expand
from eslurm.compat.moments import parse_moment
from eslurm.compat.slurm import words
from eslurm.compat.slurm.getopt import UsageProblem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
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
        self.is_cut = given.has("truncate")
        self._checks = tuple(self._chosen())

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
        """Check whether the run is among the chosen ones."""
        if run.ended_us and run.ended_us < self.since_us:
            return False
        if self.until_us and run.submitted_us > self.until_us:
            return False
        return not self._checks or all(check(run) for check in self._checks)

    def shortened(self, run: Run) -> Run:
        """The run without its time outside of the chosen one."""
        one = run.copy()
        if one.started_us:
            one.started_us = max(one.started_us, self.since_us)
        if one.ended_us and self.until_us:
            one.ended_us = min(one.ended_us, self.until_us)
        return one

    def _chosen(self) -> Iterator[Callable[[Run], bool]]:
        """The checks of the options that are given: a day has 100,000 runs."""
        if self.states is not None:
            yield lambda run: run.state in self.states  # type: ignore[operator]
        if self.users:
            yield lambda run: not self.users.isdisjoint((run.user, str(run.uid)))
        for name, values in (
            ("account", self.accounts),
            ("partition", self.partitions),
            ("qos", self.qos),
            ("name", self.names),
            ("wckey", self.wckeys),
            ("constraint", self.constraints),
        ):
            if values:
                yield _is_one_of(attrgetter(name), values)
        if self.nodes is not None:
            yield self._has_node
        for name, bounds in (("cpus", self.cpus), ("nodes", self.node_count)):
            if bounds is not None:
                yield _is_within(attrgetter(name), *bounds)
        if self.refs:
            yield self._is_named

    def _has_node(self, run: Run) -> bool:
        return bool(run.node_names) and not (self.nodes or frozenset()).isdisjoint(expand(run.node_names))

    def _is_named(self, run: Run) -> bool:
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


def _is_one_of(read: Callable[[Any], str], values: frozenset[str]) -> Callable[[Run], bool]:
    return lambda run: read(run) in values


def _is_within(read: Callable[[Any], int], low: int, high: int) -> Callable[[Run], bool]:
    return lambda run: low <= read(run) <= high


def _tasks(label: str) -> list[int]:
    from eslurm.compat.slurm.array_text import task_numbers

    return task_numbers(label.partition("[")[2].rstrip("]"))


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
