"""What waits for a spool that cannot be written (full disk, failing disk): its records, and whatever relies on them.

Invariants: records reach the spool in their order, all or none; while one is missing nothing that relies on it is said
or forgotten; an attempt whose preparation never reached the spool leaves no record when it is over, so that a later
process cannot start what was refused.

The shell calls `Agent.on_storage` when `error` changes, calls `retry` every `RETRY_S` while there is one, and
offers everything anew once there is none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Protocol

from eslurm.core.agent.actions import AcknowledgeSteps, Action, Answer, SendReport, SignalStep
from eslurm.core.agent.actions import Spool as SpoolAction
from eslurm.core.agent.records import Buried, FloorRaised, NodeAttempt, Prepared, Record, StartIntended
from eslurm.core.model.protocol import StepEnded

RETRY_S = 1.0
"""How often a spool that could not be written is tried again."""
ANSWERS_HELD_MAX = 4_096
"""Older ones are dropped: their broadcasts are over, and what they answer is asked again."""


class Storage(Protocol):
    """The spool's file, as far as this module needs it."""

    def append(self, records: Iterable[Record], durable: bool, /) -> None:
        """Write records in one go, `durable` ones before it returns. Raises OSError; then none is in the spool."""
        ...

    def probe(self) -> None:
        """Raises OSError if records could not be appended now."""
        ...


class Backlog:
    """The way to the spool. `error` says why it cannot be written; empty when it can, as far as is known."""

    def __init__(self, spool: Storage) -> None:
        self.error = ""
        self._spool = spool
        self._records: dict[Record, None] = {}
        self._is_durable = False
        self._answers: deque[Answer] = deque(maxlen=ANSWERS_HELD_MAX)
        self._others: list[Action] = []

    @property
    def is_behind(self) -> bool:
        """Whether there are records that are not in the spool."""
        return bool(self._records)

    @property
    def refusal(self) -> str:
        """Why no batch script may be started at present; empty when one may."""
        return f"the node's spool cannot be written: {self.error}" if self.error else ""

    def write(self, actions: Iterable[Action]) -> None:
        """Put the records of a call into the spool, after those that still wait."""
        before = len(self._records)
        for action in actions:
            if type(action) is SpoolAction:
                self._add(action.record)
                self._is_durable = self._is_durable or action.durable
        if len(self._records) > before:
            self._flush()

    def retry(self) -> None:
        """Try again; with nothing to write, see whether something could be."""
        if self._records:
            self._flush()
            return
        try:
            self._spool.probe()
        except OSError as error:
            self._failed(error)
        else:
            self.error = ""

    def hold(self, action: Action) -> bool:
        """Keep an action back if it relies on a record that is not in the spool; False when it may be carried out.

        Offers and departures are dropped: they are sent again until they are acknowledged. The end of a batch script
        may go: the step runner has it on the disk, and is told to forget it only when a tombstone is in the spool.
        """
        if not self._records:
            return False
        match action:
            case Answer():
                if action.stands_alone:
                    return False
                self._answers.append(action)
            case SendReport(report):
                return type(report.body) is not StepEnded
            case SignalStep() | AcknowledgeSteps():
                self._others.append(action)
            case _:
                return False
        return True

    def take_released(self) -> list[Action]:
        """What was held and may be carried out now."""
        if self._records:
            return []
        released = [*self._others, *self._answers]
        self._others.clear()
        self._answers.clear()
        return released

    # ---- inside ----

    def _add(self, record: Record) -> None:
        match record:
            case Buried() if self._forget_unborn((record.node, record.job_id, record.attempt)):
                return
            case FloorRaised(owner=owner):
                for older in [r for r in self._records if type(r) is FloorRaised and r.owner == owner]:
                    del self._records[older]
        self._records[record] = None

    def _forget_unborn(self, key: NodeAttempt) -> bool:
        """Drop what was to be written of an attempt that is over. Whether the spool has never heard of it."""
        prepared = [r for r in self._records if type(r) is Prepared and _key_of(r) == key]
        starts = [r for r in self._records if type(r) is StartIntended and _start_of(r) == key]
        for record in prepared:
            del self._records[record]
        for intended in starts:
            del self._records[intended]
        return bool(prepared)

    def _flush(self) -> None:
        try:
            self._spool.append(self._records, self._is_durable)
        except OSError as error:
            self._failed(error)
        else:
            self._records.clear()
            self._is_durable = False
            self.error = ""

    def _failed(self, error: OSError) -> None:
        self.error = error.strerror or str(error)


def _key_of(record: Prepared) -> NodeAttempt:
    return record.node, record.launch.job_id, record.launch.attempt


def _start_of(record: StartIntended) -> NodeAttempt:
    return record.node, record.job_id, record.attempt
