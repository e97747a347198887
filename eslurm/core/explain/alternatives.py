"""Alternative requests that would let a waiting job start earlier (C-49).

Each given alternative was planned, with all rules, beside all bookings, and would be accepted as an update of the job.
Amounts are searched by bisection: first the least of each, then, of those that help, the most that still does. Invariants:
every given start is earlier than the job's own by a useful amount; at most `TRIES_MAX` plans are made, of packs fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from itertools import islice
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from eslurm.core.explain.request_variants import Choices, Draft, Scale, scales, singles
from eslurm.core.model.job import JobSpec
from eslurm.core.model.option_text import update_words
from eslurm.core.plan.profile.search import Start
from eslurm.core.resources.timeline import INFINITY_US

ALTERNATIVES_MAX: Final = 3
OF_ONE_KIND_MAX: Final = 2
TRIES_MAX: Final = 100
"""Plans made for one job: what is not found by then is not told."""
SCALES_MAX: Final = 24
"""Amounts of which the least is tried."""
CHECKS_MAX: Final = 50
"""Drafts of a group of which it is asked whether they would be accepted."""
AGAIN_MAX: Final = 2 * ALTERNATIVES_MAX
"""Plans kept back for what would be accepted only a little otherwise."""
GAIN_MIN_US: Final = 60_000_000
GAIN_SHARE: Final = 10
"""A start is worth telling when it spares a tenth of the wait, and a minute at least."""

Plan: TypeAlias = Callable[[JobSpec], Generator[None, None, Start | None]]
"""The first start of such a job beside all that is booked, in slices."""
Admit: TypeAlias = Callable[[JobSpec], JobSpec | None]
"""The spec as it would be accepted in the job's place; None: it would be refused."""


class Alternative(msgspec.Struct, frozen=True, gc=False):
    """`text` is the difference, `option` the option for it; the job would start at `start_us` on `nodes` nodes.

    `update` are the arguments of `esctl update job N` that change a waiting job so; of a `part` those of `N+part`. `job_id`
    is the job of a pack that changes; 0: the job itself.
    """

    text: str
    option: str
    start_us: int
    nodes: int
    spec: JobSpec
    update: str = ""
    part: int = -1
    job_id: int = 0


class _Found(msgspec.Struct, frozen=True, gc=False):
    """A draft that helps; `step` is its index in the scale's values."""

    draft: Draft
    start: Start
    step: int = 0


