"""Takeover by `procd` from supervisors of earlier versions, which ran wholly as root: it settles their steps.

Their files are root's, so root reads them. Used only where such a supervisor, or its journal, is found at the start.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from eslurm.ports.step_runner import StepOutcome
from eslurm.telemetry.clocks import wall_us
from esnoded.procd import roundup
from esnoded.procd.launches import Launches
from esnoded.stepd.journal import Contents, read_contents
from esnoded.stepd.place import Place
from esnoded.stepd.recovery import lost_steps


class Predecessor:
    """A supervisor of a version before 0.2, which had its files in the state directory."""

    def __init__(self, place: Place, boot_id: str) -> None:
        self._place = place
        self._boot_id = boot_id

    def left_behind(self, is_settled: bool) -> Sequence[StepOutcome]:
        """Its unacknowledged outcomes, once it is gone; ends its processes. Removes its files when that `is_settled`.

        Raises OSError.
        """
        past = _read(self._place.journal)
        if past is None or self._place.find_supervisor() is not None:
            return ()
        if is_settled:
            self._place.remove()
            return ()
        survivors = roundup.end_all(self._place.instance(), _leaders(past, self._boot_id))
        lost = lost_steps(past.unfinished.values(), survivors, self._boot_id, wall_us())
        return [*past.outcomes.values(), *lost]


def find_predecessor(place: Place, boot_id: str) -> Callable[[bool], Sequence[StepOutcome]]:
    """The function that settles a predecessor, see `Predecessor.left_behind`."""
    old = Place(place.state_dir, is_old=True)
    if not os.path.exists(old.journal):
        return lambda _is_settled: ()
    return Predecessor(old, boot_id).left_behind


def take_over(place: Place, launches: Launches, boot_id: str) -> None:
    """Learn from a journal of root's which credentials were used and which processes run. Raises OSError."""
    past = _read(place.root_journal)
    if past is not None:
        launches.learn(past.used, _leaders(past, boot_id))


def _read(path: str) -> Contents | None:
    try:
        with open(path, "rb") as file:
            return read_contents(file.read())
    except FileNotFoundError:
        return None


def _leaders(past: Contents, boot_id: str) -> dict[int, int]:
    return dict(task for step in past.unfinished.values() if step.boot_id == boot_id for task in step.tasks)
