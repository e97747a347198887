"""The state of the whole cluster and the indexes derived from it.

`State` holds immutable records. Only `core.state.apply` calls the `put_*`/`drop_*` methods here, which keep every
index in step with the records: an index is always a pure function of them (`core.state.invariants` checks it, and a
restart rebuilds all of them from the stored rows). `touched` collects the keys changed since the last commit.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from eslurm.core.model import ranges
from eslurm.core.model.accounts import KINDS, Policy, Usage
from eslurm.core.model.config import ClusterConfig, Partition
from eslurm.core.model.controller_phases import UNDER_WAY, PhaseStage
from eslurm.core.model.crontab import Crontab
from eslurm.core.model.federation import FederationWish
from eslurm.core.model.growth import GrowthPlace
from eslurm.core.model.job import Attempt, AttemptMore, Job
from eslurm.core.model.job_ids import IdRange
from eslurm.core.model.job_states import ACTIVE, FINAL, JobState
from eslurm.core.model.job_weight import weight
from eslurm.core.model.lending import Loan
from eslurm.core.model.node import Node, is_older, is_usable, names_of
from eslurm.core.model.node_states import NodeState
from eslurm.core.model.pack import PackPlace
from eslurm.core.model.partition import DOWN, STARTING, UP, PartitionView
from eslurm.core.model.parts import part_ids
from eslurm.core.model.phase_lengths import PhaseLengths
from eslurm.core.model.promise import PROMISE, Promise
from eslurm.core.model.request import Request
from eslurm.core.model.satellite import SatelliteDown
from eslurm.core.model.step import OVER, Step, StepState
from eslurm.core.model.timekeeping import lost_after_s
from eslurm.core.model.token import TOKEN, IssuedToken
from eslurm.core.model.units import SECOND_US
from eslurm.core.plan.cycle.queue import Follower, Pending, PendingQueue
from eslurm.core.plan.cycle.snapshot import Running, RunningKey
from eslurm.core.resources.devices import Devices
from eslurm.core.resources.ledger import Ledger
from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.windows import Calendar, DatesOnly
from eslurm.core.state import packs
from eslurm.core.state.allocation_amounts import attempts_of, lends
from eslurm.core.state.core_reports import CoreReports
from eslurm.core.state.job_counts import JobCounts
from eslurm.core.state.job_indexes import (
    began,
    fills,
    has_lending,
    has_wish,
    name_key,
    next_mail,
    owed_revisions,
    shorter_at_us,
    startable,
    task_slots,
    waits,
)
from eslurm.core.state.ledger_index import follow_holdings, fresh_ledger
from eslurm.core.state.members import Members
from eslurm.core.state.queue_entries import foreseeable, pending_of, running_of
from eslurm.core.state.references import References
from eslurm.core.state.step_use import StepUse

__all__ = [
    "REMOVED_LOOK_US",
    "SECOND_US",
    "State",
    "Timer",
    "Touched",
    "attempts_of",
    "is_older",
    "is_usable",
    "name_key",
    "owed_revisions",
    "task_slots",
    "waits",
]


Timer = tuple[int, str, int]
REMOVED_LOOK_US: Final = 10 * SECOND_US
"""Interval of looks at whether nodes that left the configuration with jobs are empty by now."""
MAIL_TIMER = "mail"
"""Of the next percentage of a running job's time limit that its user wants mail about."""


class Touched:
    """Keys of the records that changed since the last commit; the store writes exactly these."""

    def __init__(self) -> None:
        self.jobs: set[int] = set()
        self.nodes: set[int] = set()
        self.steps: set[tuple[int, int]] = set()
        self.steps_ended: list[Step] = []
        self.ended: list[tuple[Job, Attempt | None]] = []
        # Attempts that were given up and whose end is known now, each with its job as accounting is to show it.
        self.returned: list[tuple[Job, Attempt]] = []
        # Jobs that changed and were forgotten since: their last records are still to be written.
        self.forgotten: list[Job] = []
        # Jobs of which nothing is left: they never were this cell's.
        self.dropped: set[int] = set()
        # Jobs without a record here that others wait for now: only a state which began after their end lacks them.
        self.lacking: set[int] = set()
        self.settings = False
        # (kind, name) of policies, of usage, of promises, of tokens and of members.
        self.records: set[tuple[str, str]] = set()


