"""Variants of a job's request: less of something, step by step, or one other difference (C-49).

Amounts are `Scale`s: less time, nodes, tasks, chunks, cores, memory, devices or licences. All else is a single `Draft`:
another partition or type of device, without a feature, shared nodes. Invariants: a draft requests nothing more than the
job does; the caller tries whether it helps and would be accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from eslurm.core.model.features import terms
from eslurm.core.model.job import JobSpec
from eslurm.core.model.option_text import (
    clock,
    constraint_option,
    devices_option,
    items_words,
    rset_option,
    type_in,
    wide_option,
)
from eslurm.core.model.request import Chunk, Request
from eslurm.core.model.units import SECOND_US
from eslurm.core.model.wording import counted
from eslurm.core.resources.usage import length_words

PARTITIONS_MAX: Final = 8
TYPES_MAX: Final = 8
"""Other types of a device, in the job's own partition and in others."""
WITHOUT_MAX: Final = 10
TERMS_MAX: Final = 4
"""Single features that are left out in turn, those first that exclude most nodes."""
LESS_MIN: Final = 10
"""A tenth of what was asked for is the least that is offered."""
MIB_GRAIN: Final = 256
"""A request for less memory than this does not wait because of it."""
TIME_GRAINS: Final = ((1, 600), (60, 3600), (300, 6 * 3600), (900, 86_400), (3600, 0))
"""(seconds by which less time is offered, for time limits up to so many seconds)."""


class Draft(msgspec.Struct, frozen=True, gc=False):
    """One changed job. `kind` names the change; `cost`, in thousandths, how much of it is given up.

    `update` are the words that change it so, where they are known already.
    """

    kind: str
    cost: int
    spec: JobSpec
    text: str
    option: str
    update: str = ""


class Scale(msgspec.Struct, frozen=True):
    """Amounts less than what the job asks for, in ascending order."""

    values: Sequence[int]
    make: Callable[[int], Draft]


class Choices(msgspec.Struct, frozen=True):
    """The possible alternatives. `partitions` are the others that start jobs.

    `types` (partition, resource): the types of its devices there, those free on most nodes first. `outside` (partition,
    expression): number of its nodes that the expression excludes. `memories_mib` and `cores`: amounts to try (None: any),
    by node, core, task or chunk as in the job's request. With `only_time` its request stays as it is.
    """

    partitions: Sequence[str] = ()
    types: Callable[[str, str], Sequence[str]] = lambda _partition, _resource: ()
    outside: Callable[[str, str], int] = lambda _partition, _expression: 0
    memories_mib: Sequence[int] | None = None
    cores: Sequence[int] | None = None
    only_time: bool = False


class Group(NamedTuple):
    """Drafts, and the number of them to try."""

    tries_max: int
    drafts: Iterator[Draft]


# ---- amounts ----


def scales(spec: JobSpec, choices: Choices) -> Iterator[Scale]:
    """Scales of less of something, the most promising first."""
    if spec.time_limit_s:
        yield _time_scale(spec)
    if choices.only_time:
        return
    request = spec.components[0]
    if request.chunks:
        yield from _chunk_scales(spec, request, choices)
    else:
        yield from _task_scales(spec, request, choices)
    for at, (name, asked) in enumerate(request.wide):
        yield _wide_scale(spec, request, at, name, asked)


