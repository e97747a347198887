"""A node of this process: its identity, its registration, and its attempts.

Invariant: a node that is not `registered` carries out no command: arriving ones are parked until the reply names its
incarnation. Its reports wait too, because they name that incarnation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from eslurm.core.agent.actions import AttemptKey
from eslurm.core.agent.attempt import Attempt, Waiter
from eslurm.core.model.amounts import Vector
from eslurm.core.model.node_health import CheckTerms
from eslurm.core.model.protocol import (
    CheckPassed,
    Command,
    CoresReported,
    GatewayReported,
    HealthReported,
    NodeGone,
    PhaseReported,
    StepEnded,
    TasksOver,
)

OwedBody: TypeAlias = (
    StepEnded
    | NodeGone
    | PhaseReported
    | CheckPassed
    | GatewayReported
    | CoresReported
    | TasksOver
    | HealthReported
)
OwedKey: TypeAlias = tuple[type[OwedBody], int, int, str]
"""(kind of report, job, attempt, phase or number of the step)."""


class Parked(msgspec.Struct, frozen=True):
    """A command that overtook the registration's reply, for the incarnation that it names."""

    command: Command
    incarnation: int
    waiter: Waiter


class NodeOffer(msgspec.Struct, frozen=True):
    """A process's offer for one of its nodes."""

    name: str
    node_uid: str
    total: Vector
    resources: tuple[tuple[str, int], ...] = ()
    """Resources counted beyond `total`, by name."""
    device_model: str = ""
    login: bool = False
    """True for a login host."""
    phases: tuple[str, ...] = ()
    """Programs that the node's configuration names: prolog, epilog, check."""
    phase_limit_s: int = 300
    """The longest run of one of them."""
    contained: tuple[str, ...] = ()
    """Effects of control groups on jobs there (`core.model.node.CONTAINMENT`)."""
    health: tuple[CheckTerms, ...] = ()
    """Its health checks."""


@dataclass(slots=True, eq=False)
class LocalNode:
    """One served node. `number` is -1 until a controller has accepted it for the first time.

    `session` and `starts` (its count in this spool) are what the node is offered under. `refused` is why it was not
    accepted when it was offered last. `contact_us` is the last time at which it said something that the controller has
    confirmed, 0: never; rounds of heartbeats before `rounds_from` (0: all so far) say nothing about it, see `contact`.
    """

    offer: NodeOffer
    number: int = -1
    incarnation: int = 0
    session: str = ""
    starts: int = 0
    registered: bool = False
    refused: str = ""
    owner: str = ""
    epoch: int = 0
    registration_seq: int = 0
    contact_us: int = 0
    rounds_from: int = 0
    parked: list[Parked] = field(default_factory=list)
    faults: set[tuple[str, int]] = field(default_factory=set)
    """Its standing faults: (kind, job)."""
    check_us: int = 0
    """Time of its next check; 0: at once, or not planned."""
    check_ends_us: int = 0
    """Time by which the check that runs has ended or is lost; 0: none runs."""
    attempts: dict[AttemptKey, Attempt] = field(default_factory=dict)
    owed: dict[OwedKey, OwedBody] = field(default_factory=dict)
    sent: dict[OwedKey, int] = field(default_factory=dict)
