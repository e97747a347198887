"""What else a waiting job could ask for to start earlier: less time, fewer nodes or tasks, less memory, other nodes (C-49).

Each alternative that is given was planned, with all rules, beside everything that is booked, and would be accepted if it
were submitted. Amounts are searched by bisection: who asks for less never starts later. Invariant: every start told is
earlier than the job's own by a useful amount.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from eslurm.core.job.model import JobSpec
from eslurm.core.job.request import Request
from eslurm.core.plan.search import Start
from eslurm.core.plan.usage import length_words
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.words import counted

ALTERNATIVES_MAX: Final = 3
OF_ONE_KIND_MAX: Final = 2
PARTITIONS_MAX: Final = 8
TRIES_MAX: Final = 60
"""Plans made for one job: what is not found by then is not told."""
GAIN_MIN_US: Final = 60_000_000
GAIN_SHARE: Final = 10
"""A start is worth telling when it spares a tenth of the wait, and a minute at least."""
LESS_MIN: Final = 10
"""A tenth of what was asked for is the least that is offered."""
SECOND_US: Final = 1_000_000
MIB_GRAIN: Final = 256
"""Who asks for less memory than this is not kept waiting by it."""
TIME_GRAINS: Final = ((1, 600), (60, 3600), (300, 6 * 3600), (900, 86_400), (3600, 0))
"""(seconds by which less time is offered, for time limits up to so many seconds)."""

Plan: TypeAlias = Callable[[JobSpec], Start | None]
"""The first start of such a job beside all that is booked."""
Admit: TypeAlias = Callable[[JobSpec], JobSpec | None]
"""The spec as it would be accepted now; None: it would be refused."""


class Alternative(msgspec.Struct, frozen=True, gc=False):
    """`text` says what is different, `option` how to ask for it; it would start at `start_us` on `nodes` nodes."""

    text: str
    option: str
    start_us: int
    nodes: int
    spec: JobSpec


class _Draft(msgspec.Struct, frozen=True, gc=False):
    """One changed job. `kind` is what was changed; `cost`, in thousandths, how much of it is given up."""

    kind: str
    cost: int
    spec: JobSpec
    text: str
    option: str


class _Found(msgspec.Struct, frozen=True, gc=False):
    draft: _Draft
    start: Start
    step: int = 0


class _Bench:
    """Plans drafts and counts them."""

    def __init__(self, plan: Plan, now_us: int, current_us: int) -> None:
        self._plan = plan
        self._left = TRIES_MAX
        wait_us = max(0, current_us - now_us)
        # Of a job without any start every start is worth telling.
        gain_us = max(GAIN_MIN_US, wait_us // GAIN_SHARE) if current_us < INFINITY_US else 1
        self.latest_us = current_us - gain_us

    def start(self, draft: _Draft) -> Start | None:
        """Its first start if that is early enough."""
        if self._left <= 0:
            return None
        self._left -= 1
        found = self._plan(draft.spec)
        return found if found is not None and found.at_us <= self.latest_us else None


_Sliced: TypeAlias = Generator[None, None, list[_Found]]


def alternatives(
    spec: JobSpec,
    current_us: int,
    now_us: int,
    plan: Plan,
    admit: Admit,
    partitions: Iterable[str],
    memories_mib: Sequence[int] | None = None,
) -> Generator[None, None, list[Alternative]]:
    """Up to three ways to start earlier than `current_us` (`INFINITY_US`: not at all as it is), the best first.

    `partitions` are the others that start jobs; `memories_mib` the amounts of memory that are worth trying (None: any),
    by node or by core as the job asks for it.
    """
    bench = _Bench(plan, now_us, current_us)
    if bench.latest_us < now_us:
        return []
    found: list[_Found] = []
    for scale in _scales(spec, memories_mib):
        found += yield from _search(bench, scale)
    for draft in _singles(spec, partitions):
        start = bench.start(draft)
        yield
        if start is not None:
            found.append(_Found(draft, start))
    return (yield from _chosen(bench, found, admit))


def _chosen(bench: _Bench, found: list[_Found], admit: Admit) -> Generator[None, None, list[Alternative]]:
    """The best that would be accepted, each planned once more as it would be then."""
    chosen: list[Alternative] = []
    kinds: dict[str, int] = {}
    told: set[tuple[str, int]] = set()
    for one in sorted(found, key=lambda one: (one.start.at_us, one.draft.cost)):
        draft = one.draft
        if kinds.get(draft.kind, 0) == OF_ONE_KIND_MAX or (draft.kind, one.start.at_us) in told:
            continue
        admitted = admit(draft.spec)
        yield
        if admitted is None:
            continue
        start: Start | None = one.start
        if admitted != draft.spec:
            start = bench.start(replace(draft, spec=admitted))
            yield
        if start is None:
            continue
        told.add((draft.kind, start.at_us))
        kinds[draft.kind] = kinds.get(draft.kind, 0) + 1
        chosen.append(Alternative(draft.text, draft.option, start.at_us, len(start.chosen), admitted))
        if len(chosen) == ALTERNATIVES_MAX:
            break
    return sorted(chosen, key=lambda one: one.start_us)


# ---- amounts ----


class _Scale(msgspec.Struct, frozen=True):
    """Steps from `low` to `high`, each more than the one before; the job asks for more than `high`."""

    low: int
    high: int
    make: Callable[[int], _Draft]


def _search(bench: _Bench, scale: _Scale) -> _Sliced:
    """The most that starts as early as the least does, and the most that starts usefully earlier than now."""
    if scale.high < scale.low:
        return []
    least = scale.make(scale.low)
    start = bench.start(least)
    yield
    if start is None:
        return []
    first = yield from _largest(bench, scale, _Found(least, start, scale.low), start.at_us)
    if first.step == scale.high:
        return [first]
    most = yield from _largest(bench, scale, first, bench.latest_us)
    return [first] if most.step == first.step else [first, most]


def _largest(bench: _Bench, scale: _Scale, known: _Found, latest_us: int) -> Generator[None, None, _Found]:
    """The largest step that starts by `latest_us`, as the known one does."""
    high = scale.high
    while known.step < high:
        middle = (known.step + high + 1) // 2
        draft = scale.make(middle)
        start = bench.start(draft)
        yield
        if start is not None and start.at_us <= latest_us:
            known = _Found(draft, start, middle)
        else:
            high = middle - 1
    return known


def _scales(spec: JobSpec, memories_mib: Sequence[int] | None) -> Iterator[_Scale]:
    if spec.time_limit_s:
        yield _time_scale(spec)
    request = spec.components[0]
    if not request.chunks:
        if request.nodes_min > 1:
            yield _node_scale(spec, request)
        elif request.tasks > 1 and not request.nodes_min:
            yield _task_scale(spec, request)
        if request.memory_per_node_mib > MIB_GRAIN or request.memory_per_cpu_mib > MIB_GRAIN:
            yield _memory_scale(spec, request, memories_mib)


def _time_scale(spec: JobSpec) -> _Scale:
    limit_s = spec.time_limit_s
    grain_s = next(grain_s for grain_s, up_to_s in TIME_GRAINS if limit_s <= up_to_s or not up_to_s)

    def make(step: int) -> _Draft:
        less_s = step * grain_s
        text = f"{length_words((limit_s - less_s) * SECOND_US)} less"
        draft = replace(spec, time_limit_s=less_s)
        return _Draft("time", _given_up(less_s, limit_s), draft, text, f"--time {_clock(less_s)}")

    return _Scale(max(1, -(-limit_s // (grain_s * LESS_MIN))), (limit_s - 1) // grain_s, make)


def _node_scale(spec: JobSpec, request: Request) -> _Scale:
    nodes, tasks = request.nodes_min, request.tasks
    # Tasks that were dealt out evenly stay so many on each node.
    per_node = tasks // nodes if tasks % nodes == 0 and tasks > 1 else 0

    def make(step: int) -> _Draft:
        most = step if request.nodes_max == nodes else request.nodes_max
        changed = replace(request, nodes_min=step, nodes_max=most, tasks=per_node * step or tasks)
        option = f"--nodes {step}" if most == step else f"--nodes {step}-{most}"
        if per_node:
            option += f" --ntasks {per_node * step}"
        text = f"{counted(step, 'node')} instead of {nodes}"
        return _Draft("nodes", _given_up(step, nodes), _with(spec, changed), text, option)

    low = max(1, -(-nodes // LESS_MIN), len(request.include))
    return _Scale(low, nodes - 1, make)


def _task_scale(spec: JobSpec, request: Request) -> _Scale:
    tasks = request.tasks

    def make(step: int) -> _Draft:
        text = f"{counted(step, 'task')} instead of {tasks}"
        changed = _with(spec, replace(request, tasks=step))
        return _Draft("tasks", _given_up(step, tasks), changed, text, f"--ntasks {step}")

    return _Scale(max(1, -(-tasks // LESS_MIN)), tasks - 1, make)


def _memory_scale(spec: JobSpec, request: Request, amounts_mib: Sequence[int] | None) -> _Scale:
    """The given amounts below what was asked for, or eighths of it."""
    is_node = request.memory_per_node_mib > 0
    asked_mib = request.memory_per_node_mib if is_node else request.memory_per_cpu_mib
    if amounts_mib is None:
        amounts_mib = [max(1, asked_mib * eighths // 8) for eighths in range(1, 8)]
    less_mib = sorted({mib for mib in amounts_mib if 0 < mib < asked_mib})

    def make(step: int) -> _Draft:
        mib = less_mib[step - 1]
        name = "memory_per_node_mib" if is_node else "memory_per_cpu_mib"
        changed = _with(spec, replace(request, **{name: mib}))
        text = f"{mib} MiB of memory a {'node' if is_node else 'core'} instead of {asked_mib}"
        option = f"--{'mem' if is_node else 'mem-per-cpu'} {mib}M"
        return _Draft("memory", _given_up(mib, asked_mib), changed, text, option)

    return _Scale(1, len(less_mib), make)


# ---- all or nothing ----


def _singles(spec: JobSpec, partitions: Iterable[str]) -> Iterator[_Draft]:
    request = spec.components[0]
    for name in list(partitions)[:PARTITIONS_MAX]:
        yield _Draft(
            f"partition {name}",
            100,
            replace(spec, partition=name),
            f"in partition {name}",
            f"--partition {name}",
        )
    if request.exclusive:
        yield _without(spec, request, "--exclusive", exclusive=False)
    if request.constraint:
        yield _without(spec, request, "--constraint", constraint="")
    if request.include:
        yield _without(spec, request, "--nodelist", include=())
    if request.exclude:
        yield _without(spec, request, "--exclude", exclude=())
    if spec.reservation:
        text = "without --reservation"
        yield _Draft("--reservation", 300, replace(spec, reservation=""), text, text)


def _without(spec: JobSpec, request: Request, option: str, **changes: object) -> _Draft:
    text = f"without {option}"
    return _Draft(option, 200, _with(spec, replace(request, **changes)), text, text)


def _with(spec: JobSpec, request: Request) -> JobSpec:
    return replace(spec, components=(request, *spec.components[1:]))


def _given_up(left: int, asked: int) -> int:
    return 1000 - left * 1000 // asked


def _clock(seconds: int) -> str:
    """As `--time` reads it: `4:00:00`, `1-12:00:00`."""
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    clock = f"{hour}:{minute:02d}:{second:02d}"
    return f"{days}-{clock}" if days else clock
