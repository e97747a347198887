"""Metrics of a leading controller's state: the queue, nodes, partitions, accounts, the store.

Counted in slices beside the dispatcher, only after a commit, and never more than a small share of the time (`SHARE`);
readers see the last count. Invariant: labels are states, reasons, and capped names of administrators' records.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator

from esctld.lead.planner import Planner
from esctld.lead.time_slicing import paced
from eslurm.api.infos import REASONS
from eslurm.core.model import ranges
from eslurm.core.model.job import Job
from eslurm.core.model.job_states import JobState
from eslurm.core.model.node import Node, is_usable
from eslurm.core.model.node_health import KIND as HEALTH
from eslurm.core.model.node_states import NodeState
from eslurm.core.model.parts import partitions_of
from eslurm.core.model.step_key import PHASES
from eslurm.core.plan.slices import parts
from eslurm.core.state.allocation_amounts import spans_in_use
from eslurm.core.state.faults import CLOCK
from eslurm.core.state.pending_reason import pending_reason
from eslurm.core.state.usage import usage_now
from eslurm.core.state.view import View
from eslurm.ports.store import StoreError, StoreReader
from eslurm.telemetry.exposition import CappedLabel, Described, MetricFamily

EVERY_S = 2.0
SHARE = 0.01
"""A count that took t seconds is followed by a pause of t / SHARE at least."""
STALE_S = 30.0
"""Seconds after which usage is counted again though nothing happened: it decays."""
STORE_EVERY_S = 30.0
RECORDS_PER_SLICE = 500
CHECKS_MAX = 64
"""Names of health checks that are told apart: nodes choose them."""
ACCOUNTS_MAX = 64
PARTITIONS_MAX = 64
NO_ACCOUNT = "none"
UNPLANNED = "Priority"
"""Reason of a job that no plan has examined yet."""

JOBS = Described("eslurm_jobs", "gauge", "Jobs in memory, by state; an array is one.", ("state",))
WAITING = Described("eslurm_pending_jobs", "gauge", "Jobs that wait, by why they do.", ("reason",))
TASKS = Described("eslurm_pending_array_tasks", "gauge", "Tasks of arrays that wait.")
NODES = Described("eslurm_nodes", "gauge", "Nodes, by state.", ("state",))
DRAINING = Described(
    "eslurm_nodes_drained", "gauge", "Nodes that take no new jobs because they were drained."
)
FAULTED = Described(
    "eslurm_nodes_faulted",
    "gauge",
    "Nodes that take no new jobs because this failed there, prolog, epilog or health check, or the clock is too far ahead.",
    ("kind",),
)
FAILING = Described(
    "eslurm_nodes_failing_check",
    "gauge",
    "Nodes that take no new jobs because this health check fails there; beyond 64 names: other.",
    ("check",),
)
LOGIN = Described("eslurm_login_hosts", "gauge", "Login hosts, by state; they are no nodes.", ("state",))
IDLE = Described("eslurm_nodes_idle", "gauge", "Nodes in service on which nothing runs.")
CORES = Described("eslurm_partition_cores", "gauge", "Cores of a partition's nodes.", ("partition",))
CORES_USED = Described(
    "eslurm_partition_cores_used",
    "gauge",
    "Those that jobs hold, whatever partition they are in.",
    ("partition",),
)
USABLE = Described(
    "eslurm_partition_nodes_usable", "gauge", "A partition's nodes in service.", ("partition",)
)
PARTITION_IDLE = Described(
    "eslurm_partition_nodes_idle", "gauge", "Those of them on which nothing runs.", ("partition",)
)
PARTITION_WAITING = Described(
    "eslurm_partition_pending_jobs", "gauge", "Jobs that wait for a partition.", ("partition",)
)
ACCOUNT_CORES = Described(
    "eslurm_account_cores_used", "gauge", "Cores that jobs of an account hold.", ("account",)
)
USAGE = Described(
    "eslurm_account_usage_core_seconds",
    "gauge",
    "What an account itself has used as fair share counts it: weighted, and halved with every half-life.",
    ("account",),
)
CORES_IDLE = Described(
    "eslurm_cores_idle_reported", "gauge", "Cores of running jobs that their applications do not use."
)
CORES_EXCLUDED = Described(
    "eslurm_cores_excluded", "gauge", "Those of them that nodes have confirmed: they may be lent."
)
CORES_LENT = Described("eslurm_cores_lent", "gauge", "Cores of running jobs that other jobs use.")
CORE_REPORTS = Described(
    "eslurm_core_reports_total",
    "counter",
    "Reports of applications about their cores since this controller leads.",
)
STORE_BYTES = Described("eslurm_store_size_bytes", "gauge", "Size of the job store.")
AGE = Described("eslurm_census_age_seconds", "gauge", "Time since the queue and the nodes were counted.")
CENSUS = (
    *(
        JOBS,
        WAITING,
        TASKS,
        NODES,
        LOGIN,
        DRAINING,
        FAULTED,
        FAILING,
        IDLE,
        CORES,
        CORES_USED,
        USABLE,
        PARTITION_IDLE,
    ),
    *(PARTITION_WAITING, ACCOUNT_CORES, USAGE, STORE_BYTES, AGE),
    *(CORES_IDLE, CORES_EXCLUDED, CORES_LENT, CORE_REPORTS),
)


class StateMetrics:
    """Run it as a task; `families` gives the last count."""

    def __init__(self, view: View, planner: Planner, store: StoreReader, now_us: Callable[[], int]) -> None:
        self._view = view
        self._planner = planner
        self._store = store
        self._now_us = now_us
        self._accounts = CappedLabel(ACCOUNTS_MAX)
        self._partitions = CappedLabel(PARTITIONS_MAX)
        self._checks = CappedLabel(CHECKS_MAX)
        self._found: list[MetricFamily] = []
        self._counted_s = time.monotonic()
        self._usage: dict[str, float] = {}
        self._store_bytes = 0
        self._store_at_s = float("-inf")

    def families(self) -> Iterator[MetricFamily]:
        """The last counts."""
        yield from self._found
        yield STORE_BYTES.is_(self._store_bytes)
        yield CORE_REPORTS.is_(self._view.reports.received)
        yield CORES_IDLE.is_(self._view.reports.idle)
        yield CORES_LENT.is_(sum(sum(one.values()) for one in self._view.loans.values()))
        yield CORES_EXCLUDED.is_(self._view.cores_excluded())
        yield AGE.is_(time.monotonic() - self._counted_s)

    async def run(self) -> None:
        """Count again and again, until cancelled."""
        counted: tuple[object, ...] = ()
        while True:
            present = (self._view.revision, self._planner.shown)
            is_stale = time.monotonic() - self._counted_s > STALE_S
            spent_s = 0.0
            if present != counted or is_stale:
                counted = present
                began_s = time.thread_time()
                await self.count()
                # What others did in its pauses counts, too: it is the busier for it.
                spent_s = time.thread_time() - began_s
            await self._measure_store()
            await asyncio.sleep(max(EVERY_S, min(spent_s / SHARE, STALE_S)))

    async def count(self) -> None:
        """Count everything once."""
        jobs = list(self._view.jobs.values())
        nodes = list(self._view.nodes.values())
        found = await paced(self._jobs(jobs))
        found += await paced(self._nodes(nodes))
        found += await paced(self._of_partitions())
        usage = await paced(usage_now(self._view, jobs, self._now_us()))
        by_account: Counter[str] = Counter()
        for (account, _user), amount in usage.items():
            by_account[account or NO_ACCOUNT] += amount  # type: ignore[assignment]
        found.append(USAGE.by(self._accounts.folded(by_account)))
        self._found = found
        self._counted_s = time.monotonic()

    def _jobs(self, jobs: list[Job]) -> Generator[None, None, list[MetricFamily]]:
        states: Counter[str] = Counter({state.value: 0 for state in JobState})
        reasons: Counter[str] = Counter()
        partitions: Counter[str] = Counter(dict.fromkeys(self._view.partition_nodes, 0))
        accounts: Counter[str] = Counter()
        tasks = 0
        for part in parts(jobs, RECORDS_PER_SLICE):
            for job in part:
                states[job.state.value] += 1
                if job.state is JobState.PENDING:
                    reasons[self._reason(job)] += 1
                    partitions.update(partitions_of(job.spec))
                    tasks += ranges.count(job.tasks_left) if job.tasks_left else 0
                elif job.attempt is not None and job.attempt.held:
                    held = job.attempt.held
                    cores = sum(span.amounts[0] for span in spans_in_use(job.attempt) if span.node in held)
                    accounts[job.spec.account or NO_ACCOUNT] += cores
            yield
        return [
            JOBS.by(states),
            WAITING.by(dict.fromkeys(sorted(set(REASONS.values())), 0) | reasons),
            TASKS.is_(tasks),
            PARTITION_WAITING.by(self._partitions.folded(partitions)),
            ACCOUNT_CORES.by(self._accounts.folded(accounts)),
        ]

    def _reason(self, job: Job) -> str:
        reason = pending_reason(self._view, job)
        if reason:
            return reason
        plan = self._planner.shown
        why = plan.waiting.get(job.job_id) if plan is not None else None
        return REASONS.get(why.kind.value, why.kind.value) if why is not None else UNPLANNED

    def _nodes(self, nodes: list[Node]) -> Generator[None, None, list[MetricFamily]]:
        states: Counter[str] = Counter({state.value: 0 for state in NodeState})
        login: Counter[str] = Counter({state.value: 0 for state in NodeState})
        faulted: Counter[str] = Counter(dict.fromkeys((*PHASES, CLOCK, HEALTH), 0))
        failing: Counter[str] = Counter()
        drained = idle = 0
        jobs_on = self._view.jobs_on
        for part in parts(nodes, RECORDS_PER_SLICE):
            for node in part:
                if node.number in self._view.login:
                    login[node.state.value] += 1
                    continue
                states[node.state.value] += 1
                drained += node.drain
                if node.faults:
                    faulted.update({fault.kind for fault in node.faults})
                    failing.update(fault.check for fault in node.faults if fault.check)
                idle += is_usable(node) and not jobs_on.get(node.number)
            yield
        in_service = [
            DRAINING.is_(drained),
            FAULTED.by(faulted),
            FAILING.by(self._checks.folded(failing)),
            IDLE.is_(idle),
        ]
        return [NODES.by(states), LOGIN.by(login), *in_service]

    def _of_partitions(self) -> Generator[None, None, list[MetricFamily]]:
        totals: Counter[str] = Counter()
        used: Counter[str] = Counter()
        usable: Counter[str] = Counter()
        idle: Counter[str] = Counter()
        for name, numbers in list(self._view.partition_nodes.items()):
            for counter in (totals, used, usable, idle):
                counter[name] += 0
            for part in parts(numbers, RECORDS_PER_SLICE):
                # Looked up anew after each pause: another configuration may be in force.
                topology, free, jobs_on = self._view.topology, self._view.free, self._view.jobs_on
                positions, sizes = topology.positions, topology.totals
                for number in part:
                    position = positions.get(number)
                    if position is None:
                        continue
                    cores = sizes[position][0]
                    totals[name] += cores
                    used[name] += cores - free[number][0]
                    if is_usable(self._view.nodes[number]):
                        usable[name] += 1
                        idle[name] += not jobs_on.get(number)
                yield
        return [
            family.by(self._partitions.folded(counts))
            for family, counts in (
                (CORES, totals),
                (CORES_USED, used),
                (USABLE, usable),
                (PARTITION_IDLE, idle),
            )
        ]

    async def _measure_store(self) -> None:
        now_s = time.monotonic()
        if now_s - self._store_at_s < STORE_EVERY_S:
            return
        self._store_at_s = now_s
        try:
            self._store_bytes = await self._store.size_bytes()
        except StoreError:
            # The dispatcher calls it after a commit.
            return
