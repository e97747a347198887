"""Checks of a reservation (C-41): a time, existing nodes, and no overlap with other reservations.

Invariant: two reservations never have a node at the same time, unless one of them is for maintenance; and no running job
still holds a reserved node when the reservation begins, unless it is flagged `ignore_running`.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from eslurm.core.model.accounts import Policy, Reservation, Validity
from eslurm.core.model.dates import format_moment
from eslurm.core.model.hostlist import fold
from eslurm.core.model.messages import PolicyChange, RefusalCode, Refused, ReservedNodes, ReservedTime
from eslurm.core.model.units import SECOND_US
from eslurm.core.resources import bits
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.resources.windows import Window
from eslurm.core.state.boundaries import windows_ahead
from eslurm.core.state.cluster import State, attempts_of

IGNORE_RUNNING = "ignore_running"


def settled(
    state: State, reservation: Reservation, others: Iterable[Policy], change: PolicyChange, now_us: int
) -> Reservation:
    """The reservation with its time and its nodes. Raises `Refused` naming the obstacle, and its end."""
    where = f"reservation {reservation.name}"
    if change.time is not None:
        is_new = change.action != "modify"
        validity = _timed(where, reservation.validity, change.time, now_us, is_new=is_new)
        reservation = replace(reservation, validity=validity)
    validity = reservation.validity
    if not validity.cron and not validity.until_us:
        raise Refused(RefusalCode.INVALID, f"{where}: has no end: give end= or duration=")
    windows = windows_ahead(state.calendar, validity, now_us)
    if not windows:
        raise Refused(RefusalCode.INVALID, f"{where}: is never in force: give another time")
    rivals = [
        (other, other_windows)
        for other in others
        if isinstance(other, Reservation)
        and not (other.maintenance or reservation.maintenance)
        and _overlap(windows, other_windows := windows_ahead(state.calendar, other.validity, now_us))
    ]
    if change.choose is not None:
        taken = {name for other, _ in rivals for name in other.nodes}
        chosen = _choose(state, where, reservation, change.choose, taken, windows[0][0])
        return replace(reservation, nodes=chosen)
    _check_nodes(state, where, reservation)
    for other, other_windows in rivals:
        theirs = set(other.nodes)
        shared = [name for name in reservation.nodes if name in theirs]
        if shared:
            start_us = _overlap(windows, other_windows)
            raise Refused(
                RefusalCode.CONFLICT,
                f"{where}: reservation {other.name} has {fold(shared)} then, too (from {_at(state, start_us)}): "
                "take other nodes or another time",
            )
    if IGNORE_RUNNING not in reservation.flags:
        _check_running(state, where, reservation, _newly_taken(state, reservation), windows[0][0])
    return reservation


def _newly_taken(state: State, reservation: Reservation) -> list[str]:
    """Its nodes without those that are reserved already from the same beginning on."""
    before = state.policies["reservation"].get(reservation.name)
    if not isinstance(before, Reservation):
        return list(reservation.nodes)
    same_start = (before.validity.from_us, before.validity.cron) == (
        reservation.validity.from_us,
        reservation.validity.cron,
    )
    kept = set(before.nodes) if same_start else set()
    return [name for name in reservation.nodes if name not in kept]


def _timed(where: str, old: Validity, time: ReservedTime, now_us: int, *, is_new: bool) -> Validity:
    """The changed times, the rest as it was."""
    if old.cron:
        raise Refused(
            RefusalCode.INVALID,
            f"{where}: recurs by validity=cron(...): start, end and duration do not go with it",
        )
    if time.duration_s and time.end_us:
        raise Refused(RefusalCode.INVALID, f"{where}: end and duration exclude each other: give one")
    from_us = time.start_us or (now_us if is_new else old.from_us or now_us)
    until_us = time.end_us or (from_us + time.duration_s * SECOND_US if time.duration_s else 0)
    if not until_us and not is_new and old.until_us:
        # Moved as a whole: as long as before.
        until_us = from_us + old.until_us - old.from_us if old.from_us else old.until_us
    if not until_us:
        raise Refused(RefusalCode.INVALID, f"{where}: has no end: give end= or duration=")
    if until_us <= from_us:
        raise Refused(RefusalCode.INVALID, f"{where}: ends before it begins: give a later end")
    if until_us <= now_us:
        raise Refused(RefusalCode.INVALID, f"{where}: is over already: give a later end")
    return Validity(from_us, until_us)


def _check_nodes(state: State, where: str, reservation: Reservation) -> None:
    positions = state.ledger.topology.positions_by_name
    unknown = [name for name in reservation.nodes if name not in positions]
    if unknown:
        raise Refused(RefusalCode.INVALID, f"{where}: nodes: {fold(unknown)} do not exist: see esinfo -N")
    if not reservation.nodes:
        raise Refused(RefusalCode.INVALID, f"{where}: has no nodes: give nodes=cn[001-004], a number or all")


def _check_running(
    state: State, where: str, reservation: Reservation, names: list[str], start_us: int
) -> None:
    for name in names:
        job_id, until_us = _held_until(state, state.numbers[name], reservation.name)
        if until_us > start_us:
            end = "has no time limit" if until_us >= INFINITY_US else f"may run until {_at(state, until_us)}"
            raise Refused(
                RefusalCode.CONFLICT,
                f"{where}: job {job_id} on {name} {end}, the reservation begins at {_at(state, start_us)}: "
                f"begin later, take other nodes, or set it up over running jobs with flags={IGNORE_RUNNING}",
            )


def _held_until(state: State, number: int, own: str) -> tuple[int, int]:
    """The outside job that holds the node longest, and its end; (0, 0): none does."""
    held = [
        (attempt.until_us, job_id)
        for job_id in state.jobs_on.get(number, ())
        if state.jobs[job_id].spec.reservation != own
        for attempt in attempts_of(state.jobs[job_id])
        if number in attempt.held
    ]
    until_us, job_id = max(held, default=(0, 0))
    return job_id, until_us


def _choose(
    state: State, where: str, reservation: Reservation, wanted: ReservedNodes, taken: set[str], start_us: int
) -> tuple[str, ...]:
    """This many nodes, the soonest free ones first, equal ones in order."""
    topology = state.ledger.topology
    allowed = topology.everything
    words = []
    if wanted.partition:
        if wanted.partition not in state.partitions:
            known = ", ".join(sorted(state.partitions))
            raise Refused(
                RefusalCode.INVALID,
                f"{where}: partition: '{wanted.partition}' does not exist: use one of {known}",
            )
        allowed &= topology.partitions.get(wanted.partition, 0)
        words.append(f"in partition {wanted.partition}")
    if wanted.feature:
        allowed &= topology.mask_of_constraint(wanted.feature)
        words.append(f"with feature {wanted.feature}")
    candidates = [
        (_held_until(state, topology.numbers[position], reservation.name)[1], position)
        for position in bits.all_positions(allowed)
        if topology.names[position] not in taken and topology.numbers[position] not in state.removed
    ]
    if wanted.count:
        # Out of service counts as far away: such a node may not be back by then.
        usable = state.ledger.usable
        candidates.sort(key=lambda one: (not usable >> one[1] & 1, *one))
    ignores = IGNORE_RUNNING in reservation.flags
    fit = [position for until_us, position in candidates if ignores or until_us <= start_us]
    count = wanted.count or len(candidates)
    if len(fit) < count or not count:
        what = " ".join(["nodes", *words])
        raise Refused(
            RefusalCode.INFEASIBLE,
            f"{where}: {count or 'some'} {what} are wanted, {len(fit)} are free from {_at(state, start_us)} on: "
            f"take fewer, another time, or set it up over running jobs with flags={IGNORE_RUNNING}",
        )
    return tuple(topology.names[position] for position in sorted(fit[:count]))


def _overlap(one: list[Window], other: list[Window]) -> int:
    """The first instant within windows of both; 0: there is none."""
    at, other_at = 0, 0
    while at < len(one) and other_at < len(other):
        start_us = max(one[at][0], other[other_at][0])
        if start_us < min(one[at][1], other[other_at][1]):
            return start_us
        if one[at][1] <= other[other_at][1]:
            at += 1
        else:
            other_at += 1
    return 0


def _at(state: State, at_us: int) -> str:
    return format_moment(at_us, state.calendar.offset_s)