def _time_scale(spec: JobSpec) -> Scale:
    limit_s = spec.time_limit_s
    grain_s = next(grain_s for grain_s, up_to_s in TIME_GRAINS if limit_s <= up_to_s or not up_to_s)

    def make(less_s: int) -> Draft:
        text = f"{length_words((limit_s - less_s) * SECOND_US)} less"
        draft = replace(spec, time_limit_s=less_s)
        return Draft("time", _given_up(less_s, limit_s), draft, text, f"--time {clock(less_s)}")

    least_s = max(1, -(-limit_s // (grain_s * LESS_MIN))) * grain_s
    return Scale(range(least_s, limit_s, grain_s), make)


def _wide_scale(spec: JobSpec, request: Request, at: int, name: str, asked: int) -> Scale:
    def make(items: int) -> Draft:
        wide = _with_item(request.wide, at, items)
        text = f"{items} {name} instead of {asked}"
        changed = _with(spec, replace(request, wide=wide))
        return Draft(name, _given_up(items, asked), changed, text, wide_option(wide))

    return Scale(_fewer(asked), make)


# ---- amounts of tasks ----


def _task_scales(spec: JobSpec, request: Request, choices: Choices) -> Iterator[Scale]:
    if request.nodes_min > 1:
        yield _node_scale(spec, request)
    elif request.tasks > 1 and not request.nodes_min:
        yield _tasks_scale(spec, request)
    for field, whose in (("per_node", "node"), ("per_task", "task")):
        for at, (name, asked) in enumerate(getattr(request, field)):
            yield _device_scale(spec, request, field, at, name, asked, whose)
    if request.memory_per_node_mib > MIB_GRAIN or request.memory_per_cpu_mib > MIB_GRAIN:
        yield _memory_scale(spec, request, choices.memories_mib)
    if request.cpus_per_task > 1:
        yield _cores_scale(spec, request, choices.cores)


def _node_scale(spec: JobSpec, request: Request) -> Scale:
    nodes, tasks = request.nodes_min, request.tasks
    # Tasks that were dealt out evenly stay so many on each node.
    per_node = tasks // nodes if tasks % nodes == 0 and tasks > 1 else 0

    def make(step: int) -> Draft:
        most = step if request.nodes_max == nodes else request.nodes_max
        changed = replace(request, nodes_min=step, nodes_max=most, tasks=per_node * step or tasks)
        option = f"--nodes {step}" if most == step else f"--nodes {step}-{most}"
        if per_node:
            option += f" --ntasks {per_node * step}"
        text = f"{counted(step, 'node')} instead of {nodes}"
        return Draft(
            "nodes", _given_up(step, nodes), _with(spec, changed), text, _and_devices(option, changed)
        )

    low = max(1, -(-nodes // LESS_MIN), len(request.include))
    return Scale(range(low, nodes), make)


def _tasks_scale(spec: JobSpec, request: Request) -> Scale:
    tasks = request.tasks

    def make(step: int) -> Draft:
        text = f"{counted(step, 'task')} instead of {tasks}"
        changed = replace(request, tasks=step)
        option = _and_devices(f"--ntasks {step}", changed)
        return Draft("tasks", _given_up(step, tasks), _with(spec, changed), text, option)

    return Scale(_fewer(tasks), make)


def _and_devices(option: str, request: Request) -> str:
    """The change for a job that gives GPUs by total number: they would be distributed anew."""
    devices = devices_option(request)
    return f"{option} {devices}" if devices else option


def _device_scale(
    spec: JobSpec, request: Request, field: str, at: int, name: str, asked: int, whose: str
) -> Scale:
    def make(items: int) -> Draft:
        changed = replace(request, **{field: _with_item(getattr(request, field), at, items)})
        text = f"{items_words(items, name)} a {whose} instead of {asked}"
        return Draft(
            name, _given_up(items, asked), _with(spec, changed), text, devices_option(changed) or text
        )

    return Scale(_fewer(asked), make)


def _memory_scale(spec: JobSpec, request: Request, amounts_mib: Sequence[int] | None) -> Scale:
    is_node = request.memory_per_node_mib > 0
    asked_mib = request.memory_per_node_mib if is_node else request.memory_per_cpu_mib

    def make(mib: int) -> Draft:
        name = "memory_per_node_mib" if is_node else "memory_per_cpu_mib"
        changed = _with(spec, replace(request, **{name: mib}))
        text = f"{mib} MiB of memory a {'node' if is_node else 'core'} instead of {asked_mib}"
        option = f"--{'mem' if is_node else 'mem-per-cpu'} {mib}M"
        return Draft("memory", _given_up(mib, asked_mib), changed, text, option)

    return Scale(_less_memory(asked_mib, amounts_mib), make)


def _cores_scale(spec: JobSpec, request: Request, amounts: Sequence[int] | None) -> Scale:
    asked = request.cpus_per_task

    def make(cores: int) -> Draft:
        text = f"{counted(cores, 'core')} a task instead of {asked}"
        changed = _with(spec, replace(request, cpus_per_task=cores))
        return Draft("cores", _given_up(cores, asked), changed, text, f"--cpus-per-task {cores}")

    return Scale(_fewer(asked, amounts), make)


# ---- amounts of chunks ----


def _chunk_scales(spec: JobSpec, request: Request, choices: Choices) -> Iterator[Scale]:
    chunks = request.chunks
    many = [chunk.count for chunk in chunks if chunk.count > 1]
    for at, chunk in enumerate(chunks):
        yield _one_scale(
            spec,
            at,
            "chunks",
            chunk.count,
            _fewer(chunk.count),
            lambda count: counted(count, "chunk") if len(chunks) == 1 else str(count),
            lambda chunk, count: replace(chunk, count=count),
        )
    if len(many) > 1:
        yield _all_counts_scale(spec, request)
    for at, chunk in enumerate(chunks):
        for index, (name, asked) in enumerate(chunk.resources):
            yield _chunk_device_scale(spec, at, index, name, asked)
    for at, chunk in enumerate(chunks):
        if chunk.memory_mib > MIB_GRAIN:
            yield _one_scale(
                spec,
                at,
                "memory",
                chunk.memory_mib,
                _less_memory(chunk.memory_mib, choices.memories_mib),
                lambda mib: f"{mib} MiB of memory",
                lambda chunk, mib: replace(chunk, memory_mib=mib),
            )
    for at, chunk in enumerate(chunks):
        yield _one_scale(
            spec,
            at,
            "cores",
            chunk.cores,
            _fewer(chunk.cores, choices.cores),
            lambda cores: counted(cores, "core"),
            lambda chunk, cores: replace(chunk, cores=cores),
        )


def _chunk_device_scale(spec: JobSpec, at: int, index: int, name: str, asked: int) -> Scale:
    return _one_scale(
        spec,
        at,
        name,
        asked,
        _fewer(asked),
        lambda items: items_words(items, name),
        lambda chunk, items: replace(chunk, resources=_with_item(chunk.resources, index, items)),
    )


def _one_scale(
    spec: JobSpec,
    at: int,
    kind: str,
    asked: int,
    values: Sequence[int],
    words: Callable[[int], str],
    change: Callable[[Chunk, int], Chunk],
) -> Scale:
    """Less of one thing in the chunks of one kind."""
    request = spec.components[0]
    chunks = request.chunks

    def make(value: int) -> Draft:
        changed = _with_chunks(request, (*chunks[:at], change(chunks[at], value), *chunks[at + 1 :]))
        whose = "" if kind == "chunks" else " a chunk"
        text = f"{words(value)}{whose} instead of {asked}"
        if len(chunks) > 1:
            text = f"chunk {at + 1}: {words(value)} instead of {asked}"
        return Draft(kind, _given_up(value, asked), _with(spec, changed), text, rset_option(changed) or text)

    return Scale(values, make)


def _all_counts_scale(spec: JobSpec, request: Request) -> Scale:
    """Fewer chunks of each kind, in proportion."""
    asked = max(chunk.count for chunk in request.chunks)
    total = sum(chunk.count for chunk in request.chunks)

    def make(most: int) -> Draft:
        chunks = tuple(
            [replace(chunk, count=max(1, chunk.count * most // asked)) for chunk in request.chunks]
        )
        changed = _with_chunks(request, chunks)
        text = f"{counted(changed.tasks, 'chunk')} instead of {total}"
        return Draft(
            "chunks",
            _given_up(changed.tasks, total),
            _with(spec, changed),
            text,
            rset_option(changed) or text,
        )

    return Scale(_fewer(asked), make)


def _with_chunks(request: Request, chunks: tuple[Chunk, ...]) -> Request:
    tasks = sum(chunk.count for chunk in chunks)
    return replace(request, chunks=chunks, tasks=tasks, cpus_per_task=chunks[0].cores)


# ---- one thing otherwise ----


def singles(spec: JobSpec, choices: Choices) -> Iterator[Group]:
    """Groups of other differences, by kind."""
    if choices.only_time:
        return
    yield Group(PARTITIONS_MAX, _partitions(spec, choices))
    yield Group(TYPES_MAX, _types(spec, choices))
    yield Group(WITHOUT_MAX, _withouts(spec, choices))


def _partitions(spec: JobSpec, choices: Choices) -> Iterator[Draft]:
    for name in choices.partitions:
        changed = replace(spec, partition=name)
        yield Draft(f"partition {name}", 100, changed, f"in partition {name}", f"--partition {name}")


def _types(spec: JobSpec, choices: Choices) -> Iterator[Draft]:
    """Devices of another type, here or in another partition, or of any."""
    request = spec.components[0]
    for name, asked in _asked_types(request):
        for partition in (spec.partition, *choices.partitions):
            is_here = partition == spec.partition
            for kind in choices.types(partition, name):
                if kind == asked:
                    continue
                changed = _retyped(request, f"{name}:{asked}", f"{name}:{kind}")
                text = f"{name}:{kind} instead of {name}:{asked}"
                option = _typed_option(changed) or text
                if not is_here:
                    text, option = f"{text} in partition {partition}", f"--partition {partition} {option}"
                yield Draft(
                    "type",
                    150 if is_here else 170,
                    _with(replace(spec, partition=partition), changed),
                    text,
                    option,
                )
        changed = _retyped(request, f"{name}:{asked}", "")
        text = f"any type of {name} instead of {name}:{asked}"
        yield Draft("type", 160, _with(spec, changed), text, _typed_option(changed) or text)


def _typed_option(request: Request) -> str:
    return rset_option(request) if request.chunks else devices_option(request)


def _asked_types(request: Request) -> list[tuple[str, str]]:
    """(resource, type) for each type that the job or one of its chunks requires, each once."""
    wholes = (*request.per_node, *request.per_task)
    found = {(name, type_in(request.constraint, name)): None for name, _ in wholes}
    for chunk in request.chunks:
        for name, _ in chunk.resources:
            for constraint in (request.constraint, chunk.constraint):
                found[name, type_in(constraint, name)] = None
    return [(name, kind) for name, kind in found if kind]


def _retyped(request: Request, old: str, new: str) -> Request:
    """The request with a feature replaced everywhere; `new` "": removed."""

    def changed(constraint: str) -> str:
        found = [new if term == old else term for term in terms(constraint)]
        return "&".join([term for term in found if term])

    chunks = tuple([replace(chunk, constraint=changed(chunk.constraint)) for chunk in request.chunks])
    return replace(request, constraint=changed(request.constraint), chunks=chunks)


def _withouts(spec: JobSpec, choices: Choices) -> Iterator[Draft]:
    request = spec.components[0]
    if request.exclusive:
        yield _without(spec, "--exclusive", replace(request, exclusive=False))
    if request.place != "free":
        yield _without(spec, f"place={request.place}", replace(request, place="free"))
    yield from _without_features(spec, request, choices)
    if request.include:
        yield _without(spec, "--nodelist", replace(request, include=()))
    if request.exclude:
        yield _without(spec, "--exclude", replace(request, exclude=()))
    if spec.reservation:
        text = "without --reservation"
        yield Draft("--reservation", 300, replace(spec, reservation=""), text, text)


def _without(spec: JobSpec, option: str, changed: Request) -> Draft:
    text = f"without {option}"
    # What stands within the chunks is not left out by leaving out an option.
    within = option == "--exclusive" or option.startswith("place=")
    way = rset_option(changed) if changed.chunks and within else ""
    return Draft(option, 200, _with(spec, changed), text, way or text)


def _without_features(spec: JobSpec, request: Request, choices: Choices) -> Iterator[Draft]:
    """Without each feature in turn, and without all of them; types of devices are no features here."""
    typed = {f"{name}:{kind}" for name, kind in _asked_types(request)}
    every = terms(request.constraint)
    own = [term for term in every if term not in typed]
    of_chunks = {term for chunk in request.chunks for term in terms(chunk.constraint)} - typed
    found = dict.fromkeys([*own, *sorted(of_chunks)])
    for term in sorted(found, key=lambda term: -choices.outside(spec.partition, term))[:TERMS_MAX]:
        if own == [term] and term not in of_chunks:
            continue
        changed = _retyped(request, term, "")
        rest = [other for other in own if other != term]
        option = rset_option(changed) if term in of_chunks else _less_constrained(changed, rest)
        yield Draft("--constraint", 200, _with(spec, changed), f"without {term}", option or f"without {term}")
    if own:
        changed = replace(request, constraint="&".join([term for term in every if term in typed]))
        option = _less_constrained(changed, [])
        yield Draft("--constraint", 250, _with(spec, changed), "without --constraint", option)


def _less_constrained(changed: Request, rest: list[str]) -> str:
    """The request with another constraint: features may have come with the chunks or beside them; device types remain."""
    option = constraint_option(rest)
    way = _typed_option(changed) if changed.chunks or _asked_types(changed) else ""
    return f"{way}, {option}" if way else option


# ---- together ----


def _with(spec: JobSpec, request: Request) -> JobSpec:
    return replace(spec, components=(request, *spec.components[1:]))


def _with_item(named: tuple[tuple[str, int], ...], at: int, items: int) -> tuple[tuple[str, int], ...]:
    return (*named[:at], (named[at][0], items), *named[at + 1 :])


def _fewer(asked: int, amounts: Sequence[int] | None = None) -> Sequence[int]:
    """Smaller amounts, but not uselessly small, out of the given ones or of all."""
    every = range(max(1, -(-asked // LESS_MIN)), asked)
    return every if amounts is None else sorted({amount for amount in amounts if amount in every})


def _less_memory(asked_mib: int, amounts_mib: Sequence[int] | None) -> Sequence[int]:
    """The given amounts below the requested one, or eighths of it."""
    if amounts_mib is None:
        amounts_mib = [max(1, asked_mib * eighths // 8) for eighths in range(1, 8)]
    return sorted({mib for mib in amounts_mib if asked_mib <= mib * LESS_MIN and 0 < mib < asked_mib})


def _given_up(left: int, asked: int) -> int:
    return 1000 - left * 1000 // asked
