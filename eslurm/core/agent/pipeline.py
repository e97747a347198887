"""The way of an agent's actions into its surroundings, without I/O: each one behind the records that it relies on.

The daemon's shell and the simulator drive this one machine: they hand in the actions of each call of `Agent`, carry out
in order what they get back, and report what became of each order about the spool (`written`). Invariants:

- one order about the spool is under way at a time, and a compaction is made of an agent all of whose records are written;
- records reach the spool in the order of the calls, and one is forgotten only when the spool has acknowledged it;
- the actions of a call come out after its records are in the spool and after the actions of earlier calls; what relies on
  no record waits for none;
- while the spool refuses a record (full disk, failing disk), nothing that relies on a record is said or forgotten;
- an attempt whose preparation never reached the spool leaves no record when it is over, so that a later process cannot
  start what was refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol, TypeAlias, TypeGuard

import msgspec

from eslurm.core.agent.actions import (
    AcknowledgeSteps,
    Action,
    Answer,
    Contact,
    MeasureSteps,
    RunBatch,
    RunPhase,
    SendReport,
    SignalStep,
)
from eslurm.core.agent.actions import Spool as SpoolAction
from eslurm.core.agent.machine import Agent
from eslurm.core.agent.records import (
    Buried,
    EpilogOwed,
    FloorRaised,
    Folded,
    Prepared,
    Preparing,
    Record,
    StartIntended,
)
from eslurm.core.model.protocol import Command, Heartbeat, StepEnded
from eslurm.core.model.step_key import PROLOG_STEP, NodeAttempt
from eslurm.core.relay.messages import RunLocal

RETRY_US: Final = 1_000_000
"""Interval at which a spool that could not be written is tried again."""
STALL_US: Final = 5_000_000
"""A write that takes longer counts as one that fails: no new work is taken until it is done."""
CALLS_WAITING_MAX: Final = 4_096
"""Calls that wait for the disk: of those beyond, reports and answers are dropped, which are sent and asked for again."""
CALLS_TOGETHER_MAX: Final = 64
"""Calls behind one that share its order."""
ANSWERS_HELD_MAX: Final = 4_096
"""Older ones are dropped: their broadcasts are over, and what they answer is asked again."""
ANSWER_MARGIN_US: Final = 300_000
"""A deferred answer is given this much before its deadline, or a tenth of the time if that is less."""


class WriteSpool(msgspec.Struct, frozen=True):
    """Order: append these records in one go, on the disk if `durable`, then report `written`."""

    records: tuple[Record, ...]
    durable: bool


class ProbeSpool(msgspec.Struct, frozen=True):
    """Order: find out whether records could be appended, then report `written`."""


class CompactSpool(msgspec.Struct, frozen=True):
    """Order: replace the spool by the fewest records that say this, then report `written`; a failure loses nothing."""

    state: Folded


class StorageChanged(msgspec.Struct, frozen=True):
    """Notice: the spool cannot be written any more (`error` says why), or can be again (empty)."""

    error: str


class NotStarted(msgspec.Struct, frozen=True):
    """Notice: a batch script or a prolog was refused before the runner heard of it."""

    action: RunBatch | RunPhase
    why: str


SpoolOrder: TypeAlias = WriteSpool | ProbeSpool | CompactSpool
Output: TypeAlias = Action | SpoolOrder | StorageChanged | NotStarted


class Storage(Protocol):
    """The spool's file, as far as orders need it. Each method raises OSError."""

    def append(self, records: Iterable[Record], durable: bool, /) -> None:
        """Write records in one go; after an OSError none is in the spool."""
        ...

    def probe(self) -> None:
        """Try whether records of the usual size could be appended now."""
        ...

    def compact(self, state: Folded, /) -> None:
        """Replace the file; after an OSError it is as before."""
        ...


def carry_out(order: SpoolOrder, spool: Storage) -> str:
    """Do what is ordered; the text of the error, empty if there is none."""
    try:
        match order:
            case WriteSpool(records, durable):
                spool.append(records, durable)
            case ProbeSpool():
                spool.probe()
            case CompactSpool(state):
                spool.compact(state)
    except OSError as error:
        return error.strerror or str(error)
    return ""


