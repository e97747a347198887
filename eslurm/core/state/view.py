"""The last committed state, for readers. Records are shared with the state, never copied.

While a batch is being committed, readers see the one before: nothing is visible before its commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from eslurm.core.model.accounts import Usage
from eslurm.core.model.amounts import Vector
from eslurm.core.model.job import Attempt, Job
from eslurm.core.model.node import Node, names_of
from eslurm.core.model.parts import part_ids
from eslurm.core.model.step import Step
from eslurm.core.state.allocation_amounts import attempts_of, lends
from eslurm.core.state.apply_accounts import Record, find_record, records_of
from eslurm.core.state.cluster import State, Touched
from eslurm.core.state.core_reports import CoreReports
from eslurm.core.state.job_indexes import is_movable, startable

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R", bound=Record)


class View:
    """Advance it after each commit with what the batch touched.

    `jobs_on`: the jobs that hold something on a node. `free`: amounts free there, for nodes in the topology. `tasks_of`:
    the tasks of an array that are jobs of their own. `transfers`: the jobs of any state that concern other cells, the
    one that changed last at the end.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self.jobs: dict[int, Job] = dict(state.jobs)
        self.transfers: dict[int, Job] = {one.job_id: one for one in state.jobs.values() if is_movable(one)}
        self.nodes: dict[int, Node] = dict(state.nodes)
        self.steps: dict[tuple[int, int], Step] = dict(state.steps)
        self.records = records_of(state)
        self.policies = {kind: dict(named) for kind, named in state.policies.items()}
        self.owner = state.owner
        self.revision = state.revision
        self.now_us = state.now_us
        self.pending_count = state.pending_count
        self.active_count = state.active_count
        self.tasks_of: dict[int, set[int]] = {array: set(tasks) for array, tasks in state.tasks_of.items()}
        self.alias: dict[int, int] = dict(state.alias)
        self._take_scalars()
        self._take_holdings()
        self._take_coordinators()
        self._take_loans()

    def find_job(self, job_id: int) -> Job | None:
        """The job, if it is still in memory."""
        return self.jobs.get(job_id)

    def find_named(self, job_id: int) -> Job | None:
        """The job that has this id, or a part of that id."""
        return self.jobs.get(self.alias.get(job_id, job_id))

    def all_of(self, kind: type[R]) -> list[R]:
        """All records of this class."""
        return [record for record in self.records.values() if isinstance(record, kind)]

    @property
    def reports(self) -> CoreReports:
        """The latest words of applications for their cores: soft state, which no commit makes."""
        return self._state.reports

    def cores_excluded(self) -> int:
        """Confirmed cores that running jobs leave to others."""
        jobs = [self._state.jobs[job_id] for job_id in self._state.excluding]
        return sum(one.cores for job in jobs if job.attempt is not None for one in job.attempt.exclusions)

    @property
    def usage(self) -> dict[tuple[str, str], Usage]:
        """Charged usage, by account and user."""
        return {(one.account, one.user): one for one in self.all_of(Usage)}

    def node_names(self, numbers: Iterable[int]) -> list[str]:
        """Names of nodes for output, see `names_of`."""
        return names_of(self.nodes, numbers)

    def startable(self, job: Job) -> int:
        """See `job_indexes.startable`."""
        return startable(self.jobs, job)

    def advance(self, touched: Touched, revision: int, now_us: int) -> None:
        """Show the batch that ended with `revision`, which is durable."""
        if self.topology is not self._state.ledger.topology:
            self._take_holdings()
        for job_id in touched.jobs:
            self._refresh_job(job_id)
        for number in touched.nodes:
            self._refresh_node(number)
        self._take_scalars()
        _refresh(self.nodes, self._state.nodes, touched.nodes)
        _refresh(self.steps, self._state.steps, touched.steps)
        for kind, name in touched.records:
            record = find_record(self._state, kind, name)
            if record is None:
                self.records.pop((kind, name), None)
            else:
                self.records[kind, name] = record
            if kind in self.policies:
                _refresh(self.policies[kind], self._state.policies[kind], {name})
        if any(kind == "account" for kind, _ in touched.records):
            self._take_coordinators()
        if self._loan_changes != self._state.loan_changes:
            self._take_loans()
        self.revision = revision
        self.now_us = now_us
        self.pending_count = self._state.pending_count
        self.active_count = self._state.active_count

    def _take_loans(self) -> None:
        """Copy the borrowers by what they have borrowed from."""
        self._loan_changes = self._state.loan_changes
        self.loans = {key: dict(borrowers) for key, borrowers in self._state.loans.items()}

    def _take_coordinators(self) -> None:
        self.coordinators = {user: frozenset(names) for user, names in self._state.coordinators.items()}

    def _take_scalars(self) -> None:
        state = self._state
        self.epoch, self.config, self.config_revision = state.epoch, state.config, state.config_revision
        self.login, self.partition_nodes = state.login, state.partition_nodes
        self.federation = state.federation
        self.partition_states = dict(state.partition_states)
        self.next_id, self.id_blocks = state.next_id, state.id_blocks

    def _take_holdings(self) -> None:
        ledger = self._state.ledger
        self.topology = ledger.topology
        self.jobs_on: dict[int, frozenset[int]] = dict(self._state.jobs_on)
        self.free: dict[int, Vector] = {
            number: ledger.free_on(position) for number, position in ledger.topology.positions.items()
        }

    def _refresh_job(self, job_id: int) -> None:
        old, new = self.jobs.get(job_id), self._state.jobs.get(job_id)
        before = attempts_of(old) if old is not None else ()
        after = attempts_of(new) if new is not None else ()
        if _holds_otherwise(before, after):
            for attempt in (*before, *after):
                for span in attempt.spans:
                    self._refresh_node(span.node)
        if new is None:
            if old is not None:
                del self.jobs[job_id]
                self.transfers.pop(job_id, None)
                self._drop_task(old)
                for part_id in part_ids(old):
                    del self.alias[part_id]
            return
        self.jobs[job_id] = new
        if is_movable(new):
            if self.transfers.get(job_id) is not new:
                # Readers find what has changed at the end.
                self.transfers.pop(job_id, None)
                self.transfers[job_id] = new
        elif self.transfers:
            self.transfers.pop(job_id, None)
        if old is None:
            self.alias.update(dict.fromkeys(part_ids(new), job_id))
            if new.array_job_id:
                self.tasks_of.setdefault(new.array_job_id, set()).add(job_id)

    def _drop_task(self, job: Job) -> None:
        if job.array_job_id:
            tasks = self.tasks_of[job.array_job_id]
            tasks.discard(job.job_id)
            if not tasks:
                del self.tasks_of[job.array_job_id]

    def _refresh_node(self, number: int) -> None:
        jobs = self._state.jobs_on.get(number)
        if jobs:
            self.jobs_on[number] = jobs
        else:
            self.jobs_on.pop(number, None)
        position = self.topology.positions.get(number)
        if position is not None:
            self.free[number] = self._state.ledger.free_on(position)


def _holds_otherwise(before: Sequence[Attempt], after: Sequence[Attempt]) -> bool:
    """Check whether a job's holdings have changed; records that did not change are shared."""
    if len(before) != len(after):
        return True
    for old, new in zip(before, after, strict=True):
        if old is not new and (
            old.number != new.number
            or old.held is not new.held
            or lends(old) != lends(new)
            or (old.more is not new.more and (old.given != new.given or old.loans != new.loans))
        ):
            return True
    return False


def _refresh(view: dict[K, V], current: dict[K, V], keys: set[K]) -> None:
    for key in keys:
        record = current.get(key)
        if record is None:
            view.pop(key, None)
        else:
            view[key] = record
