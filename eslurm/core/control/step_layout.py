"""Layout of a step's tasks over the nodes of its job, and what its claim takes there.

Pure and small, because a naive model checks it (`tests/property/test_step_claims.py`). Tasks are dealt in blocks, as evenly
as the nodes allow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from eslurm.core.model.amounts import Vector
from eslurm.core.model.job import Span
from eslurm.core.model.messages import RefusalCode, Refused, StepProgram
from eslurm.core.model.step_claim import NumberedDevices, StepClaim
from eslurm.core.state.step_use import Place, Taken

Layout = tuple[tuple[int, int], ...]
"""(node, tasks) in order."""
CORES = 0


class Laid(NamedTuple):
    """A program's tasks, and what they take, node by node."""

    layout: Layout
    takes: tuple[Vector, ...] = ()
    devices: NumberedDevices = ()


class Wanted(NamedTuple):
    """A program with the bounds of its step. `where` begins the texts of refusals: `part 1: `."""

    program: StepProgram
    claim: StepClaim | None
    nodes_open: bool
    where: str = ""


def lay_out(spans: Sequence[Span], wanted: Wanted, taken: Mapping[Place, Taken]) -> Laid | None:
    """Lay out a program beside what other steps have taken; None while that is too much.

    Raises `Refused` for a program that does not fit into these spans, whatever other steps do.
    """
    program, claim = wanted.program, wanted.claim
    check_numbers(spans, wanted)
    most = program.nodes or (len(spans) if program.tasks == 0 else min(len(spans), program.tasks))
    tasks = program.tasks or most
    if tasks < most:
        text = f"--ntasks: {tasks} tasks cannot be spread over {most} nodes"
        raise Refused(RefusalCode.INVALID, wanted.where + text)
    is_whole = claim is not None and claim.whole
    least = 1 if (wanted.nodes_open or not program.nodes) and program.tasks and not is_whole else most
    by_task, on_node = _rates(program, claim)

    def alone(span: Span) -> int:
        return _room(span.amounts, on_node, by_task)

    def beside(span: Span) -> int:
        return _room(_free(span, claim, taken), on_node, by_task)

    if _spread(spans, alone, most, least, tasks) is None:
        raise _too_many(spans, wanted, most, tasks, alone)
    layout = _spread(spans, beside if claim is not None else alone, most, least, tasks)
    if layout is None:
        return None
    if claim is None:
        return Laid(layout)
    by_node = {span.node: span for span in spans}
    takes = tuple([_amounts(by_node[node], count, claim, by_task) for node, count in layout])
    numbered = _numbered([by_node[node] for node, _ in layout], takes, taken)
    return Laid(layout, takes, tuple(numbered))


def _rates(program: StepProgram, claim: StepClaim | None) -> tuple[Vector, Vector]:
    """(amounts for each task, amounts on each node)."""
    if claim is None:
        return (program.cpus_per_task,), ()
    memory_mib = program.cpus_per_task * claim.by_cpu_mib
    by_task = (program.cpus_per_task, memory_mib, *claim.by_task[2:])
    return by_task if any(by_task[1:]) else by_task[:1], claim.on_node


def check_numbers(spans: Sequence[Span], wanted: Wanted) -> None:
    """Raise `Refused` for numbers that fit no job, or not this one."""
    program, where = wanted.program, wanted.where
    if program.cpus_per_task < 1:
        text = f"--cpus-per-task: {program.cpus_per_task} is too few: a task needs one cpu"
        raise Refused(RefusalCode.INVALID, where + text)
    if program.tasks < 0 or program.nodes < 0:
        text = "--ntasks and --nodes must not be negative: leave out what is open"
        raise Refused(RefusalCode.INVALID, where + text)
    if program.nodes > len(spans):
        owner = "part" if where else "job"
        text = f"--nodes: {program.nodes} are more than the {owner}'s {len(spans)} nodes"
        raise Refused(RefusalCode.INFEASIBLE, where + text)
    if not spans:
        raise Refused(RefusalCode.CONFLICT, where + "none of its nodes is left")