class _Bench:
    """Plans drafts of `spec` and counts them."""

    def __init__(
        self, spec: JobSpec, plan: Plan, admit: Admit, now_us: int, current_us: int, tries: int
    ) -> None:
        self._spec = spec
        self._plan = plan
        self._admit = admit
        self.tries_left = tries - AGAIN_MAX
        wait_us = max(0, current_us - now_us)
        # Of a job without any start every start is worth telling.
        gain_us = max(GAIN_MIN_US, wait_us // GAIN_SHARE) if current_us < INFINITY_US else 1
        self.latest_us = current_us - gain_us

    def start(self, draft: Draft) -> Generator[None, None, Start | None]:
        """The draft's first start if it is early enough."""
        if self.tries_left <= 0:
            return None
        self.tries_left -= 1
        found = yield from self._plan(draft.spec)
        yield
        return found if found is not None and found.at_us <= self.latest_us else None

    def admitted(self, draft: Draft) -> Generator[None, None, Draft | None]:
        """The draft as it would be accepted; None when it would be refused, or has no option."""
        update = draft.update or update_words(self._spec, draft.spec)
        spec = self._admit(draft.spec) if update else None
        yield
        return replace(draft, spec=spec, update=update) if spec is not None else None


_Sliced: TypeAlias = Generator[None, None, list[_Found]]


def alternatives(
    spec: JobSpec,
    current_us: int,
    now_us: int,
    plan: Plan,
    admit: Admit,
    choices: Choices,
    tries: int = TRIES_MAX,
) -> Generator[None, None, list[Alternative]]:
    """Up to three ways to start earlier than `current_us` (`INFINITY_US`: no start as it is), the best first.

    At most `tries` plans are made.
    """
    bench = _Bench(spec, plan, admit, now_us, current_us, tries)
    if bench.latest_us < now_us:
        return []
    helpful = yield from _probed(bench, spec, choices)
    found = yield from _others(bench, spec, choices)
    for scale, least in sorted(helpful, key=lambda one: one[1].start.at_us):
        found += yield from _search(bench, scale, least)
    bench.tries_left += AGAIN_MAX
    return (yield from _chosen(bench, found))


def _probed(
    bench: _Bench, spec: JobSpec, choices: Choices
) -> Generator[None, None, list[tuple[Scale, _Found]]]:
    """The scales whose least amount helps."""
    found: list[tuple[Scale, _Found]] = []
    for scale in islice((one for one in scales(spec, choices) if one.values), SCALES_MAX):
        least = scale.make(scale.values[0])
        start = yield from bench.start(least)
        if start is not None:
            found.append((scale, _Found(least, start)))
    return found


def _others(bench: _Bench, spec: JobSpec, choices: Choices) -> _Sliced:
    """Acceptable drafts with one other difference; a bounded number of each group."""
    found: list[_Found] = []
    for group in singles(spec, choices):
        tries_left = group.tries_max
        for draft in islice(group.drafts, CHECKS_MAX):
            if not tries_left:
                break
            admitted = yield from bench.admitted(draft)
            if admitted is None:
                continue
            tries_left -= 1
            start = yield from bench.start(admitted)
            if start is not None:
                found.append(_Found(admitted, start))
    return found


def _chosen(bench: _Bench, found: list[_Found]) -> Generator[None, None, list[Alternative]]:
    """The best acceptable drafts, each planned once more where admission has changed it."""
    chosen: list[Alternative] = []
    kinds: dict[str, int] = {}
    told: set[tuple[str, int]] = set()
    for one in sorted(found, key=lambda one: (one.start.at_us, one.draft.cost)):
        draft = one.draft
        if kinds.get(draft.kind, 0) == OF_ONE_KIND_MAX or (draft.kind, one.start.at_us) in told:
            continue
        admitted = yield from bench.admitted(draft)
        if admitted is None:
            continue
        start: Start | None = one.start
        if admitted.spec != draft.spec:
            start = yield from bench.start(admitted)
        if start is None:
            continue
        told.add((draft.kind, start.at_us))
        kinds[draft.kind] = kinds.get(draft.kind, 0) + 1
        nodes = len(start.chosen)
        chosen.append(
            Alternative(draft.text, draft.option, start.at_us, nodes, admitted.spec, admitted.update)
        )
        if len(chosen) == ALTERNATIVES_MAX:
            break
    return sorted(chosen, key=lambda one: one.start_us)


# ---- amounts ----


def _search(bench: _Bench, scale: Scale, least: _Found) -> _Sliced:
    """The most that starts as early as the least does, and the most that starts usefully earlier than now."""
    first = yield from _largest(bench, scale, least, least.start.at_us)
    if first.step == len(scale.values) - 1:
        return [first]
    most = yield from _largest(bench, scale, first, bench.latest_us)
    return [first] if most.step == first.step else [first, most]


def _largest(bench: _Bench, scale: Scale, known: _Found, latest_us: int) -> Generator[None, None, _Found]:
    """The largest step that starts by `latest_us`, as the known one does."""
    high = len(scale.values) - 1
    while known.step < high:
        middle = (known.step + high + 1) // 2
        draft = scale.make(scale.values[middle])
        start = yield from bench.start(draft)
        if start is not None and start.at_us <= latest_us:
            known = _Found(draft, start, middle)
        else:
            high = middle - 1
    return known
