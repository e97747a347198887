"""The CPUs of a task (`--cpu-bind`), set by its own process as its user, within those that its control group leaves to it.

Without a word from the step's command the tasks of a step get cores of their own where their job has cores of its own on
the node and they fill them exactly.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from eslurm.compat.cpu_binding import (
    ASKED,
    CORES,
    LDOMS,
    MAP,
    MASK,
    NONE,
    OPTION,
    RANK,
    SOCKETS,
    THREADS,
    Binding,
    binding_line,
    binding_variables,
    parse_binding,
)
from eslurm.compat.errors import OptionError
from eslurm.ports.step_runner import StepSpec
from esnoded.topology import Core, format_cpus, read_cores

_GROUP = re.compile(r"/job_\d+\.\d+\.\d+/step_-?\d+$", re.ASCII)
_THREADS_MAX = 8
"""Hardware threads of a core."""
_LISTED_TASKS_MAX = 1024
_LISTED_CHARS_MAX = 65_536


class BindingFailed(Exception):
    """A task cannot be bound as it was asked; the text says why."""


def is_asked(spec: StepSpec) -> bool:
    """Check whether the step's command asks for something."""
    return spec.endpoint is not None and bool(spec.env.get(ASKED))


def bind_task(spec: StepSpec, local: int, stderr: int) -> dict[str, str]:
    """Bind this process, the task of this rank on its node; returns the variables for its program.

    Raises `BindingFailed`.
    """
    if spec.endpoint is None or not ((has_cores := _has_cores()) or is_asked(spec)):
        return {}
    try:
        asked = parse_binding(spec.env.get(ASKED, ""))
        allowed = os.sched_getaffinity(0)
        per_task = _per_task(spec)
        if not asked.kind and has_cores:
            asked = Binding(_usual(spec.tasks, per_task, allowed), is_verbose=asked.is_verbose)
        cores = read_cores(allowed) if asked.kind not in ("", NONE, MAP, MASK) else ()
        bound = cpus_of(asked, local, per_task, allowed, cores)
        if bound != allowed:
            os.sched_setaffinity(0, bound)
    except (OptionError, ValueError, OSError) as error:
        raise BindingFailed(str(error)) from None
    if asked.is_verbose:
        line = binding_line(
            asked, spec.node_name, spec.first_task + local, local, os.getpid(), mask_of(bound)
        )
        with suppress(OSError):
            os.write(stderr, line.encode())
    if not asked.kind:
        return {}

    def masks() -> str:
        return _masks(spec.tasks, lambda one: cpus_of(asked, one, per_task, allowed, cores))

    return binding_variables(asked, masks)


def _usual(tasks: int, per_task: int, allowed: Collection[int]) -> str:
    """The binding where none was asked for."""
    wanted = tasks * per_task
    # The look at the topology costs some microseconds for each CPU.
    may_fill = wanted <= len(allowed) <= _THREADS_MAX * wanted
    return CORES if may_fill and len(read_cores(allowed)) == wanted else NONE


def cpus_of(
    asked: Binding, local: int, per_task: int, allowed: Collection[int], cores: Sequence[Core]
) -> set[int]:
    """The CPUs of the task of this rank on its node, of those that are `allowed` (`cores`). Raises ValueError."""
    if asked.kind in (MAP, MASK):
        return _listed(asked, local, allowed)
    if asked.kind == THREADS:
        return _block([{cpu} for core in cores for cpu in core.cpus], local, per_task)
    if asked.kind == RANK:
        return {cores[local % len(cores)].cpus[0]}
    if asked.kind == CORES:
        return _block([set(core.cpus) for core in cores], local, per_task)
    if asked.kind in (SOCKETS, LDOMS):
        places = [(core.socket, core.domain if asked.kind == LDOMS else 0) for core in cores]
        chosen = {
            places[(local * per_task + index) % len(cores)] for index in range(min(per_task, len(cores)))
        }
        return {
            cpu for core, place in zip(cores, places, strict=True) if place in chosen for cpu in core.cpus
        }
    return set(allowed)


def _block(units: Sequence[set[int]], local: int, per_task: int) -> set[int]:
    """The task's own units, dealt in blocks; they begin anew where there are more tasks than units."""
    count = len(units)
    return set().union(*(units[(local * per_task + index) % count] for index in range(min(per_task, count))))


def _listed(asked: Binding, local: int, allowed: Collection[int]) -> set[int]:
    entry = asked.entries[local % len(asked.entries)]
    wanted = {entry} if asked.kind == MAP else {cpu for cpu in range(entry.bit_length()) if entry >> cpu & 1}
    bound = wanted.intersection(allowed)
    if not bound:
        what = (
            f"{OPTION}: the CPUs {format_cpus(wanted)[:200]} of task {local} on its node are not of its job"
        )
        raise ValueError(f"{what}, which may use {format_cpus(allowed)[:200]}")
    return bound


def mask_of(cpus: Collection[int]) -> int:
    """A bit for each CPU."""
    return sum(1 << cpu for cpu in cpus)


def _masks(tasks: int, cpus: Callable[[int], Collection[int]]) -> str:
    """The masks of all tasks of a node; empty where they are more than a variable should hold."""
    if tasks > _LISTED_TASKS_MAX:
        return ""
    text = ",".join(f"{mask_of(cpus(local)):#x}" for local in range(tasks))
    return text if len(text) <= _LISTED_CHARS_MAX else ""


def _per_task(spec: StepSpec) -> int:
    """Cores for each task. Raises ValueError."""
    return max(1, min(int(spec.env.get("SLURM_CPUS_PER_TASK") or 1), spec.cores or 1))


def _has_cores() -> bool:
    """Check whether this process is in the control group of a job that has cores of its own (`stepd.groups`)."""
    with suppress(OSError, ValueError), open("/proc/self/cpuset", encoding="ascii") as file:
        # Of other jobs a step's group has no such controller, and this is the group of the job, or one above.
        return _GROUP.search(file.read().strip()) is not None
    return False