def _free(span: Span, claim: StepClaim | None, taken: Mapping[Place, Taken]) -> Vector:
    """The amounts of a span that no step takes; no core where a step that takes all of them does not find them all."""
    there = taken.get((span.component, span.node))
    if there is None:
        return span.amounts
    free = tuple([has - there.of(index) for index, has in enumerate(span.amounts)])
    return (0, *free[1:]) if claim is not None and claim.whole and there.of(CORES) else free


def _room(free: Vector, on_node: Vector, by_task: Vector) -> int:
    """The number of tasks that fit."""
    room = free[CORES] // by_task[CORES]
    for index in range(1, max(len(on_node), len(by_task))):
        left = (free[index] if index < len(free) else 0) - (on_node[index] if index < len(on_node) else 0)
        if left < 0:
            return 0
        if index < len(by_task) and by_task[index]:
            room = min(room, left // by_task[index])
    return room


def _spread(
    spans: Sequence[Span], room_of: Callable[[Span], int], most: int, least: int, tasks: int
) -> Layout | None:
    """The first nodes with room, else those with the most; evenly where that fits, else each as full as it must be."""
    rooms = [(room, at) for at, span in enumerate(spans) if (room := room_of(span)) > 0]
    if len(rooms) < least:
        return None
    chosen = rooms[:most]
    if sum(room for room, _ in chosen) < tasks:
        chosen = sorted(sorted(rooms, key=lambda one: -one[0])[:most], key=lambda one: one[1])
        if sum(room for room, _ in chosen) < tasks:
            return None
    share, more = divmod(tasks, len(chosen))
    counts = [share + (at < more) for at in range(len(chosen))]
    if any(count > room for count, (room, _) in zip(counts, chosen, strict=True)):
        counts, left = [1] * len(chosen), tasks - len(chosen)
        for at, (room, _) in enumerate(chosen):
            extra = min(left, room - 1)
            counts[at] += extra
            left -= extra
    return tuple([(spans[at].node, count) for (_, at), count in zip(chosen, counts, strict=True)])


def _too_many(
    spans: Sequence[Span], wanted: Wanted, most: int, tasks: int, room_of: Callable[[Span], int]
) -> Refused:
    owner, program = "part" if wanted.where else "job", wanted.program
    rooms = sorted((room_of(span) for span in spans), reverse=True)[:most]
    of_cores = sorted((span.amounts[CORES] // program.cpus_per_task for span in spans), reverse=True)[:most]
    if of_cores != rooms:
        text = (
            f"{tasks} tasks with this memory and these resources are more than {most} nodes of the {owner} hold "
            f"({sum(rooms)}): ask for less of them"
        )
    else:
        text = (
            f"--ntasks: {tasks} tasks of {program.cpus_per_task} cpus are more than {most} nodes of the {owner} hold "
            f"({sum(rooms)})"
        )
    return Refused(RefusalCode.INFEASIBLE, wanted.where + text)


def _amounts(span: Span, tasks: int, claim: StepClaim, by_task: Vector) -> Vector:
    """The amounts that so many tasks take on a node."""
    size = max(len(claim.on_node), len(by_task))
    found = [
        (claim.on_node[index] if index < len(claim.on_node) else 0)
        + (tasks * by_task[index] if index < len(by_task) else 0)
        for index in range(size)
    ]
    if claim.whole:
        found[CORES] = span.amounts[CORES]
    return tuple(found)


def _numbered(
    spans: Sequence[Span], takes: Sequence[Vector], taken: Mapping[Place, Taken]
) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """The first free devices of each resource that has numbered ones, as many as are taken."""
    for span, amounts in zip(spans, takes, strict=True):
        there = taken.get((span.component, span.node))
        used = there.devices if there is not None else ()
        for index, numbers in span.devices:
            count = amounts[index] if index < len(amounts) else 0
            if count:
                free = [number for number in numbers if (index, number) not in used]
                yield span.node, index, tuple(free[:count])
