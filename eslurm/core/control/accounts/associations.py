"""Associations of a submission: the job's account, QOS and reservation, filled in and checked.

Records are binding: a user with a record uses the accounts and QOS listed there, an account or user whose validity is over
is locked (C-10). A user without a record is free, unless `ClusterConfig.accounts_enforced`. Operators may use everything
that exists and is not locked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from eslurm.core.model.accounts import Account, Qos, Reservation, User, Validity
from eslurm.core.model.dates import DAY_S, days_from_civil, format_moment
from eslurm.core.model.job import JobSpec, Principal
from eslurm.core.model.messages import RefusalCode, Refused
from eslurm.core.model.units import SECOND_US
from eslurm.core.state.boundaries import windows_ahead

if TYPE_CHECKING:
    from eslurm.core.state.cluster import State

LATEST_US = days_from_civil(10_000, 1, 1) * DAY_S * SECOND_US
"""Last date that can be shown, and last end of a job that can be represented."""


def associated(state: State, spec: JobSpec, now_us: int, *, operator: bool) -> JobSpec:
    """The spec with the user's default account and QOS. Raises `Refused` naming the option and the way out."""
    user = state.policies["user"].get(spec.user.name)
    assert user is None or isinstance(user, User)
    if user is None and state.config.accounts_enforced and not operator:
        raise Refused(
            RefusalCode.DENIED,
            f"user {spec.user.name} is not registered here: ask an administrator for "
            f"`esctl user add {spec.user.name} accounts=...`",
        )
    if user is not None:
        _check_open(state, f"user {user.name}", user.validity, now_us)
    account = spec.account or (user.accounts[0] if user is not None and user.accounts else "")
    qos = spec.qos or (user.qos[0] if user is not None and user.qos else "")
    _check_account(state, user, account, now_us, operator=operator)
    _check_qos(state, user, qos, operator=operator)
    if spec.reservation:
        _check_reservation(state, replace(spec, account=account), now_us)
    return replace(spec, account=account, qos=qos) if (account, qos) != (spec.account, spec.qos) else spec


def _check_open(state: State, what: str, validity: Validity, now_us: int) -> None:
    """Check that it is in force now: after its begin, before its end, and within its hours. Raises `Refused`."""
    if state.calendar.windows(validity, now_us, now_us + 1):
        return
    offset_s = state.calendar.offset_s
    if validity.until_us and validity.until_us <= now_us:
        when = f"is locked since {format_moment(validity.until_us, offset_s)}"
    elif validity.from_us > now_us:
        when = f"is locked until {format_moment(validity.from_us, offset_s)}"
    else:
        ahead = windows_ahead(state.calendar, validity, now_us)
        when = f"is locked until {format_moment(ahead[0][0], offset_s)}" if ahead else "is locked"
    raise Refused(RefusalCode.DENIED, f"{what} {when}: ask an administrator for a longer validity")


def _check_account(state: State, user: User | None, name: str, now_us: int, *, operator: bool) -> None:
    if not name:
        if state.config.accounts_enforced and not operator:
            raise Refused(RefusalCode.DENIED, "--account: none is given and the user has none: name one")
        return
    accounts = state.policies["account"]
    if user is not None and name not in user.accounts and not operator:
        those = f"use one of {', '.join(user.accounts)}" if user.accounts else "ask an administrator"
        raise Refused(RefusalCode.DENIED, f"--account: '{name}' is not one of user {user.name}'s: {those}")
    if name not in accounts and (state.config.accounts_enforced or (user is not None and not operator)):
        raise Refused(RefusalCode.INVALID, f"--account: '{name}' does not exist: see esctl account show")
    while isinstance(account := accounts.get(name), Account):
        _check_open(state, f"--account: '{name}'", account.validity, now_us)
        name = account.parent


