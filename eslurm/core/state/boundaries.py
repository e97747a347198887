"""Instants at which policies come into force or expire: each triggers a new plan.

Invariant: while a policy begins or ends later than now, a timer of kind `policy` is set for no later than that. The
calendar knows these instants; beyond `LOOKOUT_US` the timer just asks again.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

from eslurm.core.model.accounts import FreePool, Limit, Policy, Reservation, Validity
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.resources.windows import HORIZON_US, STRETCH_US, Calendar, Window, merged

if TYPE_CHECKING:
    from eslurm.core.state.cluster import State

LOOKOUT_US: Final = 8 * 86_400 * 1_000_000
TIMER: Final = "policy"
WINDOWS_MAX: Final = 1_000


def arm(state: State, policy: Policy, now_us: int) -> None:
    """Set the timer of the policy's next boundary. Accounts and users matter to submissions only, not to plans."""
    if isinstance(policy, Limit | FreePool | Reservation):
        at_us = next_boundary_us(state, policy.validity, now_us)
        if at_us and (not state.policy_due_us or at_us < state.policy_due_us):
            state.policy_due_us = at_us
            heapq.heappush(state.timers, (at_us, TIMER, 0))


def next_boundary_us(state: State, validity: Validity, now_us: int) -> int:
    """The first instant after now at which it begins or ceases to be in force, or must be asked again; 0: never."""
    if validity.until_us and validity.until_us <= now_us:
        return 0
    if validity.from_us > now_us:
        return validity.from_us
    if not validity.cron:
        return validity.until_us
    ahead_us = now_us + LOOKOUT_US
    if validity.until_us:
        ahead_us = min(ahead_us, validity.until_us)
    windows = state.calendar.windows(validity, now_us, ahead_us)
    # They ascend: the first one begins, or ends.
    instants = [at_us for window in windows[:1] for at_us in window if now_us < at_us < ahead_us]
    return min(instants, default=ahead_us)


def set_calendar(state: State, calendar: Calendar) -> None:
    """Use this calendar for cron strings from now on."""
    state.calendar = calendar
    state.memos.clear()
    rearm(state, state.now_us)


def rearm(state: State, now_us: int) -> None:
    """Handle the timer: request a new plan, and set the next boundary of all policies."""
    state.policy_due_us = 0
    for kind in ("limit", "pool", "reservation"):
        for policy in state.policies[kind].values():
            arm(state, policy, now_us)
    state.want_plan()


def windows_ahead(calendar: Calendar, validity: Validity, now_us: int) -> list[Window]:
    """The windows from now on: all of them, or `HORIZON_US` or about `WINDOWS_MAX` of recurring ones."""
    if not validity.cron:
        return calendar.windows(validity, now_us, INFINITY_US)
    at_us = max(now_us, validity.from_us)
    until_us = at_us + HORIZON_US
    found: list[Window] = []
    while at_us < until_us and len(found) < WINDOWS_MAX:
        found += calendar.windows(validity, at_us, min(at_us + STRETCH_US, until_us))
        at_us += STRETCH_US
    return merged(found)


def standing(calendar: Calendar, validity: Validity, now_us: int) -> str:
    """State of the policy for output: `active`, `expired`, `waiting` for its begin, or `idle` between two windows."""
    if calendar.windows(validity, now_us, now_us + 1):
        return "active"
    if validity.until_us and validity.until_us <= now_us:
        return "expired"
    return "waiting" if validity.from_us > now_us else "idle"
