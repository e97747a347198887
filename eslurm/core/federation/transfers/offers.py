"""Choice of waiting jobs to offer, and of the cell: other cells say when they would start a job.

Jobs are looked at in the order of the queue, each again after a rest; one at rest is in the way of none. A tick costs what
has changed or is due, never all that waits.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final, TypeAlias

import msgspec

from eslurm.core.federation.actions import AskBid, CellAnswer
from eslurm.core.federation.transfers.agenda import Agenda
from eslurm.core.federation.transfers.candidates import Candidates
from eslurm.core.federation.transfers.commits import Commits
from eslurm.core.federation.view import FederationView
from eslurm.core.model.job import Job
from eslurm.core.model.messages import OfferJob

FIRST_US: Final = 1_000_000
"""From the first sight of a waiting job to its first round: its own cell's plan comes first."""
REST_MIN_US: Final = 5_000_000
REST_MAX_US: Final = 60_000_000
BIDS_MAX: Final = 64
BIDS_CELL_MAX: Final = 16
"""Bids under way at one other cell."""
CELLS_MAX: Final = 3
"""Cells that are asked in one round."""
OFFERS_MAX: Final = 16
"""Offers under way."""
FOLLOWED_MAX: Final = 8_192
"""Jobs that are offered, or owned by other cells."""
STEPS_MAX: Final = 256
ROUNDS_PER_S: Final = 50
WAKE_MAX: Final = 64
"""Jobs that are looked at before their time when a cell has become freer."""
VIEW_US: Final = 200_000
COMMIT_MAX_US: Final = 5_000_000
"""Within this time the log takes an offer, or the choice is made again."""
MARGIN_US: Final = 2_000_000
SOON_US: Final = 10_000_000
"""A job without a planned start at home goes at once to a cell that starts it within this time."""
TEXT_MAX: Final = 200
CELLS_NOTED_MAX: Final = 16

_Order: TypeAlias = tuple[int, int, int]


class _Waiting(msgspec.Struct, gc=False):
    """A job that may be offered. `avoid` are cells that rest for it, each until a time."""

    job: Job
    order: _Order
    since_us: int
    misses: int = 0
    rests: bool = True
    looked_us: int = 0
    free: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)
    """Free nodes and cores of the cells at its last round."""
    avoid: dict[str, int] = msgspec.field(default_factory=dict)
    reasons: dict[str, str] = msgspec.field(default_factory=dict)


class _Round(msgspec.Struct, gc=False):
    """Bids for one job."""

    asked: dict[str, AskBid]
    best: tuple[int, str] | None = None


