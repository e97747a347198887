"""What a new supervisor owes to its predecessor's steps: end what still runs of them, and say that they are lost.

A predecessor leaves processes in a crash only (an orderly stop ends its steps first). Their exit status belongs to a
parent that is gone, so the outcome is `lost`, never a guess.
"""

from __future__ import annotations

from collections.abc import Iterable

from eslurm.ports.step_runner import StepEndCause, StepEnded
from esnoded.stepd import roundup
from esnoded.stepd.journal import Unfinished, read_contents
from esnoded.stepd.place import Place


def settle_predecessor(place: Place, boot_id: str, now_us: int) -> list[StepEnded]:
    """What a supervisor of a version before 0.2 still owed, once it is gone; its files go with `forget_predecessor`."""
    old = Place(place.state_dir, is_old=True)
    try:
        with open(old.journal, "rb") as file:
            past = read_contents(file.read())
    except FileNotFoundError:
        return []
    if old.find_supervisor() is not None:
        return []
    lost = end_lost_steps(past.unfinished.values(), old.instance(), boot_id, now_us)
    return [*past.outcomes.values(), *lost]


def forget_predecessor(place: Place) -> None:
    """Remove the files of one that is gone and settled."""
    old = Place(place.state_dir, is_old=True)
    if old.find_supervisor() is None:
        old.remove()


def end_lost_steps(
    unfinished: Iterable[Unfinished], instance: str, boot_id: str, now_us: int
) -> list[StepEnded]:
    """Kill every process of an earlier supervisor and return the outcomes of its steps. `now_us` is wall time."""
    lost = list(unfinished)
    recorded = dict(task for step in lost if step.boot_id == boot_id for task in step.tasks)
    survivors = roundup.end_all(instance, recorded)
    outcomes = []
    for step in lost:
        if step.boot_id != boot_id:
            text = "the node was rebooted while it ran"
        else:
            text = "its step supervisor died while it ran"
            if survivors:
                text += f"; processes that did not end: {' '.join(map(str, survivors))}"
        outcomes.append(
            StepEnded(step.key, 0, 0, StepEndCause.LOST, text, started_us=step.at_us, ended_us=now_us)
        )
    return outcomes
