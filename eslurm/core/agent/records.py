"""An agent process's records on disk, and the folding of those records into a state.

Owns the record types of the spool and `fold`. Invariant: the folded state is all that a restarted agent needs besides its
runner's list of steps; folding the output of `unfold` gives the same state.

Outcomes of steps are not here: the step supervisor keeps them, fsynced, until they are acknowledged. Nor are outcomes of
commands, but for signals: after a restart the node has a new incarnation, so old copies are refused, and a repeated
prepare, start or end is recognised by its attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from eslurm.core.model.protocol import JobLaunch
from eslurm.core.model.step_key import NodeAttempt


class Booted(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """An agent started. What precedes a change of `boot_id` did not survive it: all its processes are gone.

    `starts` counts the sessions under which the agent has offered nodes; it rises before the offer is made.
    """

    cluster: str
    boot_id: str
    starts: int = 0


class Identity(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The node of this name is this individual, for ever."""

    name: str
    node_uid: str


class NumberGiven(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """The controller's number of a node; durable there."""

    name: str
    number: int


class EpochSeen(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Commands of this owner's older epochs are refused from now on."""

    owner: str
    epoch: int


class Prepared(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """The node is ready for the attempt; with `start` its batch script was also told to start, by `credential`.

    `prolog`: its prolog has ended well, and a `Preparing` came before. `phase_credential` is for its epilog.
    """

    node: int
    owner: str
    revision: int
    launch: JobLaunch
    start: bool = False
    credential: bytes = b""
    prolog: bool = False
    phase_credential: bytes = b""


class StartIntended(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """From now on a batch script of the attempt may exist: `credential`, a sealed command, says so."""

    node: int
    job_id: int
    attempt: int
    credential: bytes = b""


class Buried(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """A tombstone: nothing of the attempt ever starts here again. Kept until the floor passes `revision`."""

    node: int
    job_id: int
    attempt: int
    owner: str
    revision: int
    started: bool = False


class Signalled(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """The signal of effect (owner, revision, index) was sent: a second time would be once too often."""

    node: int
    owner: str
    revision: int
    index: int


class FloorRaised(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """No effect of this owner below `floor` is alive; what was kept for their sake is forgotten."""

    owner: str
    floor: int


class Adjusted(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """The attempt's suspension and time limit (0: none), by the latest orders of these revisions.

    `time_credential` is the sealed command that has set the limit.
    """

    node: int
    job_id: int
    attempt: int
    suspend_revision: int
    is_suspended: bool
    time_revision: int
    time_limit_s: int
    time_credential: bytes = b""


class Preparing(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """The attempt's prolog may run or have run, and its end is not committed; `credential` is the sealed `Prepare`.

    `ended`: it is a tombstone, too: nothing of the attempt starts here but what its phases still ask for.
    """

    node: int
    owner: str
    revision: int
    launch: JobLaunch
    credential: bytes = b""
    ended: bool = False


class EpilogOwed(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """Nothing new of the attempt starts here but its epilog, whose end is not committed.

    `started_us`: when its batch script had started, 0: never. `ended` as of `Preparing`.
    """

    node: int
    owner: str
    revision: int
    launch: JobLaunch
    credential: bytes = b""
    ended: bool = False
    started_us: int = 0


class CoresNoted(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """Cores that the attempt's application does not use here, and those that the order of this revision has excluded.

    `idle` are (process, cores).
    """

    node: int
    job_id: int
    attempt: int
    revision: int
    excluded: int
    idle: tuple[tuple[int, int], ...] = ()


Record: TypeAlias = (
    Booted
    | Identity
    | NumberGiven
    | EpochSeen
    | Prepared
    | StartIntended
    | Buried
    | Signalled
    | FloorRaised
    | Adjusted
    | Preparing
    | EpilogOwed
    | CoresNoted
)

LASTING = (Booted, Identity, NumberGiven)
"""Records that are kept in a file of their own, too: an agent that loses its spool is still known to the controller."""


@dataclass(slots=True)
class Folded:
    """The state that the records describe."""

    cluster: str = ""
    boot_id: str = ""
    starts: int = 0
    identities: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    floors: dict[str, int] = field(default_factory=dict)
    prepared: dict[NodeAttempt, Prepared] = field(default_factory=dict)
    adjusted: dict[NodeAttempt, Adjusted] = field(default_factory=dict)
    cores: dict[NodeAttempt, CoresNoted] = field(default_factory=dict)
    preparing: dict[NodeAttempt, Preparing] = field(default_factory=dict)
    epilogs: dict[NodeAttempt, EpilogOwed] = field(default_factory=dict)
    buried: dict[NodeAttempt, Buried] = field(default_factory=dict)
    signalled: dict[tuple[int, str, int, int], Signalled] = field(default_factory=dict)
    before_boot: set[NodeAttempt] = field(default_factory=set)
    """Attempts whose phases ran before the host was booted: what they did is gone."""

    def add(self, record: Record) -> None:
        """Fold one more record."""
        match record:
            case Prepared():
                key = (record.node, record.launch.job_id, record.launch.attempt)
                if key not in self.buried:
                    self.prepared[key] = record
                    self.preparing.pop(key, None)
            case Preparing():
                key = (record.node, record.launch.job_id, record.launch.attempt)
                self.before_boot.discard(key)
                self.preparing[key] = record
            case EpilogOwed():
                key = (record.node, record.launch.job_id, record.launch.attempt)
                self.prepared.pop(key, None)
                self.cores.pop(key, None)
                self.preparing.pop(key, None)
                self.before_boot.discard(key)
                self.epilogs[key] = record
            case StartIntended():
                key = (record.node, record.job_id, record.attempt)
                if (before := self.prepared.get(key)) is not None:
                    self.prepared[key] = msgspec.structs.replace(
                        before, start=True, credential=record.credential
                    )
            case Buried():
                key = (record.node, record.job_id, record.attempt)
                self.prepared.pop(key, None)
                self.adjusted.pop(key, None)
                self.cores.pop(key, None)
                self.preparing.pop(key, None)
                self.epilogs.pop(key, None)
                self.buried[key] = record
            case Adjusted():
                key = (record.node, record.job_id, record.attempt)
                if key in self.prepared or key in self.preparing:
                    self.adjusted[key] = record
            case CoresNoted():
                key = (record.node, record.job_id, record.attempt)
                if key in self.prepared:
                    self.cores[key] = record
            case Signalled():
                self.signalled[record.node, record.owner, record.revision, record.index] = record
            case FloorRaised():
                self._raise_floor(record.owner, record.floor)
            case EpochSeen():
                self.epochs[record.owner] = max(self.epochs.get(record.owner, 0), record.epoch)
            case Identity():
                self.identities[record.name] = record.node_uid
            case NumberGiven():
                self.numbers[record.name] = record.number
            case Booted():
                self._boot(record)

    def _boot(self, record: Booted) -> None:
        """A new boot ends everything: attempts that had started become tombstones, the others are forgotten."""
        if self.boot_id not in ("", record.boot_id):
            for key, prepared in self.prepared.items():
                if prepared.start:
                    self.buried[key] = Buried(*key, prepared.owner, prepared.revision, started=True)
            for key, left in self.preparing.items():
                if left.ended:
                    self.buried[key] = Buried(*key, left.owner, left.revision)
            for key, owed in self.epilogs.items():
                if owed.ended or owed.started_us:
                    started = owed.started_us > 0
                    self.buried[key] = Buried(*key, owed.owner, owed.revision, started)
            self.before_boot.update(self.preparing, self.epilogs)
            self.before_boot.update(key for key, prepared in self.prepared.items() if prepared.prolog)
            self.prepared.clear()
            self.adjusted.clear()
            self.cores.clear()
            self.preparing.clear()
            self.epilogs.clear()
        self.cluster = record.cluster
        self.boot_id = record.boot_id
        self.starts = max(self.starts, record.starts)

    def _raise_floor(self, owner: str, floor: int) -> None:
        self.floors[owner] = max(self.floors.get(owner, 0), floor)
        for key in [k for k, b in self.buried.items() if b.owner == owner and b.revision < floor]:
            del self.buried[key]
        for effect in [e for e in self.signalled if e[1] == owner and e[2] < floor]:
            del self.signalled[effect]


def fold(records: Iterable[Record]) -> Folded:
    """The state after all these records."""
    state = Folded()
    for record in records:
        state.add(record)
    return state


def unfold(state: Folded) -> Iterator[Record]:
    """The fewest records that fold to this state."""
    if state.boot_id:
        yield Booted(state.cluster, state.boot_id, state.starts)
    yield from (Identity(name, uid) for name, uid in state.identities.items())
    yield from (NumberGiven(name, number) for name, number in state.numbers.items())
    yield from (EpochSeen(owner, epoch) for owner, epoch in state.epochs.items())
    yield from (FloorRaised(owner, floor) for owner, floor in state.floors.items())
    yield from state.buried.values()
    yield from state.prepared.values()
    yield from state.preparing.values()
    yield from state.epilogs.values()
    yield from state.adjusted.values()
    yield from state.cores.values()
    yield from state.signalled.values()
