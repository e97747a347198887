"""Cores that applications of this process's nodes do not use, and those that the controller has excluded (R-01..R-07).

Applications report by lines on the job's socket, each of their processes for itself; a node's idle cores are the sum.
Nothing goes to an application but with the answer to its own report (R-07). Invariants: an exclusion is granted only up to
what is idle, and is in the spool before it is answered; of an attempt at most one report a second goes up, and one more as
soon as its application wants cores back.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from eslurm.core.agent.action_buffer import ActionBuffer
from eslurm.core.agent.actions import ExclusionChanged
from eslurm.core.agent.attempt import MAY_START_STEPS, Attempt, Waiter
from eslurm.core.agent.cores import Cores
from eslurm.core.agent.node import LocalNode
from eslurm.core.agent.records import CoresNoted
from eslurm.core.agent.reports import Reports
from eslurm.core.model.lending import FULL, OFF, REMAINING_MAX_S, WORKERS_MAX, LendingTerms, cooperation_of
from eslurm.core.model.protocol import AskCores, Exclude, JobLaunch
from eslurm.core.model.units import SECOND_US
from eslurm.core.relay.results import OK, failed
from eslurm.core.resources.vector import CORES

REPORT_EVERY_US: Final = SECOND_US
"""Least interval between reports of one attempt, unless its application wants cores back."""
REMAINING_EVERY_US: Final = 5 * SECOND_US
"""Least interval between reports that tell of nothing but less work."""
ASKED_US: Final = 60 * SECOND_US
"""A request to exclude cores that no application has heard of is forgotten after so long."""


class CoresView(NamedTuple):
    """The answer to a report: cores to leave to others, and further ones that are asked for."""

    level: str
    cores: int
    idle: int
    excluded: int
    asked: int


class Cooperation:
    """Keeps the cores of all attempts of the process."""

    def __init__(self, buffer: ActionBuffer, reports: Reports, nodes: dict[int, LocalNode]) -> None:
        self._buffer = buffer
        self._reports = reports
        self._nodes = nodes
        # Attempts with something that is still to be told, by its time.
        self._due: dict[tuple[int, int, int], int] = {}

    # ---- the application ----

    def report(
        self,
        attempt: Attempt,
        worker: int,
        idle: int | None,
        remaining_s: int,
        now_us: int,
        *,
        rejects: bool = False,
    ) -> CoresView:
        """One process's word for its idle cores (None: as before) and the work it has left (-1: not said).

        Raises ValueError with the reason when the numbers cannot be.
        """
        terms = _terms_of(attempt.launch)
        most = cores_of(attempt.launch, attempt.node)
        if not terms.lends or not most:
            return CoresView(OFF, most, 0, 0, 0)
        known = attempt.cores = attempt.cores or Cores()
        if idle is not None:
            self._note_idle(attempt, known, worker, idle, most)
        if remaining_s >= 0:
            known.remaining_s[worker] = min(remaining_s, REMAINING_MAX_S)
        if rejects and known.asked:
            known.asked, known.rejects = 0, True
        self._tell_later(attempt, known, now_us)
        asked = known.asked if terms.level == FULL and known.asked_until_us > now_us else 0
        return CoresView(terms.level, most, known.idle_sum, known.excluded, asked)

    def _note_idle(self, attempt: Attempt, known: Cores, worker: int, idle: int, most: int) -> None:
        others = known.idle_sum - known.idle.get(worker, 0)
        if others + idle > most:
            raise ValueError(f"{others + idle} idle cores: the job has {most} on this node")
        if worker not in known.idle and len(known.idle) >= WORKERS_MAX:
            raise ValueError(f"more than {WORKERS_MAX} processes report")
        before = known.idle_sum
        if known.idle.get(worker, 0) == idle:
            known.idle.setdefault(worker, idle)
            return
        known.idle[worker] = idle
        if known.idle_sum > before:
            known.asked = max(0, known.asked - (known.idle_sum - before))
            known.rejects = False
        self._buffer.write(_noted(attempt, known))

    # ---- the controller ----

    def exclude(self, node: LocalNode, command: Exclude, waiter: Waiter) -> None:
        """Leave so many cores to others, if they are idle; fewer than before always."""
        attempt = node.attempts.get((command.job_id, command.attempt))
        if attempt is None or attempt.stage not in MAY_START_STEPS:
            # Nothing of it runs any more, or ever will: what it had is given back by its end.
            outcome = OK if not command.cores else failed("the attempt does not run on this node")
            self._buffer.settle(waiter, node.number, outcome)
            return
        known = attempt.cores = attempt.cores or Cores()
        if waiter.revision < known.revision:
            self._buffer.settle(waiter, node.number, failed("a later order has been carried out"))
            return
        if command.cores > known.excluded and command.cores > known.idle_sum:
            text = f"its application uses all but {known.idle_sum} of its cores"
            known.told = None
            self._due[attempt.node, *attempt.key] = 0
            self._buffer.settle(waiter, node.number, failed(text))
            return
        known.revision = waiter.revision
        if known.excluded != command.cores:
            known.excluded = command.cores
            self._buffer.write(_noted(attempt, known))
            self._buffer.emit(ExclusionChanged(attempt.node, attempt.job_id))
        self._buffer.settle(waiter, node.number, OK)

    def ask(self, node: LocalNode, command: AskCores, waiter: Waiter) -> None:
        """Keep a request until the application reports the next time."""
        attempt = node.attempts.get((command.job_id, command.attempt))
        if attempt is None or attempt.cores is None:
            self._buffer.settle(
                waiter, node.number, failed("no application of the attempt has reported here")
            )
            return
        attempt.cores.asked = max(0, command.cores)
        attempt.cores.asked_until_us = waiter.answer_by_us + ASKED_US
        self._buffer.settle(waiter, node.number, OK)

    # ---- reports up ----

    def on_registered(self, node: LocalNode) -> None:
        """Tell a controller that may be a new one, which knows no reports."""
        for attempt in node.attempts.values():
            if attempt.cores is not None and attempt.cores.idle:
                attempt.cores.told = None
                self._due[attempt.node, *attempt.key] = 0

    def on_timer(self, now_us: int) -> None:
        """Send what is due."""
        for key, at_us in list(self._due.items()):
            if at_us <= now_us:
                del self._due[key]
                node = self._nodes.get(key[0])
                attempt = node.attempts.get(key[1:]) if node is not None else None
                if node is not None and attempt is not None and attempt.cores is not None:
                    self._tell(node, attempt, attempt.cores, now_us)

    def next_timer_us(self) -> int | None:
        """Time of the next report."""
        return min(self._due.values()) if self._due else None

    def restore(self, attempt: Attempt, record: CoresNoted | None) -> None:
        """Bring an attempt's cores back from the spool."""
        if record is not None:
            attempt.cores = Cores(dict(record.idle), {}, record.excluded, record.revision)

    def _tell_later(self, attempt: Attempt, known: Cores, now_us: int) -> None:
        key = (attempt.node, *attempt.key)
        word = _word(known)
        if known.told is not None and word == known.told:
            self._due.pop(key, None)
            return
        wants_back = word[0] < known.excluded and (known.told is None or word[0] < known.told[0])
        is_news = known.told is None or (word[0], word[1], word[3]) != (
            known.told[0],
            known.told[1],
            known.told[3],
        )
        pause_us = 0 if wants_back else REPORT_EVERY_US if is_news else REMAINING_EVERY_US
        at_us = known.told_us + pause_us if known.told_us and pause_us else now_us
        if at_us > now_us:
            self._due[key] = min(at_us, self._due.get(key, at_us))
            return
        self._due.pop(key, None)
        node = self._nodes.get(attempt.node)
        if node is not None:
            self._tell(node, attempt, known, now_us)

    def _tell(self, node: LocalNode, attempt: Attempt, known: Cores, now_us: int) -> None:
        if attempt.stage not in MAY_START_STEPS:
            return
        word = _word(known)
        known.told, known.told_us = word, now_us
        self._reports.owe_cores(node, attempt, *word)