class Offers:
    """Feed it with the jobs that may be offered, with bids, and `tick` it.

    `wait_us` is the time until this cell starts a job by its own plan; None: it does not know.
    """

    def __init__(
        self,
        observe: Callable[[int], FederationView],
        wait_us: Callable[[int], int | None],
        commits: Commits,
        made: Callable[[int, str], None],
        unmade: Callable[[int], None],
    ) -> None:
        self.counts: Counter[str] = Counter()
        """Bids by what became of them."""
        self._observe = observe
        self._wait_us = wait_us
        self._commits = commits
        self._made = made
        self._unmade = unmade
        self._waiting: dict[int, _Waiting] = {}
        self._queue: list[tuple[_Order, int]] = []
        self._open: list[tuple[_Order, int]] = []
        # Of jobs that are offered: cells that rest for them, and the reasons.
        self._away: dict[int, tuple[dict[str, int], dict[str, str]]] = {}
        self._agenda = Agenda()
        self._rounds: dict[int, _Round] = {}
        self._bids: Counter[str] = Counter()
        # Offers that the log has not taken yet: the cell, and when the choice is made again.
        self._offering: dict[int, tuple[str, int]] = {}
        self._candidates: Candidates | None = None
        self._view_at_us = 0
        self._free: dict[str, tuple[int, int]] = {}
        # Cells that calls do not reach: how often in a row, and until when they are not asked.
        self._unreached: dict[str, tuple[int, int]] = {}
        self._budget = 0.0
        self._budget_us = 0

    @property
    def size(self) -> int:
        """Number of jobs that may be offered."""
        return len(self._waiting)

    @property
    def under_way(self) -> int:
        """Number of bids under way."""
        return self._bids.total()

    def reasons(self, job_id: int) -> dict[str, str]:
        """By cell why it does not get this waiting job."""
        waiting = self._waiting.get(job_id)
        return dict(waiting.reasons) if waiting is not None else {}

    # ---- inputs ----

    def show(self, job: Job, now_us: int) -> None:
        """The job waits in the queue here, and other cells may take it."""
        job_id, order = job.job_id, (-job.priority, job.submitted_us, job.job_id)
        known = self._waiting.get(job_id)
        if known is not None and known.order == order:
            known.job = job
            return
        if known is not None:
            self._unqueue(known)
            known.job, known.order = job, order
        else:
            known = self._waiting[job_id] = _Waiting(job, order, now_us)
            known.avoid, known.reasons = self._away.pop(job_id, ({}, {}))
            self._agenda.put(job_id, now_us + FIRST_US)
        insort(self._queue, (order, job_id))
        if not known.rests:
            heapq.heappush(self._open, (order, job_id))

    def drop(self, job_id: int, *, is_offered: bool = False) -> None:
        """It cannot be offered any more, or is offered now: then it may come back."""
        if not is_offered:
            self._away.pop(job_id, None)
        known = self._waiting.pop(job_id, None)
        if known is None:
            return
        if is_offered:
            self._away[job_id] = known.avoid, known.reasons
        self._unqueue(known)
        if len(self._open) > 2 * len(self._waiting) + STEPS_MAX:
            # Entries of jobs that are gone or have another order.
            self._open = [(one.order, number) for number, one in self._waiting.items() if not one.rests]
            heapq.heapify(self._open)
        self._agenda.drop(job_id)
        self._offering.pop(job_id, None)
        if (asked := self._rounds.pop(job_id, None)) is not None:
            for cell in asked.asked:
                self._end_bid(cell)

    def withdrawn(self, job_id: int, cell: str, why: str, now_us: int) -> None:
        """The cell did not take the job, which is still offered in the log: it rests for this job."""
        before, reasons = self._away.get(job_id, ({}, {}))
        avoid = {name: until_us for name, until_us in before.items() if until_us > now_us}
        avoid[cell] = now_us + REST_MAX_US
        _note(reasons, cell, why)
        self._away[job_id] = avoid, reasons

    def called(self, action: AskBid, answer: CellAnswer, now_us: int) -> None:
        """A cell has said when it would start the job, or why it would not."""
        if not answer.is_done and not answer.is_refused:
            misses = self._unreached.get(action.cell, (0, 0))[0] + 1
            rest_us = min(REST_MAX_US, REST_MIN_US << min(misses - 1, 8))
            self._unreached[action.cell] = misses, now_us + rest_us
        else:
            self._unreached.pop(action.cell, None)
        current = self._rounds.get(action.job_id)
        if current is None or current.asked.get(action.cell) is not action:
            return
        del current.asked[action.cell]
        self._end_bid(action.cell)
        waiting = self._waiting[action.job_id]
        if answer.is_done and answer.wait_us is not None:
            bid = max(0, answer.wait_us), action.cell
            current.best = min(current.best, bid) if current.best is not None else bid
            self.counts["bid"] += 1
            _note(waiting.reasons, action.cell, f"it would start the job in {bid[0] / 1e6:.0f} s")
        else:
            self.counts["refused" if answer.is_refused else "no bid" if answer.is_done else "no answer"] += 1
            _note(waiting.reasons, action.cell, answer.text or "it cannot say when it would start the job")
        if not current.asked:
            del self._rounds[action.job_id]
            self._end_round(waiting, current, now_us)

    # ---- what next ----

    def tick(self, now_us: int, offered: int, followed: int) -> list[AskBid]:
        """The next requests, each once. `offered` is the number of offers under way, `followed` with
        those jobs that other cells own."""
        self._look(now_us)
        for job_id in self._agenda.take(now_us, STEPS_MAX):
            if job_id in self._offering:
                self._offer_again(job_id, now_us)
            elif (waiting := self._waiting.get(job_id)) is not None:
                self._wake(waiting)
        self._fill_budget(now_us)
        actions: list[AskBid] = []
        while (
            self._open
            and self._budget >= 1
            and offered + len(self._offering) < OFFERS_MAX
            and followed + len(self._offering) < FOLLOWED_MAX
            and self._bids.total() < BIDS_MAX
        ):
            order, job_id = heapq.heappop(self._open)
            waiting = self._waiting.get(job_id)
            if waiting is None or waiting.order != order or waiting.rests:
                continue
            actions += self._begin(waiting, now_us)
        return actions

    def due_us(self, now_us: int) -> int | None:
        """The next instant at which `tick` has something to do, as far as it depends on time; None: no such instant."""
        times = [self._agenda.due_us]
        if self._open:
            times.append(now_us + VIEW_US)
        return min((at_us for at_us in times if at_us is not None), default=None)

    # ---- within ----

    def _look(self, now_us: int) -> None:
        """Read what the cells show, if any job is interested, and wake some jobs when one has become freer."""
        if not self._waiting or now_us < self._view_at_us:
            return
        self._view_at_us = now_us + VIEW_US
        self._candidates = Candidates(self._observe(now_us))
        free = self._candidates.free
        freer = [
            name for name, now in free.items() if name in self._free and _is_freer(now, self._free[name])
        ]
        freer += [name for name in free if name not in self._free and self._free]
        self._free = free
        for name in freer:
            self._unreached.pop(name, None)
        if not freer:
            return
        for _, job_id in islice(self._queue, WAKE_MAX):
            waiting = self._waiting[job_id]
            is_at_rest = waiting.rests and job_id not in self._rounds and job_id not in self._offering
            is_at_rest = is_at_rest and 0 < waiting.looked_us <= now_us - FIRST_US
            if is_at_rest and any(_is_freer(free[cell], waiting.free.get(cell, (0, 0))) for cell in freer):
                self._agenda.put(job_id, now_us)

    def _wake(self, waiting: _Waiting) -> None:
        if waiting.rests and waiting.job.job_id not in self._rounds:
            waiting.rests = False
            heapq.heappush(self._open, (waiting.order, waiting.job.job_id))

    def _fill_budget(self, now_us: int) -> None:
        passed_us = max(0, now_us - self._budget_us)
        self._budget = min(float(ROUNDS_PER_S), self._budget + passed_us * ROUNDS_PER_S / 1e6)
        self._budget_us = now_us

    def _begin(self, waiting: _Waiting, now_us: int) -> Sequence[AskBid]:
        """Ask the best cells. Without one the job rests."""
        job_id = waiting.job.job_id
        waiting.rests, waiting.looked_us, waiting.free = True, now_us, self._free
        wait_us = self._wait_us(job_id)
        if wait_us is not None and wait_us <= MARGIN_US:
            # Its own cell starts it in a moment: no other one is that much faster.
            self._agenda.put(job_id, now_us + REST_MIN_US)
            return ()
        found = self._cells_for(waiting, now_us)
        cells = [cell for cell in found if self._bids[cell] < BIDS_CELL_MAX][:CELLS_MAX]
        if not cells:
            if found:
                self._agenda.put(job_id, now_us + VIEW_US)
            else:
                self._rest(waiting, now_us)
            return ()
        self._budget -= 1
        asked = {cell: AskBid(job_id, cell) for cell in cells}
        self._rounds[job_id] = _Round(asked)
        self._bids.update(cells)
        return tuple(asked.values())

    def _cells_for(self, waiting: _Waiting, now_us: int) -> list[str]:
        if self._candidates is None:
            return []
        return [
            cell
            for cell in self._candidates.of(waiting.job.spec)
            if waiting.avoid.get(cell, 0) <= now_us and self._unreached.get(cell, (0, 0))[1] <= now_us
        ]

    def _end_round(self, waiting: _Waiting, ended: _Round, now_us: int) -> None:
        job_id = waiting.job.job_id
        if ended.best is None or not self._gains(waiting, ended.best[0], now_us):
            self._rest(waiting, now_us)
            return
        cell = ended.best[1]
        self._made(job_id, cell)
        self._offering[job_id] = cell, now_us + COMMIT_MAX_US
        self._agenda.put(job_id, self._commits.wish(job_id, OfferJob(job_id, cell), now_us))

    def _gains(self, waiting: _Waiting, there_us: int, now_us: int) -> bool:
        """Check whether the job starts clearly earlier with this wait in another cell.

        Without a planned start at home the time that it has waited stands for the time that it will wait: a cell with a
        long queue gets it no earlier, because another cell may have room before.
        """
        wait_us = self._wait_us(waiting.job.job_id)
        if wait_us is None:
            return there_us <= max(SOON_US, now_us - waiting.since_us)
        return there_us + there_us // 10 + MARGIN_US < wait_us

    def _offer_again(self, job_id: int, now_us: int) -> None:
        cell, until_us = self._offering[job_id]
        if now_us < until_us:
            self._agenda.put(job_id, self._commits.wish(job_id, OfferJob(job_id, cell), now_us))
            return
        del self._offering[job_id]
        self._unmade(job_id)
        self._commits.settle(job_id)
        self._rest(self._waiting[job_id], now_us)

    def _rest(self, waiting: _Waiting, now_us: int) -> None:
        rest_us = min(REST_MAX_US, REST_MIN_US << min(waiting.misses, 8))
        waiting.misses += 1
        self._agenda.put(waiting.job.job_id, now_us + rest_us)

    def _end_bid(self, cell: str) -> None:
        self._bids[cell] -= 1
        if not self._bids[cell]:
            del self._bids[cell]

    def _unqueue(self, waiting: _Waiting) -> None:
        entry = waiting.order, waiting.job.job_id
        at = bisect_left(self._queue, entry)
        del self._queue[at]


def _note(reasons: dict[str, str], cell: str, text: str) -> None:
    if cell in reasons or len(reasons) < CELLS_NOTED_MAX:
        reasons[cell] = "".join(char if char.isprintable() else "?" for char in text[:TEXT_MAX])


def _is_freer(now: tuple[int, int], before: tuple[int, int]) -> bool:
    return now[0] > before[0] or now[1] > before[1]