def _check_qos(state: State, user: User | None, name: str, *, operator: bool) -> None:
    if not name:
        return
    known = state.policies["qos"]
    if name not in known:
        there = f"use one of {', '.join(sorted(known))}" if known else "leave it out, there is none"
        raise Refused(RefusalCode.INVALID, f"--qos: '{name}' does not exist: {there}")
    if user is not None and name not in user.qos and not operator:
        those = f"use one of {', '.join(user.qos)}" if user.qos else "leave it out"
        raise Refused(RefusalCode.DENIED, f"--qos: '{name}' is not open to user {user.name}: {those}")


def _check_reservation(state: State, spec: JobSpec, now_us: int) -> None:
    found = state.policies["reservation"].get(spec.reservation)
    if not isinstance(found, Reservation):
        raise Refused(
            RefusalCode.INVALID,
            f"--reservation: '{spec.reservation}' does not exist: see esctl reservation show",
        )
    if found.maintenance:
        raise Refused(
            RefusalCode.DENIED,
            f"--reservation: '{found.name}' is for maintenance, no job runs there: leave it out",
        )
    if not windows_ahead(state.calendar, found.validity, now_us):
        ended = format_moment(found.validity.until_us, state.calendar.offset_s)
        raise Refused(
            RefusalCode.INFEASIBLE,
            f"--reservation: '{found.name}' ended on {ended}: leave it out or name another",
        )
    if not is_open_to(found, spec.user, spec.account):
        raise Refused(
            RefusalCode.DENIED,
            f"--reservation: '{found.name}' is not open to user {spec.user.name}: ask whom it was made for",
        )


def is_open_to(reservation: Reservation, user: Principal, account: str) -> bool:
    """Check whether a user may submit into it: by name, group or account; open to all when it names none."""
    if not (reservation.users or reservation.groups or reservation.accounts):
        return True
    return (
        user.name in reservation.users
        or account in reservation.accounts
        or not {str(gid) for gid in (user.gid, *user.groups)}.isdisjoint(reservation.groups)
    )


def within_qos(state: State, spec: JobSpec, *, is_said: bool) -> JobSpec:
    """The spec within its QOS's longest time. Raises `Refused` when a given limit (`is_said`) is longer."""
    qos = state.policies["qos"].get(spec.qos)
    if not isinstance(qos, Qos) or not qos.time_limit_max_s:
        return spec
    if 0 < spec.time_limit_s <= qos.time_limit_max_s:
        return spec
    if not is_said or not spec.time_limit_s:
        return replace(spec, time_limit_s=qos.time_limit_max_s)
    raise Refused(
        RefusalCode.INFEASIBLE,
        f"--time: {spec.time_limit_s} s is more than QOS {qos.name} allows ({qos.time_limit_max_s} s): "
        "ask for less or use another QOS",
    )


def check_times(state: State, spec: JobSpec, now_us: int) -> None:
    """Check that a fixed start and a deadline can still be met (C-30). Raises `Refused`."""
    offset_s = state.calendar.offset_s
    for option, at_us in (
        ("--begin", spec.begin_us),
        ("--start-at", spec.start_at_us),
        ("--deadline", spec.deadline_us),
    ):
        if not 0 <= at_us < LATEST_US:
            raise Refused(
                RefusalCode.INVALID, f"{option}: {at_us} us is no time: give one before the year 10000"
            )
    if spec.start_at_us and spec.start_at_us <= now_us:
        at = format_moment(spec.start_at_us, offset_s)
        raise Refused(RefusalCode.INVALID, f"--start-at: {at} is over: give a later time, or none")
    if not spec.deadline_us:
        return
    earliest_us = max(now_us, spec.start_at_us, spec.begin_us)
    if spec.deadline_us <= earliest_us + spec.time_limit_s * SECOND_US:
        at = format_moment(spec.deadline_us, offset_s)
        raise Refused(
            RefusalCode.INFEASIBLE,
            f"--deadline: by {at} a job of {spec.time_limit_s} s cannot have ended: "
            "give a later deadline or a shorter --time",
        )
