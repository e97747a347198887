"""Prolog and epilog of a job on the controller's host (F-04): the programs, and how far an attempt is with them.

The prolog runs when the attempt is placed, before anything of it reaches a node. The epilog runs when every node has given
its resources back; if the prolog had not begun, it does not run.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

import msgspec

from eslurm.core.model.step_key import EPILOG, PROLOG

RUNNING_MAX = 64
LIMIT_S = 300


class ControllerPrograms(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """The programs that run on the controller's host, empty where there is none, each for `limit_s` seconds at most.

    Of all jobs, `running_max` of them run at once; the others wait for their turn.
    """

    prolog: str = ""
    epilog: str = ""
    limit_s: int = LIMIT_S
    running_max: int = RUNNING_MAX

    def program(self, phase: str) -> str:
        """The program of this phase; empty: none."""
        return {PROLOG: self.prolog, EPILOG: self.epilog}[phase]


class PhaseStage(enum.Enum):
    """Progress of the present phase of an attempt."""

    __hash__ = object.__hash__

    WAITING = "WAITING"
    """It waits for its turn."""
    RUNNING = "RUNNING"
    """Its program runs, or has ended and its end is not committed yet."""
    ENDING = "ENDING"
    """The program of a prolog is being ended, because its attempt is over."""
    OVER = "OVER"
    """The prolog has ended well, or there is none: the attempt may be launched."""
    FAILED = "FAILED"
    """The prolog has failed, and the attempt ends."""


TRANSITIONS: dict[PhaseStage, dict[PhaseStage, str]] = {
    PhaseStage.WAITING: {
        PhaseStage.RUNNING: "its turn has come",
        PhaseStage.OVER: "the program is not configured any more",
    },
    PhaseStage.RUNNING: {
        PhaseStage.RUNNING: "a new leader runs it again",
        PhaseStage.ENDING: "the attempt ended while its prolog ran",
        PhaseStage.OVER: "the prolog ended well",
        PhaseStage.FAILED: "the prolog failed",
    },
    PhaseStage.ENDING: {PhaseStage.WAITING: "the prolog is gone, the epilog follows"},
    PhaseStage.OVER: {PhaseStage.WAITING: "every node is released, the epilog follows"},
    PhaseStage.FAILED: {PhaseStage.WAITING: "every node is released, the epilog follows"},
}
UNDER_WAY = frozenset({PhaseStage.RUNNING, PhaseStage.ENDING})


class ControllerPhase(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """The present phase of an attempt on the controller's host.

    `run` counts how often its program was started, by one leader after the other; 0: not yet.
    """

    name: str
    stage: PhaseStage
    run: int = 0
    began_us: int = 0
    owes_epilog: bool = False
    """The epilog runs when every node is released."""


class PhaseKey(NamedTuple):
    """Identity of one run of a program on the controller's host."""

    job_id: int
    attempt: int
    phase: str
    run: int