class State:
    """The controller's whole state. Construct it empty, then apply facts or `restore` rows."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.config = ClusterConfig(cluster="")
        self.config_revision = 0
        # Of the files that were in force, that of the present one last, each once.
        self.config_digests: tuple[bytes, ...] = ()
        self.epoch = 0
        self.revision = 0
        self.now_us = 0
        self.next_id = 1
        self.lease_end = 1
        # Ranges that ids are drawn from, rising; none: the cluster is no member of a federation.
        self.id_blocks: tuple[IdRange, ...] = ()
        self.next_number = 0
        self.jobs: dict[int, Job] = {}
        self.nodes: dict[int, Node] = {}
        self.steps: dict[tuple[int, int], Step] = {}
        self.partition_states: dict[str, str] = {}
        self.satellites_down: dict[str, SatelliteDown] = {}
        self.policies: dict[str, dict[str, Policy]] = {kind: {} for kind in KINDS}
        self.usage: dict[tuple[str, str], Usage] = {}
        # Of waiting jobs only (ADR 17).
        self.promises: dict[int, Promise] = {}
        # By id; those that were revoked or have expired are gone.
        self.tokens: dict[bytes, IssuedToken] = {}
        self.crontabs: dict[int, Crontab] = {}
        self.members = Members()
        self.phase_lengths = PhaseLengths()
        # Of the sealed list of revoked memberships.
        self.revoked_revision = 0
        self.federation: FederationWish | None = None
        # Indexes.
        self.coordinators: dict[str, set[str]] = {}
        """By user the accounts that name the user as a coordinator."""
        self.numbers: dict[str, int] = {}
        self.partitions: dict[str, Partition] = {}
        self.partition_nodes: dict[str, tuple[int, ...]] = {}
        self.partition_views: dict[str, PartitionView] = {}
        self.removed: set[int] = set()
        self.login: frozenset[int] = frozenset()
        self.phased: dict[int, tuple[str, ...]] = {}
        """By node the programs that its own configuration names, where there are any."""
        self.phases_us = 0
        """Time beyond its script for which a waiting job is expected to hold its nodes."""
        self.ledger = Ledger(Topology(()))
        self.queue = PendingQueue()
        self.later = PendingQueue(shapes=self.queue.shapes)
        self.live: dict[RunningKey, Running] = {}
        self.dependents: dict[int, set[int]] = {}
        # By array and task the jobs that wait for this task alone.
        self.task_dependents: dict[int, dict[int, set[int]]] = {}
        # Jobs whose dependencies have to be looked at again, the next one last: the reactor's, which makes it anew from
        # `dependents` when it begins.
        self.unsettled: dict[int, None] = {}
        self.same_name: dict[tuple[int, str], set[int]] = {}
        self.alias: dict[int, int] = {}
        """By the ids of later parts, the job's."""
        self.packs: packs.PackIndex = {}
        """By pack the members that have not ended."""
        self.tasks_of: dict[int, set[int]] = {}
        # By array and task the record of a task that has one.
        self.task_ids: dict[tuple[int, int], int] = {}
        self.tasks_pending: dict[int, set[int]] = {}
        self.jobs_on: dict[int, frozenset[int]] = {}
        self.devices = Devices()
        # Jobs whose program on the controller's host waits for its turn, the next one first, and those whose program runs.
        self.phases_waiting: dict[int, None] = {}
        self.phases_running: dict[int, None] = {}
        # Jobs that were suspended to make room for others.
        self.lending: set[int] = set()
        # Jobs with an open wish: waiting members of a pack that is to be moved, and running jobs that want more time.
        self.wishing: set[int] = set()
        self.growing: dict[int, int] = {}
        # Jobs about which messages are owed, the oldest first.
        self.mailing: dict[int, None] = {}
        # Allocations that end when their command is gone.
        self.attended: set[int] = set()
        # Borrowers by what they have borrowed from: (owner, attempt, node) -> {(job, attempt): cores}.
        self.loans: dict[tuple[int, int, int], dict[RunningKey, int]] = {}
        self.loan_changes = 0
        """Number of changes of `loans`: readers take a copy when it has grown."""
        # Running jobs whose applications leave cores to others, and jobs that wait and accept such cores.
        self.excluding: set[int] = set()
        self.borrowers: set[int] = set()
        # What the fact that is being applied has ended: loans, and (owner, attempt, node) that owners have left.
        self.loan_ends: list[Loan] = []
        self.owners_gone: list[tuple[int, int, int]] = []
        # The reactor's: what applications say of their cores. Nodes report again to a new leader.
        self.reports = CoreReports()
        self.owed: dict[int, int] = {}
        self.step_owed: dict[int, tuple[int, int]] = {}
        self.steps_of: dict[int, set[int]] = {}
        self.step_use = StepUse()
        self.pending_count = 0
        # What waits of each user, by uid: the sum of its jobs' weights.
        self.pending_of: dict[int, int] = {}
        self.active_count = 0
        self.timers: list[Timer] = []
        self.finished: OrderedDict[int, None] = OrderedDict()
        self.generation = 0
        self.plan_wanted = False
        self.touched = Touched()
        # What a plan that is being made does not know yet: the generation of each change.
        self.changed: dict[int, int] = {}
        self.configured = 0
        # The generation since which the policies are as they are, and when the next of them begins or ends.
        self.policies_changed = 0
        # The generation at which a suspended attempt took the cores back that it had lent.
        self.cores_returned = 0
        # A copy for planning cycles, made anew after each change.
        self.policies_copy: dict[str, dict[str, Policy]] | None = None
        self.policy_due_us = 0
        self.calendar: Calendar = DatesOnly()
        self.mentions = References()
        self.job_counts = JobCounts()
        # What deciding has read out of the state and keeps to read it faster, by its class. It can be made anew at any time.
        self.memos: dict[type, object] = {}
        # Memories of the current configuration.
        self.feasible: dict[tuple[str, Request, int], str] = {}
        self.empty: Ledger | None = None

    # ---- reading ----

    def find_job(self, job_id: int) -> Job | None:
        return self.jobs.get(job_id)

    def get_job(self, job_id: int) -> Job:
        return self.jobs[job_id]

    def find_named(self, job_id: int) -> Job | None:
        """The job that has this id, or a part of that id."""
        return self.jobs.get(self.alias.get(job_id, job_id))

    def find_task(self, array_id: int, task: int) -> Job | None:
        """The record of an array's task, if it has one of its own (yet, or still)."""
        job_id = self.task_ids.get((array_id, task))
        return self.jobs.get(job_id) if job_id is not None else None

    def is_awaited(self, job_id: int) -> bool:
        """Check whether jobs wait for this job, or for a task of this array: its record is kept for them.

        The first member's record is kept as long as others of its pack have not ended: it says how they did.
        """
        return job_id in self.dependents or job_id in self.task_dependents or job_id in self.packs

    def find_attempt(self, job_id: int, number: int) -> tuple[Job, Attempt] | None:
        """The live (or residual) attempt, if it is still in the state."""
        job = self.jobs.get(job_id)
        if job is None:
            return None
        for attempt in attempts_of(job):
            if attempt.number == number:
                return job, attempt
        return None

    def node_names(self, numbers: Iterable[int]) -> list[str]:
        """Names of nodes for output; a node that has left the configuration is named by its number."""
        return names_of(self.nodes, numbers)

    def named_nodes(self) -> set[int]:
        """Nodes of any attempt, even of one that holds nothing there."""
        return {
            span.node for job in self.jobs.values() for attempt in attempts_of(job) for span in attempt.spans
        }

    def startable(self, job: Job) -> int:
        """See `job_indexes.startable`; of a pack that has not begun 1 with all of its members, else 0."""
        if job.pack is not None and not packs.is_whole(self.packs, job.pack):
            return 0
        return startable(self.jobs, job)

    def frozen_policies(self) -> dict[str, dict[str, Policy]]:
        """The policies as they are; later changes leave this copy alone. A planning cycle works on it in slices."""
        if self.policies_copy is None:
            self.policies_copy = {kind: dict(named) for kind, named in self.policies.items()}
        return self.policies_copy

    def take_touched(self) -> Touched:
        """The keys changed since the last call."""
        touched, self.touched = self.touched, Touched()
        return touched

    # ---- writing: core.apply only ----

    def put_job(self, new: Job) -> None:
        """Insert or replace a job's record and bring every index in step."""
        old = self.jobs.get(new.job_id)
        self.jobs[new.job_id] = new
        self.touched.jobs.add(new.job_id)
        self._index_tasks(new)
        if new.pack is not None:
            self._follow_pack(old, new, new.pack)
        self._index_queue(old, new)
        self._index_later(new)
        if new.pack is not None and new.pack.index:
            self._index_first(new, new.pack)
        self._index_live(old, new)
        follow_holdings(self, old, new)
        if self.loans or self.reports or self.excluding or has_lending(new):
            self._follow_loans(old, new)
        self._index_owed(old, new)
        if has_wish(new):
            self.wishing.add(new.job_id)
        elif self.wishing:
            self.wishing.discard(new.job_id)
        if new.spec.mail_type:
            self._follow_mail(old, new)
        if new.spec.attended:
            (self.attended.discard if new.state in FINAL else self.attended.add)(new.job_id)
        if new.grows is not None:
            if new.state is JobState.PENDING:
                self.growing[new.grows.job_id] = new.job_id
                if fills(new) and (old is None or not fills(old)):
                    self.want_plan()
                self._arm_shorter(old, new, new.grows)
            elif self.growing.get(new.grows.job_id) == new.job_id:
                del self.growing[new.grows.job_id]
        self.mentions.follow(old, new)
        self.job_counts.follow(old, new)
        if new.state is not JobState.PENDING and new.job_id in self.promises:
            self.put_promise(Promise(new.job_id))
        if old is not None and old.spec.name != new.spec.name:
            self._unindex_name(old)
            self._index_identity(new)
        if old is None:
            self._index_identity(new)
        elif new.state in FINAL and old.state not in FINAL:
            self._unindex_name(new)
        if old is None or old.open != new.open:
            self._index_dependencies(old, new)
        if new.not_before_us and (old is None or old.not_before_us != new.not_before_us):
            heapq.heappush(self.timers, (new.not_before_us, "due", new.job_id))
        if new.avoid and (old is None or not old.avoid or old.avoid_until_us != new.avoid_until_us):
            heapq.heappush(self.timers, (new.avoid_until_us, "avoid", new.job_id))
        if new.guests is not None or new.guest_of is not None:
            self._arm_guests(old, new)
        if new.attempt is not None and new.attempt.more is not None:
            self._arm_more(old, new.job_id, new.attempt.more)
        elif self.phases_waiting or self.phases_running:
            self._index_controller_phase(new.job_id, None)
        if new.state in FINAL and not new.is_owed_elsewhere:
            told = old is not None and old.is_owed_elsewhere
            if told or old is None or old.state not in FINAL or (old.residues and not new.residues):
                self.push_forget(new)

    def _follow_mail(self, old: Job | None, new: Job) -> None:
        """Index a job about which messages are owed, and set the timer of the next part of its time limit."""
        if new.owes_mail:
            self.mailing.setdefault(new.job_id)
        else:
            self.mailing.pop(new.job_id, None)
        percent, at_us = next_mail(new)
        if percent and self.config.sends_mail and (old is None or next_mail(old) != (percent, at_us)):
            heapq.heappush(self.timers, (at_us, MAIL_TIMER, new.job_id))

    def _arm_guests(self, old: Job | None, new: Job) -> None:
        """Set the timers of a job that spans cells, or that holds nodes for one."""
        if new.guests is not None and new.guests.until_us:
            before = old.guests.until_us if old is not None and old.guests is not None else 0
            if new.guests.until_us != before:
                heapq.heappush(self.timers, (new.guests.until_us, "guests", new.job_id))
        if new.guest_of is not None and new.guest_of.until_us and old is None:
            heapq.heappush(self.timers, (new.guest_of.until_us, "guest", new.job_id))

    def _arm_more(self, old: Job | None, job_id: int, more: AttemptMore) -> None:
        """Set the timers of what only few attempts have."""
        attempt = old.attempt if old is not None else None
        before = attempt.more if attempt is not None else None
        until_us = more.preparing_until_us
        if until_us and (before is None or before.preparing_until_us != until_us):
            heapq.heappush(self.timers, (until_us, "preparing", job_id))
        gateway = more.gateway
        if gateway is not None and gateway.until_us and (before is None or before.gateway is not gateway):
            heapq.heappush(self.timers, (gateway.until_us, "gateway", job_id))
        growth, was = more.growth, before.growth if before is not None else None
        joins_us = growth.preparing_until_us if growth is not None else 0
        if joins_us and (was is None or was.preparing_until_us != joins_us):
            heapq.heappush(self.timers, (joins_us, "growth", job_id))
        if more.controller is not None:
            self._index_controller_phase(job_id, more.controller.stage)

    def _arm_shorter(self, old: Job | None, new: Job, place: GrowthPlace) -> None:
        """Set the timer of a growth that waits: its job's end comes nearer, and it asks for less time."""
        at_us = shorter_at_us(self.jobs.get(place.job_id), new)
        if at_us and (old is None or old.spec is not new.spec):
            heapq.heappush(self.timers, (at_us, "shorter", new.job_id))

    def _index_controller_phase(self, job_id: int, stage: PhaseStage | None) -> None:
        """Index a job whose program on the controller's host waits for its turn, or runs."""
        if stage is PhaseStage.WAITING:
            self.phases_waiting[job_id] = None
        else:
            self.phases_waiting.pop(job_id, None)
        if stage in UNDER_WAY:
            self.phases_running[job_id] = None
        else:
            self.phases_running.pop(job_id, None)

    def put_promise(self, new: Promise) -> None:
        """Insert, replace or drop the promise of a waiting job."""
        if new.starts:
            self.promises[new.job_id] = new
        else:
            self.promises.pop(new.job_id, None)
        self.touched.records.add((PROMISE, str(new.job_id)))

    def put_phase_lengths(self, new: PhaseLengths) -> None:
        """Replace what is known of the lengths of phases."""
        self.phase_lengths = new
        self.touched.settings = True
        self._follow_phases()

    def _follow_phases(self) -> None:
        """Make all entries of waiting jobs anew when plans are to count on other lengths of phases."""
        known, phases_us = self.phase_lengths, 0
        if self.phased:
            phases_us = known.prolog.planned_us + known.epilog.planned_us
        if self.config.phases is not None and self.config.phases.prolog:
            phases_us += known.controller.planned_us
        if phases_us == self.phases_us:
            return
        self.phases_us = phases_us
        for job_id in self.queue_ids():
            job = self.jobs[job_id]
            self.queue.replace(self._pending(job, self.startable(job)))
        for job_id in self.later.ids():
            self._index_later(self.jobs[job_id])
        self.want_plan()

    def put_token(self, new: IssuedToken) -> None:
        """Insert a token and set the timer of its end."""
        self.tokens[new.id] = new
        self.touched.records.add((TOKEN, new.id.hex()))
        heapq.heappush(self.timers, (new.expires_us, TOKEN, int.from_bytes(new.id)))

    def drop_token(self, identifier: bytes) -> None:
        """Remove a token: it was revoked, or has expired."""
        del self.tokens[identifier]
        self.touched.records.add((TOKEN, identifier.hex()))

    def drop_job(self, job_id: int) -> None:
        """Forget a finished job."""
        job = self.jobs.pop(job_id)
        if job_id in self.touched.jobs:
            self.touched.forgotten.append(job)
        self.touched.jobs.add(job_id)
        self.finished.pop(job_id, None)
        self.mailing.pop(job_id, None)
        self.changed.pop(job_id, None)
        for part_id in part_ids(job):
            del self.alias[part_id]
        if job.array_job_id:
            self.task_ids.pop((job.array_job_id, job.array_task), None)
            siblings = self.tasks_of.get(job.array_job_id)
            if siblings is not None:
                siblings.discard(job_id)
                if not siblings:
                    del self.tasks_of[job.array_job_id]

    def put_node(self, new: Node) -> None:
        """Insert or replace a node's record."""
        old = self.nodes.get(new.number)
        self.nodes[new.number] = new
        self.numbers[new.name] = new.number
        self.touched.nodes.add(new.number)
        if (
            new.number in self.ledger.topology.positions
            and new.number not in self.removed
            and (old is None or is_usable(old) != is_usable(new))
        ):
            self.ledger.set_usable(new.number, is_usable(new))
            self.want_plan()
        if new.number in self.ledger.topology.positions and is_older(new) != (
            old is not None and is_older(old)
        ):
            self.ledger.set_older(new.number, is_older(new))
            self.want_plan()
        self.next_number = max(self.next_number, new.number + 1)
        if old is None or old.state is not new.state or old.since_us != new.since_us:
            self._arm_loss(new)
        if new.aside_until_us and (old is None or old.aside_until_us != new.aside_until_us):
            heapq.heappush(self.timers, (new.aside_until_us, "aside", new.number))
        for fault in new.faults if old is None or old.faults is not new.faults else ():
            if fault.until_us:
                heapq.heappush(self.timers, (fault.until_us, "fault", new.number))
        if new.phases:
            self.phased[new.number] = new.phases
        else:
            self.phased.pop(new.number, None)
        self._follow_phases()

    def _arm_loss(self, node: Node) -> None:
        if node.state in (NodeState.UNREACHABLE, NodeState.UNKNOWN):
            heapq.heappush(self.timers, (self.lost_at_us(node), "lost", node.number))

    def lost_at_us(self, node: Node) -> int:
        """Time at which a silent node is given up."""
        return node.since_us + int(lost_after_s(self.config, node.orphans_dead_s) * SECOND_US)

    def drop_node(self, number: int) -> None:
        """Remove a node that is no longer configured and holds nothing."""
        node = self.nodes.pop(number)
        self.phased.pop(number, None)
        self._follow_phases()
        self.numbers.pop(node.name, None)
        self.touched.nodes.add(number)

    def put_step(self, new: Step) -> None:
        """Insert or replace a step's record."""
        key = (new.job_id, new.step)
        old = self.steps.get(key)
        if old is not None:
            self.step_use.remove(old)
            if old.state is StepState.LAUNCHING:
                self.step_owed.pop(old.revision, None)
        self.step_use.add(new)
        self.steps[key] = new
        self.steps_of.setdefault(new.job_id, set()).add(new.step)
        self.touched.steps.add(key)
        if new.state is StepState.LAUNCHING:
            self.step_owed[new.revision] = key

    def drop_steps(self, job_id: int) -> None:
        """Drop the steps of an attempt that is over."""
        for step in self.steps_of.pop(job_id, ()):
            old = self.steps.pop((job_id, step))
            self.step_use.remove(old)
            self.step_owed.pop(old.revision, None)
            self.touched.steps.add((job_id, step))
            if old.state not in OVER:
                to = StepState.CANCELLED if old.state is StepState.WAITING else StepState.ENDED
                old = replace(old, state=to, waiting=frozenset(), ended_us=self.now_us)
            self.touched.steps_ended.append(replace(old, holding=frozenset()) if old.holding else old)

    def set_config(self, config: ClusterConfig, revision: int) -> None:
        """Bring a configuration into force; its nodes must be present already."""
        counts_otherwise = config.use_forecasts != self.config.use_forecasts
        self.config = config
        self.config_revision = revision
        self.partitions = {partition.name: partition for partition in config.partitions}
        # One that is removed and added again is as its configuration says.
        self.partition_states = {
            name: state for name, state in self.partition_states.items() if name in self.partitions
        }
        self.partition_nodes = {
            partition.name: tuple(self.numbers[name] for name in partition.nodes if name in self.numbers)
            for partition in config.partitions
        }
        self._set_partition_views()
        if counts_otherwise:
            for job_id in self.queue_ids():
                job = self.jobs[job_id]
                if job.forecast is not None or job.pack is not None:
                    self.queue.replace(self._pending(job, self.startable(job)))
            for job_id, number in self.live:
                found = self.find_attempt(job_id, number)
                if found is not None and found[0].forecast is not None:
                    self.live[job_id, number] = self._running(*found)
        for job_id in self.later.ids():
            self._index_later(self.jobs[job_id])
        self.login = frozenset(self.numbers[name] for name in config.login_nodes)
        configured = {node_config.name for node_config in config.nodes}.union(config.login_nodes)
        self.removed = {number for number, node in self.nodes.items() if node.name not in configured}
        if self.removed:
            heapq.heappush(self.timers, (self.now_us + REMOVED_LOOK_US, "removed", 0))
        self.ledger = fresh_ledger(self)
        for node in self.nodes.values():
            self._arm_loss(node)
        self._follow_phases()
        self.feasible.clear()
        self.empty = None
        self.touched.settings = True
        self.want_plan()
        self.configured = self.generation

    def _set_partition_views(self) -> None:
        self.partition_views = {
            partition.name: PartitionView(
                partition.name,
                self.state_of_partition(partition) in STARTING,
                memory_per_cpu_mib=partition.memory_per_cpu_default_mib,
                tier=partition.tier,
                preempt_mode=partition.preempt_mode,
                role=partition.role,
            )
            for partition in self.config.partitions
        }

    def state_of_partition(self, partition: Partition) -> str:
        """The state that an operator gave the partition, else that of its configuration."""
        return self.partition_states.get(partition.name, UP if partition.up else DOWN)

    def set_partition(self, name: str, state: str) -> None:
        """Give a partition a state."""
        self.partition_states[name] = state
        self._set_partition_views()
        self.touched.settings = True
        self.want_plan()
        # A plan under way is for the partitions as they were.
        self.configured = self.generation

    def queue_ids(self) -> list[int]:
        """Jobs that wait for resources only, in planning order."""
        return [entry.job_id for entry in self.queue.first(len(self.queue))]

    def note_change(self, job_id: int) -> None:
        """Mark the job as changed: a plan under way is for its old record."""
        self.want_plan()
        self.changed[job_id] = self.generation

    def want_plan(self) -> None:
        """Request a plan: a change may let a job start."""
        self.generation += 1
        self.plan_wanted = True

    def push_forget(self, job: Job) -> None:
        at_us = job.ended_us + int(self.config.finished_retention_s * SECOND_US)
        heapq.heappush(self.timers, (at_us, "forget", job.job_id))
        self.finished[job.job_id] = None

    # ---- indexes ----

    def _index_queue(self, old: Job | None, new: Job) -> None:
        startable = self.startable(new) if waits(new) else 0
        if startable:
            pending = self._pending(new, startable)
            if new.spec.borrow and new.grows is None:
                self.borrowers.add(new.job_id)
            elif self.borrowers:
                self.borrowers.discard(new.job_id)
            if new.job_id not in self.queue:
                self.queue.add(pending)
                self.want_plan()
            elif self.queue.find(new.job_id) != pending:
                self.queue.replace(pending)
                self.want_plan()
        elif new.job_id in self.queue:
            self.queue.remove(new.job_id)
            self.borrowers.discard(new.job_id)
            self._give_up_plans(new)
        if new.is_array and old is not None and bool(task_slots(old)) != bool(task_slots(new)):
            self._refresh_waiting_tasks(new.job_id)
        was_pending = old is not None and old.state is JobState.PENDING
        is_pending = new.state is JobState.PENDING
        self.pending_count += is_pending - was_pending
        if is_pending != was_pending or (old is not None and is_pending and old.spec is not new.spec):
            before = weight(old.spec) if old is not None and was_pending else 0
            self._count_pending(new.spec.user.uid, (weight(new.spec) if is_pending else 0) - before)
        self.active_count += (new.state in ACTIVE) - (old is not None and old.state in ACTIVE)

    def _count_pending(self, uid: int, change: int) -> None:
        count = self.pending_of.get(uid, 0) + change
        if count:
            self.pending_of[uid] = count
        else:
            self.pending_of.pop(uid, None)

    def _pending(self, job: Job, startable: int, *, is_ready: bool = True) -> Pending:
        counts = self.config.use_forecasts
        followers: tuple[Follower, ...] = ()
        phases_us = self.phases_us
        if job.pack is not None:
            delays_us = packs.delays_of(self.packs, self.jobs, job.pack.pack_id) if phases_us else ()
            phases_us = packs.phases_of(job, delays_us, phases_us)
            followers = packs.followers(self.packs, self.jobs, job, counts=counts, phases_us=self.phases_us)
        return pending_of(
            job,
            startable,
            is_ready=is_ready,
            use_forecasts=counts,
            followers=followers,
            packs=self._entries_of,
            phases_us=phases_us,
        )

    def _running(self, job: Job, attempt: Attempt) -> Running:
        return running_of(job, attempt, use_forecasts=self.config.use_forecasts)

    def _index_later(self, new: Job) -> None:
        """Index jobs that cannot start yet but foreseeably will: policies that plan ahead plan them too."""
        startable = 0
        if new.job_id not in self.queue and foreseeable(new):
            count = ranges.count(new.tasks_left) if new.tasks_left is not None else 1
            startable = min(count, task_slots(new))
            if new.pack is not None and not packs.is_whole(self.packs, new.pack):
                startable = 0
        if startable:
            pending = self._pending(new, startable, is_ready=False)
            if new.job_id not in self.later:
                self.later.add(pending)
                self.want_plan()
            elif self.later.find(new.job_id) != pending:
                self.later.replace(pending)
                self.want_plan()
        elif new.job_id in self.later:
            self.later.remove(new.job_id)
            self._give_up_plans(new)

    def _give_up_plans(self, new: Job) -> None:
        """Request a plan when a waiting job is held, offered or ends: its planned resources are free for others."""
        if new.hold or new.is_away or new.gathers or new.state in FINAL:
            self.want_plan()

    def _index_first(self, member: Job, place: PackPlace) -> None:
        """Make the entry of a pack's first member anew: another member has changed."""
        first = self.jobs.get(place.pack_id)
        entry = self.queue.find(place.pack_id)
        if entry is not None and entry.followers and packs.is_whole(self.packs, place):
            pending = packs.with_member(
                entry, member, counts=self.config.use_forecasts, phases_us=self.phases_us
            )
            if pending is not entry:
                self.queue.replace(pending)
                self.want_plan()
        elif first is not None and first.state is JobState.PENDING:
            self._index_queue(first, first)
            self._index_later(first)

    def _follow_pack(self, old: Job | None, new: Job, place: PackPlace) -> None:
        """Follow a member's record, which has been put; at the pack's end the first member's may be forgotten."""
        before = self.packs.get(place.pack_id)
        packs.follow(self.packs, new, place)
        living = self.packs.get(place.pack_id)
        first = self.jobs.get(place.pack_id)
        if before and not living and first is not None and first is not new and first.state in FINAL:
            self.touched.jobs.add(first.job_id)
            self.push_forget(first)
        has_begun = old is not None and old.pack is not None and old.pack.anchor_us != place.anchor_us
        if has_begun or (before and living != before):
            # The jobs that wait for all of it wait for other entries now.
            for job_id in sorted(self.dependents.get(place.pack_id, ())):
                self._index_later(self.jobs[job_id])

    def _entries_of(self, job_id: int) -> tuple[int, ...]:
        """The jobs whose ends are those of a pack that has begun; any other job, or pack, has one entry."""
        first = self.jobs.get(job_id)
        if first is None or first.pack is None or first.pack.index or not first.pack.anchor_us:
            return (job_id,)
        return self.packs.get(job_id) or (job_id,)

    def _index_live(self, old: Job | None, new: Job) -> None:
        """Index the running attempts for the planner; unchanged ones stay the same object."""
        before = {attempt.number: attempt for attempt in attempts_of(old)} if old is not None else {}
        for attempt in attempts_of(new):
            previous = before.pop(attempt.number, None)
            if (
                previous is None
                or old is None
                or previous.held is not attempt.held
                or (previous.more is not attempt.more and previous.given != attempt.given)
                or previous.until_us != attempt.until_us
                or lends(previous) != lends(attempt)
                or (previous.more is not attempt.more and previous.loans != attempt.loans)
                or previous.time_limit_s != attempt.time_limit_s
                or old.spec is not new.spec
                or old.forecast != new.forecast
                or (
                    (new.forecast is not None or attempt.more is not None)
                    and began(previous) != began(attempt)
                )
            ):
                self.live[new.job_id, attempt.number] = self._running(new, attempt)
        for number in before:
            self.live.pop((new.job_id, number), None)

    def _follow_loans(self, old: Job | None, new: Job) -> None:
        """Follow what the job has borrowed, and leaves to others; note what has ended with this change."""
        before = attempts_of(old) if old is not None else ()
        after = {attempt.number: attempt for attempt in attempts_of(new)}
        for attempt in after.values():
            if attempt.more is not None and attempt.more.loans:
                self._index_loans(new.job_id, attempt)
        for attempt in before:
            more = attempt.more
            current = after.get(attempt.number)
            if current is attempt:
                continue
            held = current.held if current is not None else frozenset[int]()
            if more is not None and more.loans:
                left = current.loans if current is not None else ()
                for loan in attempt.loans:
                    if loan not in left:
                        self._unindex_loan(new.job_id, attempt.number, loan)
            gone = attempt.held - held
            if not gone:
                continue
            self.reports.forget(new.job_id, attempt.number, gone)
            for one in attempt.exclusions if more is not None else ():
                if one.node in gone and (new.job_id, attempt.number, one.node) in self.loans:
                    self.owners_gone.append((new.job_id, attempt.number, one.node))
        if new.attempt is not None and new.attempt.exclusions:
            self.excluding.add(new.job_id)
        elif self.excluding:
            self.excluding.discard(new.job_id)

    def _index_loans(self, job_id: int, attempt: Attempt) -> None:
        found: dict[tuple[int, int, int], int] = {}
        for loan in attempt.loans:
            key = (loan.owner, loan.attempt, loan.node)
            found[key] = found.get(key, 0) + loan.cores
        borrower = job_id, attempt.number
        for key, cores in found.items():
            there = self.loans.setdefault(key, {})
            if there.get(borrower) != cores:
                there[borrower] = cores
                self.loan_changes += 1
                self.reports.lent(key)

    def _unindex_loan(self, job_id: int, number: int, loan: Loan) -> None:
        key = (loan.owner, loan.attempt, loan.node)
        borrowers = self.loans.get(key, {})
        borrowers.pop((job_id, number), None)
        if not borrowers:
            self.loans.pop(key, None)
        self.loan_changes += 1
        self.loan_ends.append(loan)

    def _refresh_waiting_tasks(self, array_id: int) -> None:
        """Follow the array's limit for tasks that wait for another attempt."""
        for task_id in sorted(self.tasks_pending.get(array_id, ())):
            task = self.jobs[task_id]
            if not waits(task):
                continue
            room = self.startable(task)
            if room and task_id not in self.queue:
                self.queue.add(self._pending(task, room))
                self.want_plan()
            elif not room and task_id in self.queue:
                self.queue.remove(task_id)

    def _index_tasks(self, new: Job) -> None:
        """Index tasks that wait for another attempt: few, even in large arrays."""
        if not new.array_job_id:
            return
        if new.state is JobState.PENDING:
            self.tasks_pending.setdefault(new.array_job_id, set()).add(new.job_id)
        elif (waiting := self.tasks_pending.get(new.array_job_id)) is not None:
            waiting.discard(new.job_id)
            if not waiting:
                del self.tasks_pending[new.array_job_id]

    def _index_owed(self, old: Job | None, new: Job) -> None:
        if old is not None and old.attempt is new.attempt and old.residues is new.residues:
            return
        if old is not None:
            for attempt in attempts_of(old):
                for revision in owed_revisions(attempt):
                    self.owed.pop(revision, None)
        for attempt in attempts_of(new):
            for revision in owed_revisions(attempt):
                self.owed[revision] = new.job_id

    def _index_identity(self, new: Job) -> None:
        if len(new.spec.components) > 1:
            self.alias.update(dict.fromkeys(part_ids(new), new.job_id))
        if new.array_job_id:
            self.tasks_of.setdefault(new.array_job_id, set()).add(new.job_id)
            self.task_ids[new.array_job_id, new.array_task] = new.job_id
        if new.state not in FINAL and not new.array_job_id:
            self.same_name.setdefault(name_key(new.spec), set()).add(new.job_id)

    def _unindex_name(self, job: Job) -> None:
        key = name_key(job.spec)
        names = self.same_name.get(key)
        if names is not None:
            names.discard(job.job_id)
            if not names:
                del self.same_name[key]

    def _index_dependencies(self, old: Job | None, new: Job) -> None:
        for dependency in old.open if old is not None else ():
            if not dependency.needs_record:
                continue
            target = dependency.job_id
            waiting = self._waiting_for(target, dependency.task)
            waiting.discard(new.job_id)
            if not waiting:
                if dependency.task < 0:
                    self.dependents.pop(target, None)
                else:
                    tasks = self.task_dependents[target]
                    del tasks[dependency.task]
                    if not tasks:
                        del self.task_dependents[target]
                if not self.is_awaited(target):
                    self._touch_ended(target)
        for dependency in new.open:
            if dependency.due_us:
                heapq.heappush(self.timers, (dependency.due_us, "depend", new.job_id))
            if dependency.needs_record:
                if not self.is_awaited(dependency.job_id):
                    self._touch_ended(dependency.job_id)
                self._waiting_for(dependency.job_id, dependency.task).add(new.job_id)

    def _waiting_for(self, job_id: int, task: int) -> set[int]:
        """The jobs that wait for a job or for one task of an array; a new set if none did."""
        if task < 0:
            return self.dependents.setdefault(job_id, set())
        return self.task_dependents.setdefault(job_id, {}).setdefault(task, set())

    def _touch_ended(self, job_id: int) -> None:
        """Touch an ended job: its row says whether a dependency of a waiting job needs it after a restart."""
        job = self.jobs.get(job_id)
        if job is None:
            if job_id:
                self.touched.lacking.add(job_id)
        elif job.state in FINAL:
            self.touched.jobs.add(job_id)