class AgentPipeline:
    """Sequences the actions of one `Agent`. `wants_compaction` is a pure look at the size of the spool."""

    def __init__(self, agent: Agent, wants_compaction: Callable[[], bool]) -> None:
        self.agent = agent
        self.error = ""
        """Why the spool cannot be written; empty when it can, as far as is known."""
        self._wants_compaction = wants_compaction
        # Records that the spool has not acknowledged, in their order.
        self._records: dict[Record, None] = {}
        self._is_durable = False
        # The order under way, and the actions of the calls that it is about.
        self._order: SpoolOrder | None = None
        self._behind_order: Sequence[Action] = ()
        # Calls that wait for the order under way; actions that wait for a spool that refuses records.
        self._calls: deque[Sequence[Action]] = deque()
        self._answers: deque[Answer] = deque(maxlen=ANSWERS_HELD_MAX)
        self._others: list[Action] = []
        self._spool_error = ""
        self._stalls_us: int | None = None
        self._retry_us: int | None = None
        self._out: list[Output] = []
        self._stopped = False

    @property
    def problems(self) -> tuple[str, ...]:
        """Problems of the agent's own files, in the words of answers to heartbeats."""
        return ("spool",) if self.error else ()

    # ---- in ----

    def obey(
        self, run: RunLocal, command: Command, now_us: int, dated_us: int, problems: Iterable[str] = ()
    ) -> list[Action]:
        """This process's own part of a broadcast: the agent's actions, to be handed to `perform`.

        `problems` are those of the host; `dated_us`: see `Agent.on_command_many`.
        """
        if type(command.body) is Heartbeat:
            self.agent.set_problems(tuple(sorted((*problems, *self.problems))))
        answer_by_us = now_us + run.deadline_us - min(ANSWER_MARGIN_US, run.deadline_us // 10)
        return self.agent.on_command_many(
            run.nodes,
            command,
            run.broadcast_id,
            now_us,
            answer_by_us,
            dated_us=dated_us,
            sealed=run.command,
        )

    def perform(self, actions: Sequence[Action], now_us: int) -> list[Output]:
        """Take the actions of one call in their turn; what to do now."""
        if self._order is None and not any(type(action) is SpoolAction for action in actions):
            self._release(actions, now_us)
        else:
            self._out += [action for action in actions if _stands_alone(action)]
            rest = [action for action in actions if not _stands_alone(action)]
            if rest and not (len(self._calls) >= CALLS_WAITING_MAX and _comes_again(rest)):
                self._calls.append(rest)
        return self._go_on(now_us)

    def written(self, now_us: int, error: str = "") -> list[Output]:
        """The order about the spool is done, or could not be done (`error`)."""
        order, actions = self._order, self._behind_order
        self._order, self._behind_order, self._stalls_us = None, (), None
        if type(order) is not CompactSpool:
            self._spool_error = error
        if type(order) is WriteSpool and not error:
            self._records.clear()
            self._is_durable = False
        self._on_storage(self._spool_error, now_us)
        if not self._records:
            self._out += self._others
            self._out += self._answers
            self._others.clear()
            self._answers.clear()
        self._release(actions, now_us)
        return self._go_on(now_us)

    def failed(self, now_us: int) -> list[Output]:
        """A fault of the driver's own ended the order: its calls are dropped, their records go with the next one."""
        self._order, self._behind_order, self._stalls_us = None, (), None
        self._on_storage(self._spool_error, now_us)
        return self._go_on(now_us)

    def on_timer(self, now_us: int) -> list[Output]:
        """Time has passed, for the spool and for the agent."""
        if self._stalls_us is not None and self._stalls_us <= now_us:
            self._stalls_us = None
            self._on_storage(f"a write takes longer than {STALL_US / 1e6:g} s", now_us)
        if self._retry_us is not None and self._retry_us <= now_us:
            self._retry_us = None
            if self._order is None:
                self._begin(self._write() if self._records else ProbeSpool(), (), now_us)
        return self.perform(self.agent.on_timer(now_us), now_us)

    def next_timer_us(self) -> int | None:
        """Time of the next `on_timer`."""
        due_us = self.agent.next_timer_us()
        for at_us in (self._stalls_us, self._retry_us):
            if at_us is not None and (due_us is None or at_us < due_us):
                due_us = at_us
        return due_us

    def stop(self) -> None:
        """Do nothing more, as if the process had ended before the calls that still wait."""
        self._stopped = True

    # ---- out ----

    def _go_on(self, now_us: int) -> list[Output]:
        while self._calls and self._order is None:
            actions = self._calls.popleft()
            if self._add_records(actions):
                together = [*actions, *self._take_calls_behind()]
                self._begin(self._write(), together, now_us)
            else:
                self._release(actions, now_us)
        if self._order is None and not self._records and self._wants_compaction():
            self._begin(CompactSpool(self.agent.folded()), (), now_us)
        # What an exception of the agent kept from being returned is returned with the next call.
        out, self._out = self._out, []
        return [] if self._stopped else out

    def _take_calls_behind(self) -> list[Action]:
        """The calls behind the one that is written now: they share its order, for an order costs more than its records.

        A call that buries what is not in the spool yet waits for its turn: the preparation is forgotten only where the
        spool has refused it.
        """
        taken: list[Action] = []
        unborn = {_key_of(record) for record in self._records if _is_birth(record)}
        for _ in range(CALLS_TOGETHER_MAX):
            if not self._calls or not unborn.isdisjoint(_buried_by(self._calls[0])):
                break
            actions = self._calls.popleft()
            self._add_records(actions)
            records = (action.record for action in _written_by(actions))
            unborn.update(_key_of(record) for record in records if _is_birth(record))
            taken += actions
        return taken

    def _release(self, actions: Iterable[Action], now_us: int) -> None:
        for action in actions:
            if type(action) is SpoolAction or (self._records and self._holds(action)):
                continue
            if self._spool_error and _is_new_work(action):
                why = f"the node's spool cannot be written: {self._spool_error}"
                self._out.append(NotStarted(action, why))
                self._calls.append(self.agent.on_step_refused(action.step, why, now_us))
            else:
                self._out.append(action)

    def _holds(self, action: Action) -> bool:
        """Keep an action back that relies on a record the spool has refused; False when it may be carried out.

        Offers and departures are dropped: they are sent again until they are acknowledged. The end of a batch script
        may go: the step runner has it on the disk, and may forget it only when a tombstone is in the spool.
        """
        match action:
            case Answer(stands_alone=False):
                self._answers.append(action)
            case SendReport(report):
                return type(report.body) is not StepEnded
            case SignalStep() | AcknowledgeSteps():
                self._others.append(action)
            case _:
                return False
        return True

    def _on_storage(self, error: str, now_us: int) -> None:
        """See whether the spool has become writable, or ceased to be."""
        self._retry_us = now_us + RETRY_US if self._spool_error else None
        if error == self.error:
            return
        self.error = error
        self.agent.on_storage(error)
        self._out.append(StorageChanged(error))
        if not error and self.agent.report_queue.is_up:
            # Offers and departures were not sent meanwhile. They come behind the calls that wait, and so their records.
            self._calls.append(self.agent.on_link_up(now_us))

    # ---- records ----

    def _begin(self, order: SpoolOrder, actions: Sequence[Action], now_us: int) -> None:
        self._order, self._behind_order = order, actions
        self._stalls_us = now_us + STALL_US
        self._out.append(order)

    def _write(self) -> WriteSpool:
        return WriteSpool(tuple(self._records), self._is_durable)

    def _add_records(self, actions: Iterable[Action]) -> bool:
        """Put the records of a call behind those that still wait; True if there is one more to write."""
        before = len(self._records)
        for action in actions:
            if type(action) is SpoolAction:
                self._add(action.record)
                self._is_durable = self._is_durable or action.durable
        return len(self._records) > before

    def _add(self, record: Record) -> None:
        match record:
            case Buried() if self._forget_unborn((record.node, record.job_id, record.attempt)):
                return
            case FloorRaised(owner=owner):
                for older in [r for r in self._records if type(r) is FloorRaised and r.owner == owner]:
                    del self._records[older]
        # An equal record that still waits says nothing behind what came after it.
        self._records.pop(record, None)
        self._records[record] = None

    def _forget_unborn(self, key: NodeAttempt) -> bool:
        """Drop what was to be written of an attempt that is over. True if the spool has never heard of it."""
        phased = [r for r in self._records if isinstance(r, _OF_LAUNCH) and _key_of(r) == key]
        is_unborn = any(_is_birth(record) for record in phased)
        starts = [r for r in self._records if type(r) is StartIntended and _start_of(r) == key]
        for record in phased:
            del self._records[record]
        for intended in starts:
            del self._records[intended]
        return is_unborn


_OF_LAUNCH = (Prepared, Preparing, EpilogOwed)


def _is_birth(record: Record) -> TypeGuard[Prepared | Preparing]:
    """True for the first record of an attempt."""
    return type(record) is Preparing or (type(record) is Prepared and not record.prolog)


def _is_new_work(action: Action) -> TypeGuard[RunBatch | RunPhase]:
    """True for what must not begin while no record of it can be written. An epilog may: it is owed."""
    return type(action) is RunBatch or (type(action) is RunPhase and action.step.step == PROLOG_STEP)


def _stands_alone(action: Action) -> bool:
    """True for an action that relies on no record and on no action before it."""
    if type(action) is Answer:
        return action.stands_alone
    return type(action) in (Contact, MeasureSteps)


def _comes_again(actions: Iterable[Action]) -> bool:
    return all(type(action) is SendReport or type(action) is Answer for action in actions)


def _written_by(actions: Iterable[Action]) -> Iterable[SpoolAction]:
    return (action for action in actions if type(action) is SpoolAction)


def _buried_by(actions: Iterable[Action]) -> Iterable[NodeAttempt]:
    records = (action.record for action in _written_by(actions))
    return ((one.node, one.job_id, one.attempt) for one in records if type(one) is Buried)


def _key_of(record: Prepared | Preparing | EpilogOwed) -> NodeAttempt:
    return record.node, record.launch.job_id, record.launch.attempt


def _start_of(record: StartIntended) -> NodeAttempt:
    return record.node, record.job_id, record.attempt
