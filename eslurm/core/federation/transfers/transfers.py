"""A cell's part in transfers of jobs as one machine: what it offers, what others own, what has come to it.

It follows the jobs of the committed view that concern other cells; a cell without any asks the store for nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from eslurm.core.federation.actions import (
    Action,
    AskBid,
    AskGuest,
    CellAnswer,
    CellCall,
    Failure,
    SwapAnswer,
    SwapKeys,
    TellGuest,
)
from eslurm.core.federation.following import ChangedJobs
from eslurm.core.federation.guests.gatherings import Gatherings
from eslurm.core.federation.guests.hosting import Hosting
from eslurm.core.federation.membership import Membership, Standing
from eslurm.core.federation.mirror import Mirror
from eslurm.core.federation.transfers.arrivals import Arrivals
from eslurm.core.federation.transfers.commits import Commits
from eslurm.core.federation.transfers.offers import Offers
from eslurm.core.federation.transfers.owners import Owners
from eslurm.core.federation.values import Keys
from eslurm.core.federation.view import FederationView
from eslurm.core.model.job import Job
from eslurm.core.model.job_states import FINAL, JobState
from eslurm.core.model.messages import TransferMessage
from eslurm.core.model.transfer import FOREIGN
from eslurm.core.state.cluster import Touched
from eslurm.core.state.pending_reason import may_gather, pending_reason
from eslurm.core.state.view import View

KEYS_MAX: Final = 2 * 8_192 + 1
"""Records of this cell's jobs: twice as many as are offered and owned at once, and the key of withdrawals."""
LOOK_US: Final = 20_000
"""Interval of looks whether a message has been committed."""


