"""Submission of packs (D-04, D-05): each member's place, and what no pack may ask for.

Invariant: a refusal names the part of the pack, the value and the way out. Parts are counted from 0, as those of one job.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from msgspec.structs import replace

from eslurm.core.control.accounts.submission import has_rules, never_together
from eslurm.core.model.job import JobSpec
from eslurm.core.model.messages import RefusalCode, Refused, SubmitJobs
from eslurm.core.model.pack import PackDraft, PackPlace
from eslurm.core.model.parts import partition_of, partitions_of
from eslurm.core.model.request_limits import PACK_DELAY_MAX_S, PACK_MEMBERS_MAX
from eslurm.core.model.units import SECOND_US
from eslurm.core.plan.placement.beside import FIRST_MAX
from eslurm.core.plan.placement.feasible_parts import feasible_pack
from eslurm.core.resources.ledger import Ledger
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.state.cluster import State

TOGETHER_MAX = FIRST_MAX
"""Steps of the search for places of packs in one call, one for each member at least: up to 0.2 ms each."""


class Member:
    """One job of a pack in a submission: which of the call's jobs, and its place."""

    def __init__(self, draft: PackDraft, index: int, *, held: bool) -> None:
        self.draft = draft
        self.index = index
        self.delay_s = draft.delays_s[index]
        self._held = held
        self.spec: JobSpec | None = None

    def checked(self, spec: JobSpec) -> JobSpec:
        """The spec, held if any of the pack is. Raises `Refused` for what a member cannot ask for."""
        if spec.array is not None:
            raise _invalid(
                "--array: an array cannot be a part of a pack: submit it apart, with --dependency=after:JOB"
            )
        if spec.start_at_us:
            raise _invalid("--start-at: a pack has no fixed start: use --begin for its first part")
        if self.index and spec.dependencies:
            raise _invalid("--dependency: the delay says when a part begins: give it to the first part")
        if self.index and spec.begin_us:
            raise _invalid("--begin: the delay says when a part begins: give it to the first part")
        return replace(spec, held=True) if self._held and not spec.held else spec

    def place(self, job_ids: Sequence[int]) -> PackPlace:
        """Its place, by the ids of the call's jobs so far."""
        pack_id = job_ids[self.draft.first]
        count = len(self.draft.delays_s)
        delay_us = self.delay_s * SECOND_US
        return PackPlace(pack_id, self.index, count, delay_us, cancels=self.draft.cancels)


def members_of(message: SubmitJobs) -> dict[int, Member]:
    """The members of packs, by their numbers in the call. Raises `Refused` for a pack that is none."""
    found: dict[int, Member] = {}
    for draft in message.packs:
        first, count = draft.first, len(draft.delays_s)
        if not 2 <= count <= PACK_MEMBERS_MAX:
            raise _invalid(f"pack: it has {count} parts: give 2 to {PACK_MEMBERS_MAX}, or submit a job")
        if first < 0 or first + count > len(message.specs):
            raise _invalid(
                f"pack: its parts are jobs {first} to {first + count - 1} of a call of {len(message.specs)}"
            )
        if draft.delays_s[0]:
            raise _invalid(
                f"part 0: --delay: {draft.delays_s[0]} s: the others' delays count from its start: give 0"
            )
        held = any(spec.held for spec in message.specs[first : first + count])
        for index, delay_s in enumerate(draft.delays_s):
            if first + index in found:
                raise _invalid(f"pack: job {first + index} of the call is in two packs")
            if not 0 <= delay_s <= PACK_DELAY_MAX_S:
                raise _invalid(f"part {index}: --delay: {delay_s} s is not within 0..{PACK_DELAY_MAX_S}")
            found[first + index] = Member(draft, index, held=held)
    return found


@contextmanager
def naming(member: Member) -> Iterator[None]:
    """Refuse a member by its number in the pack."""
    try:
        yield
    except Refused as refused:
        raise Refused(refused.code, f"part {member.index}: {refused.text}") from None


def check_delay(state: State, spec: JobSpec, delay_s: int, now_us: int) -> None:
    """Raise `Refused` when its partitions or the cluster allow less, or its deadline is before its earliest end."""
    allowed = [(f"partition {name}", state.partitions[name].delay_max_s) for name in partitions_of(spec)]
    for where, most_s in (*allowed, ("the cluster", state.config.delay_max_s)):
        if most_s and delay_s > most_s:
            raise Refused(
                RefusalCode.INFEASIBLE,
                f"--delay: {delay_s} s is more than {where} allows ({most_s} s): ask for less, or submit a job of its own",
            )
    if spec.deadline_us and spec.deadline_us <= now_us + (delay_s + spec.time_limit_s) * SECOND_US:
        raise Refused(
            RefusalCode.INFEASIBLE,
            f"--deadline: a job of {spec.time_limit_s} s that begins {delay_s} s after the first cannot have ended by then: "
            "give a later one",
        )


