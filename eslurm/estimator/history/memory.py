"""All reported events: the table of jobs, their histories, live jobs, and the cluster's background.

Invariant: a question holds only earlier events. Memory is bounded: only the newest ended jobs are kept, and histories
without any job are forgotten.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from itertools import islice
from typing import Final

import numpy as np

from eslurm.core.model.forecast import Submitted
from eslurm.estimator.history.history_index import DEPTHS, OPEN_MAX, USER, RunHistory, keys
from eslurm.estimator.history.question import (
    BOUNDS,
    QUANTILES_KEPT,
    RUNNING_AT,
    WAITING_AT,
    WIDTH,
    Background,
    Question,
)
from eslurm.estimator.history.table import Indices, Table

RUNS_KEPT: Final = 20_000
"""Ended jobs that are kept; as many again may gather before the oldest are forgotten."""
BACKGROUND_RUNS: Final = 3_000
BACKGROUND_EVERY: Final = 100
"""Ends between two looks at the background."""
BACKGROUND_LEAST: Final = 20
BEYOND_RUNS: Final = 500
QUANTILES: Final = np.linspace(0.05, 0.995, QUANTILES_KEPT)
BEYOND_QUANTILES: Final = np.array([0.5, 0.8, 0.95])
BEYOND_MAX: Final = float(np.log(4.0))
UNKNOWN: Final = Background(
    np.log(np.geomspace(30.0, 60_000.0, len(QUANTILES))), np.array([0.0, 0.002, 0.02])
)
NEAR_LIMIT: Final = -0.02
"""A run that comes so near to its limit (logarithm) has reached it."""


class Live:
    """A job that has not ended."""

    __slots__ = (
        "asked_start",
        "asked_submit",
        "histories",
        "keys",
        "lesson",
        "limit_s",
        "prior",
        "row",
        "started_s",
        "submit_s",
    )

    def __init__(
        self, row: int, job: Submitted, histories: list[RunHistory], of: tuple[Hashable, ...]
    ) -> None:
        self.row = row
        self.keys = of
        self.histories = histories
        self.limit_s = max(job.limit_s, 0)
        self.submit_s = job.at_s
        self.started_s = -1
        self.prior = [
            (history.submitted, job.at_s - history.last_submit_s if history.last_submit_s >= 0 else -1)
            for history in histories
        ]
        """By history: how many had been submitted before, and how long ago the last of them."""
        self.asked_submit = False
        self.asked_start = False
        self.lesson: list[Question] = []
        """As it looked at its submission, and at its start: what is learnt from once it has ended."""


class Memory:
    """Events in order. `ended_jobs` counts those that have run."""

    def __init__(self) -> None:
        self.table = Table()
        self.ended_jobs = 0
        self.background = UNKNOWN
        self.live: dict[int, Live] = {}
        self._histories: dict[Hashable, RunHistory] = {}
        self._order: deque[int] = deque()
        """Rows of ended jobs that ran, oldest first."""
        self._runs: deque[float] = deque(maxlen=BACKGROUND_RUNS)
        self._beyond: deque[float] = deque(maxlen=BEYOND_RUNS)

    @property
    def full(self) -> bool:
        """True when it is time to `compact`."""
        return len(self.table) >= 2 * RUNS_KEPT + len(self.live)

    def submitted(self, job: Submitted) -> Live:
        """Add a job; an unfinished one with the same id is forgotten."""
        self._forget(job.job_id)
        of = keys(job)
        histories = [self._histories.get(key) or self._histories.setdefault(key, RunHistory()) for key in of]
        live = Live(self.table.add(job), job, histories, of)
        for history in histories:
            history.waiting[live.row] = None
            history.submitted += 1
            history.last_submit_s = job.at_s
        self.live[job.job_id] = live
        return live

    def started(self, job_id: int, at_s: int) -> Live | None:
        """Note that it runs, perhaps again."""
        live = self.live.get(job_id)
        if live is None:
            return None
        live.started_s = at_s
        self.table.start(live.row, at_s)
        for history in live.histories:
            history.waiting.pop(live.row, None)
            history.running.pop(live.row, None)
            history.running[live.row] = at_s
        return live

    def limit_changed(self, job_id: int, limit_s: int) -> None:
        """Note another limit of a running job: it no longer matches the request, so it is no example to learn from."""
        live = self.live.get(job_id)
        if live is not None:
            live.limit_s = max(limit_s, 0)
            live.lesson = []
            self.table.change_limit(live.row, live.limit_s)

    def ended(self, job_id: int, at_s: int, runtime_s: int) -> Live | None:
        """End a job. Returns it when it has run."""
        live = self.live.pop(job_id, None)
        if live is None:
            return None
        for history in live.histories:
            history.waiting.pop(live.row, None)
            history.running.pop(live.row, None)
        if runtime_s <= 0:
            self.table.cancel(live.row, at_s)
            return None
        self.table.end(live.row, at_s, runtime_s)
        for history, depth in zip(live.histories, DEPTHS, strict=True):
            history.add_run(live.row, depth)
        self.ended_jobs += 1
        self._order.append(live.row)
        self._look_around(live.row)
        return live

    def question(self, live: Live, at_s: int, first: bool) -> Question:
        """The question about the job, with all that is known now."""
        rows = np.full(WIDTH, -1, np.int32)
        counts: list[float] = []
        own, is_running = live.row, live.started_s >= 0
        for level, (history, (before, since)) in enumerate(zip(live.histories, live.prior, strict=True)):
            recent = history.runs[: -DEPTHS[level] - 1 : -1]
            rows[BOUNDS[level] : BOUNDS[level] + len(recent)] = recent
            starts = history.running
            oldest = next((start for row, start in starts.items() if row != own), at_s + 1)
            newest = next((start for row, start in reversed(starts.items()) if row != own), at_s + 1)
            running, waiting = len(starts) - is_running, len(history.waiting) - (not is_running)
            counts += (history.ended, before, running, waiting, since, at_s - oldest, at_s - newest)
        user = live.histories[USER]
        newest_first = islice((pair for pair in reversed(user.running.items()) if pair[0] != own), OPEN_MAX)
        running_for = [-1.0] * OPEN_MAX
        for position, (row, start) in enumerate(newest_first):
            rows[RUNNING_AT + position] = row
            running_for[position] = at_s - start
        queue = list(islice((row for row in reversed(user.waiting) if row != own), OPEN_MAX))
        rows[WAITING_AT : WAITING_AT + len(queue)] = queue
        until = live.started_s if is_running else at_s
        return Question(
            own,
            at_s,
            at_s - live.started_s if is_running else -1,
            until - live.submit_s,
            live.limit_s,
            rows,
            np.array(counts + running_for, np.float64),
            self.background,
            first,
        )

    def compact(self) -> Indices:
        """Forget the oldest. Returns the new number of each row, -1 for removed ones."""
        while len(self._order) > RUNS_KEPT:
            self._order.popleft()
        kept = sorted({*self._order, *(live.row for live in self.live.values())})
        renumbered = self.table.compact(np.array(kept, np.int64))
        numbers: list[int] = renumbered.tolist()
        self._order = deque(numbers[row] for row in self._order)
        for live in self.live.values():
            live.row = numbers[live.row]
            live.lesson = [moved(question, renumbered) for question in live.lesson]
        for history in self._histories.values():
            history.renumber(numbers)
        self._histories = {key: history for key, history in self._histories.items() if not history.idle}
        return renumbered

    def _forget(self, job_id: int) -> None:
        live = self.live.pop(job_id, None)
        if live is None:
            return
        for history in live.histories:
            history.waiting.pop(live.row, None)
            history.running.pop(live.row, None)

    def _look_around(self, row: int) -> None:
        columns = self.table.view()
        run = float(columns.run[row])
        self._runs.append(run)
        beyond = run - float(columns.limit[row])
        if columns.limited[row] and beyond > NEAR_LIMIT:
            self._beyond.append(min(beyond, BEYOND_MAX))
        if len(self._runs) < BACKGROUND_LEAST or self.ended_jobs % BACKGROUND_EVERY:
            return
        runs = np.quantile(np.fromiter(self._runs, np.float64), QUANTILES)
        past = UNKNOWN.beyond
        if len(self._beyond) >= BACKGROUND_LEAST:
            past = np.maximum(np.quantile(np.fromiter(self._beyond, np.float64), BEYOND_QUANTILES), 0.0)
        self.background = Background(runs, past)


def moved(question: Question, renumbered: Indices) -> Question:
    """The same question after rows were renumbered: runs that are gone are none."""
    rows = np.where(question.rows >= 0, renumbered[question.rows], -1).astype(np.int32)
    return question._replace(row=int(renumbered[question.row]), rows=rows)


def all_moved(questions: Iterable[Question], renumbered: Indices) -> list[Question]:
    """The questions with a job that is still in the table."""
    return [moved(question, renumbered) for question in questions if renumbered[question.row] >= 0]