class Transfers:
    """Feed it with answers and `tick` it; it reads the committed view. `wait_us`: see `Offers`."""

    def __init__(
        self,
        keys: Keys,
        membership: Membership,
        view: Callable[[], View],
        wait_us: Callable[[int], int | None],
        observe: Callable[[int], FederationView],
        commit: Callable[[TransferMessage], None],
    ) -> None:
        own = membership.own.name
        self.mirror = Mirror(keys.jobs_of(own), KEYS_MAX, notes_keys=True)
        self._membership = membership
        self._view = view
        commits = self._commits = Commits(commit)
        self._now_us = 0
        self.owners = Owners(keys, membership, self.mirror, commits, self._on_withdrawn)
        self.arrivals = Arrivals(keys, own, commits)
        self.offers = Offers(observe, wait_us, commits, self._on_made, self.owners.unmade)
        self.hosting = Hosting(commits)
        self.gatherings = Gatherings(observe, wait_us, self._may_gather, commits, self._has_elder)
        self._changed = ChangedJobs(view)
        self._is_followed = self._may_offer = False

    # ---- readers ----

    @property
    def counts(self) -> Counter[str]:
        """Events since this controller leads."""
        counts = Counter({f"bids {what}": count for what, count in self.offers.counts.items()})
        counts.update(self.owners.counts)
        counts.update(self.arrivals.counts)
        counts.update({f"gatherings {what}": count for what, count in self.gatherings.counts.items()})
        return counts

    @property
    def problem(self) -> str:
        """The problem that keeps transfers from going on; empty: none."""
        if self._is_followed and self.mirror.problem:
            return self.mirror.problem
        unreadable = len(self.owners.unreadable) + len(self.arrivals.unreadable)
        if unreadable:
            return f"{unreadable} owner records of jobs cannot be read"
        if self.mirror.skipped:
            return f"{self.mirror.skipped} keys below {self.mirror.prefix} are left out: remove those that are no job's"
        return ""

    def reasons(self, job_id: int) -> dict[str, str]:
        """By cell why it does not get this waiting job, or holds no nodes for it."""
        return self.offers.reasons(job_id) or dict(self.gatherings.reasons(job_id))

    def follows_new_store(self, now_us: int) -> None:
        """An administrator has seen that the store is another one, or an older copy."""
        self.owners.is_new_store = True
        self.arrivals.check_again(now_us)

    # ---- what next ----

    def tick(self, now_us: int, draw: float) -> list[Action]:
        """All that is to be asked now, each once. `draw` is of [0, 1), for pauses."""
        self._now_us = now_us
        self._follow(now_us)
        if not self._is_followed:
            return []
        actions: list[Action] = []
        if (asked := self.mirror.tick(now_us, draw)) is not None:
            actions.append(asked)
        self.owners.note_keys(self.mirror.take_noted(), now_us)
        # Without a listing this cell's own records are not known.
        can_write = self._membership.standing is Standing.MEMBER and self.mirror.is_listed
        actions += self.owners.tick(now_us, draw, can_write=can_write)
        actions += self.arrivals.tick(now_us, draw, can_write=self._membership.standing is Standing.MEMBER)
        self._may_offer = can_write and not self.mirror.problem
        if self._may_offer:
            actions += self.offers.tick(now_us, len(self.owners.open), self.owners.size)
        # Calls between cells alone: the store need not answer.
        actions += self.gatherings.tick(now_us, draw)
        self.hosting.tick(now_us)
        return actions

    def due_us(self, now_us: int) -> int | None:
        """The next instant at which `tick` has something to do, as far as it depends on time; None: no such instant."""
        if not self._is_followed:
            return None
        times = [self.mirror.due_us]
        times += [self.owners.due_us(now_us), self.arrivals.due_us(now_us)]
        if self._may_offer:
            times.append(self.offers.due_us(now_us))
        times += [self.gatherings.due_us(now_us), self.hosting.due_us]
        if self._commits.is_waiting:
            times.append(now_us + LOOK_US)
        return min((at_us for at_us in times if at_us is not None), default=None)

    # ---- answers ----

    def swapped(self, action: SwapKeys, answer: SwapAnswer) -> None:
        """The answer to a swap of these machines; others are ignored."""
        self.owners.swapped(action, answer)
        self.arrivals.swapped(action, answer)

    def called(self, action: CellCall, answer: CellAnswer, now_us: int) -> None:
        """Another cell has answered to a call, or did not in useful time."""
        if isinstance(action, AskGuest | TellGuest):
            self.gatherings.called(action, answer, now_us)
        elif isinstance(action, AskBid):
            self.offers.called(action, answer, now_us)
        else:
            self.owners.called(action, answer, now_us)

    def failed(self, action: SwapKeys, failure: Failure) -> None:
        """The call failed."""
        self.owners.failed(action, failure)
        self.arrivals.failed(action, failure)

    # ---- within ----

    def _follow(self, now_us: int) -> None:
        """Take what has changed among the jobs that concern other cells."""
        view = self._view()
        changed, gone = self._changed.take()
        for job in changed:
            self._show(job, view, now_us)
        for job_id in gone:
            self._forget(job_id, now_us)
        # Once begun the mirror goes on: what is left is cleared.
        self._is_followed = self._is_followed or not self._changed.is_empty

    def _show(self, job: Job, view: View, now_us: int) -> None:
        job_id, transfer = job.job_id, job.transfer
        self._commits.settle(job_id)
        if job.guest_of is not None:
            self.hosting.show(job, now_us)
            return
        if job.guests is not None:
            if job.state in FINAL and not job.guests.guests:
                self.gatherings.drop(job_id)
            else:
                self.gatherings.show(job, now_us)
            return
        if transfer is not None and transfer.stage in FOREIGN:
            self.arrivals.show(job, now_us)
            return
        self.owners.show(job, now_us)
        if _may_be_offered(view, job):
            self.offers.show(job, now_us)
            return
        is_offered = transfer is not None and job.state not in FINAL
        self.offers.drop(job_id, is_offered=is_offered)
        if not is_offered:
            self.owners.unmade(job_id)

    def _forget(self, job_id: int, now_us: int) -> None:
        self._commits.settle(job_id)
        self.gatherings.drop(job_id)
        self.hosting.drop(job_id)
        self.arrivals.drop(job_id)
        self.offers.drop(job_id)
        self.owners.unmade(job_id)
        self.owners.drop(job_id, now_us)

    def _may_gather(self, job: Job) -> bool:
        return may_gather(self._view(), job)

    def _has_elder(self, job: Job) -> bool:
        return self.hosting.has_elder((job.submitted_us, self._membership.own.name, job.job_id))

    def _on_made(self, job_id: int, cell: str) -> None:
        self.owners.made(job_id, cell, self._view().revision)

    def _on_withdrawn(self, job_id: int, cell: str, why: str) -> None:
        self.offers.withdrawn(job_id, cell, why, self._now_us)


def concerns_cells(view: View, touched: Touched) -> bool:
    """Check whether a batch that the view shows now has touched jobs that concern other cells: then a tick is due."""
    return bool(view.transfers) and not view.transfers.keys().isdisjoint(touched.jobs)


def _may_be_offered(view: View, job: Job) -> bool:
    """Check whether it waits for resources alone and was never placed here."""
    return (
        bool(job.spec.cells)
        and job.transfer is None
        and job.state is JobState.PENDING
        and not job.attempts
        and not pending_reason(view, job)
    )