def _terms_of(launch: JobLaunch | None) -> LendingTerms:
    """The terms of a launch; off for those of a later release, which this one cannot read."""
    try:
        return cooperation_of(launch.spec.cooperate if launch is not None else "")
    except ValueError:
        return LendingTerms()


def cores_of(launch: JobLaunch | None, node: int) -> int:
    """Cores of a launch on one of its nodes; 0 for one of several parts, which does not cooperate."""
    found = 0
    for group in launch.groups if launch is not None else ():
        if group.component:
            return 0
        if any(first <= node < first + length for first, length in group.runs):
            found = group.amounts[CORES]
    return found


def _word(known: Cores) -> tuple[int, int, int, bool]:
    """(idle, excluded, remaining work, rejects)."""
    remaining_s = sum(known.remaining_s.values()) if known.remaining_s else -1
    return known.idle_sum, known.excluded, remaining_s, known.rejects


def _noted(attempt: Attempt, known: Cores) -> CoresNoted:
    return CoresNoted(
        attempt.node,
        attempt.job_id,
        attempt.number,
        known.revision,
        known.excluded,
        tuple(sorted(known.idle.items())),
    )


def noted(attempt: Attempt) -> CoresNoted | None:
    """The record that the spool must keep."""
    return _noted(attempt, attempt.cores) if attempt.cores is not None else None
