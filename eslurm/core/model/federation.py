"""Records that the cells of a federation write into the shared store, and the part of the configuration that concerns it.

A *cell* is a cluster that is a member. Values are read by cells of other releases: fields are appended, with defaults, and
`format` changes when that is not enough. The bounds stand at the fields, for whatever is read was written by others.
"""

from __future__ import annotations

import enum
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from eslurm.core.model.job_ids import ID_BLOCK, JOB_ID_MAX
from eslurm.core.model.request_limits import NAME_CHARS_MAX

FORMAT: Final = 1
LEASE_S: Final = 5.0
CELL_PROTOCOL: Final = 2
"""The protocol in a cell's word that it is alive: from 1 on the cell takes jobs that another one offers, from 2 on it holds
nodes for them. One of an earlier release would take a delivery, or a guest, for a submission.
"""
NUMBER_MAX: Final = 1_000_000
"""The highest number of a cell."""
CLASSES_MAX: Final = 64
HORIZON_MAX: Final = 8
ID_RESERVE: Final = 200_000
ID_COUNT_MAX: Final = 100 * ID_BLOCK
"""Ids that are leased at once, at most."""

_PRINTED = r"\A[^\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]*\Z"

CellName = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9_.-]{0,62}\Z")]
Text = Annotated[str, Meta(max_length=255, pattern=_PRINTED)]
Count = Annotated[int, Meta(ge=0, le=2**53)]
Epoch = Annotated[int, Meta(ge=1, le=2**53)]
Number = Annotated[int, Meta(ge=1, le=NUMBER_MAX)]
Version = Annotated[int, Meta(ge=0, le=255)]