def check_together(state: State, members: Mapping[int, Member], now_us: int, empty: Ledger) -> None:
    """Raise `Refused` when parts of a pack, each of which fits alone, never fit beside each other with their delays."""
    by_pack: dict[int, list[Member]] = {}
    for member in members.values():
        by_pack.setdefault(member.draft.first, []).append(member)
    checked: set[tuple[object, ...]] = set()
    left = TOGETHER_MAX
    for pack in by_pack.values():
        specs = [member.spec for member in pack if member.spec is not None]
        delays_s = [member.delay_s for member in pack]
        asked = tuple([(delay_s, _asked(spec)) for delay_s, spec in zip(delays_s, specs, strict=True)])
        if asked not in checked:
            left -= check_pack(state, specs, delays_s, now_us, empty, left)
            checked.add(asked)


def _asked(spec: JobSpec) -> tuple[object, ...]:
    who = (spec.user.uid, spec.account, spec.qos, spec.reservation)
    return (spec.components, spec.partition, spec.parts, spec.time_limit_s, who)


def check_pack(
    state: State,
    specs: Sequence[JobSpec],
    delays_s: Sequence[int],
    now_us: int,
    empty: Ledger,
    steps_max: int = TOGETHER_MAX,
) -> int:
    """The steps of the search for its place. Raises `Refused` when these members of a pack never fit beside each other."""
    groups = overlapping(
        [(delay_s, spec.time_limit_s) for delay_s, spec in zip(delays_s, specs, strict=True)]
    )
    # One that runs alone fits, as it was accepted for itself.
    found = [
        (member, part)
        for member in sorted({member for group in groups for member in group})
        for part in range(len(specs[member].components))
    ]
    if not found:
        return 0
    stays_us = [_stay_us(delay_s, spec) for delay_s, spec in zip(delays_s, specs, strict=True)]
    problem, steps = feasible_pack(
        [specs[member].components[part] for member, part in found],
        [state.partition_views[partition_of(specs[member], part)] for member, part in found],
        [stays_us[member] for member, _ in found],
        [[at for at, (member, _) in enumerate(found) if member in group] for group in groups],
        empty,
        [member for member, _ in found],
        steps_max,
    )
    if problem is not None and steps >= steps_max and steps_max < TOGETHER_MAX:
        raise _invalid(
            "pack: too many parts run at the same time to check: submit the packs in several calls"
        )
    reason = problem.reason if problem is not None else ""
    for group in groups:
        reason = reason or _against_rules(state, specs, group, now_us)
    if reason:
        text = f"{reason}; with these delays and time limits they run at the same time"
        raise Refused(RefusalCode.INFEASIBLE, text)
    return steps


def _stay_us(delay_s: int, spec: JobSpec) -> tuple[int, int]:
    """Its interval from the start of the pack on, without an end where it has no time limit."""
    start_us = delay_s * SECOND_US
    return start_us, start_us + spec.time_limit_s * SECOND_US if spec.time_limit_s else INFINITY_US


def _against_rules(state: State, specs: Sequence[JobSpec], group: Collection[int], now_us: int) -> str:
    """The reason why limits and pools never allow these members beside each other; empty: none is known."""
    if not has_rules(state):
        return ""
    never = never_together(state, [specs[member] for member in group], now_us)
    numbers = sorted(group)
    return f"parts {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}: {never}" if never else ""


def overlapping(stays: Sequence[tuple[int, int]]) -> list[tuple[int, ...]]:
    """The groups of members that run at the same time and are not all in another group, the largest first.

    `stays` are (delay, time limit) in seconds; a limit of 0 is none.
    """
    groups: list[frozenset[int]] = []
    for at_s in sorted({delay_s for delay_s, _ in stays}):
        group = frozenset(
            member
            for member, (delay_s, limit_s) in enumerate(stays)
            if delay_s <= at_s and (not limit_s or at_s < delay_s + limit_s)
        )
        groups = [one for one in groups if not one <= group]
        groups.append(group)
    return [tuple(sorted(one)) for one in sorted(groups, key=len, reverse=True) if len(one) > 1]


def _invalid(text: str) -> Refused:
    return Refused(RefusalCode.INVALID, text)
