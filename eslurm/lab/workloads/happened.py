"""Effects of the rules in a run, beside starts and waits: refused, preempted and never started jobs."""

from __future__ import annotations

import re

import msgspec

from eslurm.core.model.units import SECOND_US
from eslurm.core.model.wording import counted

_DIGITS = re.compile(r"\d+")


class Left(msgspec.Struct, frozen=True):
    """Jobs that did not run for one reason. `text` is what was said of the first of them, `job` its number in the log."""

    count: int
    job: str
    text: str


class RuleEffects(msgspec.Struct, frozen=True):
    """Effects of the rules. `lost_s` are processor seconds of runs that were ended before their time."""

    refused: tuple[Left, ...]
    stuck: tuple[Left, ...]
    requeued: int
    ended: int
    paused: int
    lost_s: int

    def sentences(self) -> list[str]:
        """For people, one each."""
        found = [
            f"{counted(one.count, 'job')} refused at submission: left out; the first, {one.job}: {one.text}"
            for one in self.refused
        ]
        found += [
            f"{counted(one.count, 'job')} never started; the first, {one.job}: {one.text}"
            for one in self.stuck
        ]
        if self.requeued or self.ended:
            parts = []
            if self.requeued:
                parts.append(f"{counted(self.requeued, 'run')} ended and begun again later")
            if self.ended:
                parts.append(f"{counted(self.ended, 'job')} ended for good")
            found.append(
                f"to make room: {', '.join(parts)} ({self.lost_s} processor seconds of work were lost)"
            )
        if self.paused:
            found.append(f"to make room: {counted(self.paused, 'time')} a job stood still")
        return found


class Tally:
    """Counts on the way."""

    def __init__(self) -> None:
        self.refused: set[int] = set()
        self.pauses = 0
        self._refusals: dict[str, tuple[int, str, str]] = {}
        self._stuck: dict[str, tuple[int, str, str]] = {}
        self._requeued = self._ended = self._lost_us = 0

    def refuse(self, number: int, name: str, text: str) -> None:
        """The job was not accepted."""
        self.refused.add(number)
        _count(self._refusals, _reason(text), name, text)

    def stuck(self, name: str, text: str) -> None:
        """The job waits for ever."""
        _count(self._stuck, _reason(text), name, text)

    def requeued(self, lost_us: int) -> None:
        """A run was ended, and its job waits again."""
        self._requeued += 1
        self._lost_us += lost_us

    def cut(self, lost_us: int) -> None:
        """A job was ended before its time."""
        self._ended += 1
        self._lost_us += lost_us

    def happened(self) -> RuleEffects:
        """All of it."""
        refused, stuck = (
            tuple(Left(*one) for one in found.values()) for found in (self._refusals, self._stuck)
        )
        return RuleEffects(
            refused, stuck, self._requeued, self._ended, self.pauses, self._lost_us // SECOND_US
        )


def _count(found: dict[str, tuple[int, str, str]], reason: str, name: str, text: str) -> None:
    count, first, said = found.get(reason, (0, name, text))
    found[reason] = count + 1, first, said


def _reason(text: str) -> str:
    """The common part of refusals with one cause: the limit or option at the beginning of the text."""
    head = text.partition(":")[0]
    if head.startswith("pool "):
        return " ".join(head.split()[:2])
    return head if head.startswith(("limit ", "--")) else _DIGITS.sub("0", head)