class FederationConfig(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """Membership in a federation. `cell` is this cluster's name there."""

    name: str
    cell: str
    lease_s: float = LEASE_S
    """A cell that is not heard of for so long counts as silent."""
    summary_min_s: float = 0.2
    """The shortest time between two summaries of this cell."""
    users: str = "same"
    """The identity of users of other cells: `same` (name and uid) or `named` (the name alone)."""
    id_reserve: int = ID_RESERVE
    """Job ids in hand, at least: so many jobs are taken while the store is away."""
    fair_share: str = "own"
    """Usage that fair share counts: `own`, or `sum` (this cell's and that of the other cells that publish theirs)."""


class FederationWish(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """An administrator's orders to this cell in a federation. None gives no order: the record stays as it is."""

    federation: str
    draining: bool | None = None
    left: bool | None = None


class CellRecord(msgspec.Struct, frozen=True, array_like=True):
    """A member, whether it runs or not. Written by the cell itself.

    `cluster` and `ring` (sealed) say which site it is: no other may have its name. `number` is never that of another cell.
    """

    format: Version
    number: Number
    name: CellName
    cluster: CellName
    ring: Annotated[bytes, Meta(max_length=6_144)]
    since_us: Count
    users: Text = "same"
    draining: bool = False
    """Takes no work of other cells."""
    left: bool = False


class NextNumber(msgspec.Struct, frozen=True, array_like=True):
    """The number of the next cell that joins. Each joining changes it, so no two cells get one number."""

    format: Version
    first: Number


class IdBlock(msgspec.Struct, frozen=True, array_like=True):
    """Job ids that a cell has leased for ever: `count` of them from the one that the key names."""

    format: Version
    cell: CellName
    count: Annotated[int, Meta(ge=1, le=ID_COUNT_MAX)]


class NextId(msgspec.Struct, frozen=True, array_like=True):
    """The first job id that no cell has leased. Each lease changes it, so no two cells get one id."""

    format: Version
    first: Annotated[int, Meta(ge=1, le=JOB_ID_MAX)]


class Alive(msgspec.Struct, frozen=True, array_like=True):
    """A cell that runs: its leader. The key hangs on the cell's lease.

    `epoch` is that of the lead in the cell's own log, `others` are the endpoints of standbys.
    """

    format: Version
    epoch: Epoch
    endpoint: Text
    others: Annotated[tuple[Text, ...], Meta(max_length=5)] = ()
    build: Text = ""
    protocol: Count = 0
    since_us: Count = 0


class NodeClass(msgspec.Struct, frozen=True, array_like=True):
    """Nodes of a cell that offer the same: what each has, how many there are, and how many are idle and usable."""

    cores: Count
    memory_mib: Count
    extra: Annotated[tuple[tuple[Text, Count], ...], Meta(max_length=64)] = ()
    """(name, items per node) of further resources."""
    features: Annotated[tuple[Text, ...], Meta(max_length=256)] = ()
    partitions: Annotated[tuple[Text, ...], Meta(max_length=256)] = ()
    total: Count = 0
    free: Count = 0
    cores_free: Count = 0
    """Free cores of usable nodes, idle or not."""


class Summary(msgspec.Struct, frozen=True, array_like=True):
    """The nodes of a cell: all, the free ones, and those that are expected to become free.

    `epoch` and `seq` order the summaries of a cell. `at_us` is the cell's own clock and for display alone. `horizon` are
    (seconds from then, free nodes of each class).
    """

    format: Version
    epoch: Epoch
    seq: Count
    at_us: Count
    classes: Annotated[tuple[NodeClass, ...], Meta(max_length=CLASSES_MAX)] = ()
    waiting_jobs: Count = 0
    running_jobs: Count = 0
    horizon: Annotated[
        tuple[tuple[Count, Annotated[tuple[Count, ...], Meta(max_length=CLASSES_MAX)]], ...],
        Meta(max_length=HORIZON_MAX),
    ] = ()
    revision: Count = 0
    """Revision of the cell's log that it shows."""


class Outcome(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The end of a job in the cell that owned it, by that cell's clock. `state` is the name of a final `JobState`."""

    state: Annotated[
        str, Meta(pattern=r"\A(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL|PREEMPTED|OUT_OF_MEMORY)\Z")
    ]
    exit_code: Annotated[int, Meta(ge=0, le=255)] = 0
    exit_signal: Annotated[int, Meta(ge=0, le=127)] = 0
    started_us: Count = 0
    ended_us: Count = 0
    text: Text = ""


class OwnerStage(enum.Enum):
    """Stage of a job's owner record."""

    OFFERED = "offered"
    """The home cell owns the job until the taker changes this."""
    OWNED = "owned"
    ENDED = "ended"


class JobOwner(msgspec.Struct, frozen=True, array_like=True):
    """The owner of one job that its home cell has offered. The key names the home cell and the job.

    The home cell writes an offer, and takes it away again; the taker makes itself the owner, and tells the outcome. Each
    does so by comparison of versions. `serial` identifies the offer. Without the key the home cell owns the job.
    """

    format: Version
    serial: Count
    taker: CellName
    stage: OwnerStage
    outcome: Outcome | None = None


USAGE_MAX: Final = 1e18
"""The largest usage of one association: a million cores for a thousand years have 3e16 core-seconds."""
USAGE_AGE_MAX_US: Final = 600_000_000

Named = Annotated[str, Meta(max_length=NAME_CHARS_MAX, pattern=_PRINTED)]
Amount = Annotated[float, Meta(ge=0.0, le=USAGE_MAX)]


class CellUsage(msgspec.Struct, frozen=True, array_like=True):
    """Usage in a cell, decayed to one moment, in weighted resource seconds of that cell.

    `epoch` and `seq` order the words of a cell. `at_us` is that moment by the cell's own clock, `aged_us` the time from then
    to the writing. `accounts` are (account, ((user, usage), ...)); an empty user stands for all users of the account that
    are not named. `left_out` counts associations whose account is not named, either. Usage halves with each `half_life_s`;
    0: never.
    """

    format: Version
    epoch: Epoch
    seq: Count
    at_us: Count
    half_life_s: Count
    accounts: tuple[tuple[Named, tuple[tuple[Named, Amount], ...]], ...] = ()
    left_out: Count = 0
    aged_us: Annotated[int, Meta(ge=0, le=USAGE_AGE_MAX_US)] = 0


RUNS_MAX: Final = 1_024
"""Runs of nodes in one pool."""
CLAIMS_MAX: Final = 100
"""Claims and tickets in one pool. With `RUNS_MAX` a pool's value stays below 16 KiB."""
NODES_MAX: Final = 4_096
"""Nodes in one pool."""
PASSES_MAX: Final = 3
"""The most times that a ticket lets others pass."""

Place = Annotated[int, Meta(ge=0, le=2**20)]
"""The number of a node in its cell."""
Runs = Annotated[
    tuple[tuple[Place, Annotated[int, Meta(ge=1, le=NODES_MAX)]], ...], Meta(max_length=RUNS_MAX)
]
"""A set of nodes: (first, how many), ascending, with a gap between each two."""
Order = tuple[Count, Number, Count]
"""A rank among all jobs that ask for nodes of others, lowest first: the store's revision when its cell began to ask, the
cell, the claim's serial there. No two are equal, and no clock is in it."""


class Offer(msgspec.Struct, frozen=True, array_like=True):
    """Free nodes of one class that any cell may claim. `for_s`: nothing is booked on them for so long; 0: nothing is."""

    kind: Annotated[int, Meta(ge=0, lt=CLASSES_MAX)]
    for_s: Count
    nodes: Runs


class Claim(msgspec.Struct, frozen=True, array_like=True):
    """Nodes of a pool that a cell holds; with `wanted` above 0 it is a ticket, which waits for so many nodes.

    `borrower` and `serial` name it. `is_open`: the lender has taken note, its nodes are lent. `aside`: a ticket that lets
    the others pass for a while; `passes`: how often it has begun to.
    """

    borrower: Number
    serial: Count
    epoch: Epoch
    order: Order
    kind: Annotated[int, Meta(ge=0, lt=CLASSES_MAX)]
    nodes: Runs = ()
    wanted: Annotated[int, Meta(ge=0, le=NODES_MAX)] = 0
    is_open: bool = False
    aside: bool = False
    passes: Annotated[int, Meta(ge=0, le=PASSES_MAX)] = 0


class Pool(msgspec.Struct, frozen=True, array_like=True):
    """The nodes that a cell offers, and the claims on them. Written by the lender and by borrowers, by comparison only.

    `epoch` is the lender's; `serial` rises with each change that the lender makes. `stopped`: no new claims.
    """

    format: Version
    epoch: Epoch
    serial: Count
    offers: Annotated[tuple[Offer, ...], Meta(max_length=CLASSES_MAX * 8)] = ()
    claims: Annotated[tuple[Claim, ...], Meta(max_length=CLAIMS_MAX)] = ()
    stopped: bool = False
