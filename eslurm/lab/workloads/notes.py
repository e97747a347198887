"""Rules without any effect in a replay, with the reason: no written rule is ignored in silence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from eslurm.core.model.accounts import (
    EVERYONE,
    Account,
    Defaults,
    FreePool,
    Limit,
    Policy,
    Reservation,
    User,
    kind_of,
)
from eslurm.core.model.dates import format_moment
from eslurm.core.resources.windows import Calendar
from eslurm.lab.workloads.core_driver import CoreDriver, user_of
from eslurm.lab.workloads.rules import Rules
from eslurm.lab.workloads.workload import Workload

NAMED_MAX: Final = 5
_PLURAL: Final = {"user": "users", "group": "groups", "account": "accounts", "qos": "qos"}


def notes_of(rules: Rules, policy: str, workload: Workload) -> tuple[str, ...]:
    """Sentences about the rules for this log. Raises `RulesError` for rules that the core refuses."""
    first_us, last_us = workload.jobs[0].submit_us, workload.jobs[-1].submit_us
    seat = CoreDriver(rules, policy, first_us)
    policies = [one for named in seat.policies.values() for one in named.values()]
    found = [*_out_of_time(policies, seat.calendar, first_us, last_us + 1), *_strangers(policies, workload)]
    courses = [one.name for one in policies if isinstance(one, Reservation) and not one.maintenance]
    if courses:
        found.append(f"no job of a log names a reservation: what {_few(courses)} keeps stays empty")
    return tuple(found)


def _out_of_time(
    policies: Sequence[Policy], calendar: Calendar, from_us: int, until_us: int
) -> Iterator[str]:
    first, last = (format_moment(at_us, calendar.offset_s) for at_us in (from_us, until_us))
    for one in policies:
        if isinstance(one, Limit | FreePool | Reservation) and not calendar.windows(
            one.validity, from_us, until_us
        ):
            yield f"{kind_of(one)} {one.name} is never in force from the first submission ({first}) to the last ({last})"


def _strangers(policies: Sequence[Policy], workload: Workload) -> Iterator[str]:
    for kind, known in _there(policies, workload).items():
        named = dict.fromkeys(name for one in policies for name in _named(one, kind) if name != EVERYONE)
        missing = [f"g{name}" if kind == "group" else name for name in named if name not in known]
        if missing:
            yield f"the records name {kind} {_few(missing)}: no job of the log is theirs"


def _there(policies: Sequence[Policy], workload: Workload) -> Mapping[str, set[str]]:
    """Possible consumers, by kind; users' own accounts and QOS count, and an account's ancestors."""
    found: dict[str, set[str]] = {kind: set() for kind in _PLURAL}
    for job in workload.jobs:
        user = user_of(job)
        found["user"].add(user.name)
        found["group"].add(str(user.gid))
        found["account"].add(job.account)
        found["qos"].add(job.qos)
    for one in policies:
        match one:
            case User():
                found["account"].update(one.accounts)
                found["qos"].update(one.qos)
            case Account():
                found["account"].add(one.parent)
            case Defaults():
                for option, value in (*one.values, *one.forced):
                    if option in ("account", "qos"):
                        found[option].add(value)
            case _:
                pass
    return found


def _named(policy: Policy, kind: str) -> Iterator[str]:
    match policy:
        case Limit() | Defaults() if policy.kind == kind:
            yield policy.consumer
        case User() if kind == "user":
            yield policy.name
        case FreePool():
            for way in policy.access:
                yield from getattr(way, _PLURAL[kind])
        case _:
            return


def _few(names: Sequence[str]) -> str:
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
