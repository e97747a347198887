"""Bounds of one user's share of the controller, and of all users' together; excess calls are refused with a retry time.

Reads are limited by their cost: time on the event loop and bytes. Changes are counted, and cost the time of reading and
deciding them. Invariant: a user with few calls is served however many others make; nothing here waits; memory is bounded.
"""

from __future__ import annotations

import itertools
import time
from collections import OrderedDict
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NoReturn

import msgspec

from eslurm.api.methods import ACCOUNTING, ATTEND_JOB, EXTEND_JOB, MOVE_PACK, WAIT_JOBS, WAIT_STEP, Method
from eslurm.ports.api import ApiError, Caller, Status

BURST_S = 5.0
"""A budget saves up this many seconds' worth of use."""
DEBT_S = 30.0
"""Bound of a budget's debt, in seconds' worth, after a call that cost more than expected."""
RETRY_AFTER_MIN_S = 0.05
RETRY_AFTER_MAX_S = 5.0
WAIT_RETRY_S = 1.0
CALL_COST_S = 50e-6
"""Cost of a call in seconds outside its handler: its frame, its task, its reply's header."""
BYTE_COST_S = 2e-9
"""Cost of a reply's byte in seconds: it is joined, copied and written."""
USERS_MAX = 4096
_LEARNING = 0.125
_ASKING_S = 10.0
_COUNT_EVERY_S = 0.5
_PARTS = 0.9
"""Sum of users' equal parts, as a share of the common budget: the rest is for new users."""
_SCARCE = 0.5
"""Below this fill level of the common budget each user is held to an equal part of it."""

_LONG_POLLS = tuple(one.number for one in (WAIT_JOBS, WAIT_STEP, MOVE_PACK, EXTEND_JOB, ATTEND_JOB))

LIMITS = (
    "calls_user",
    "waits_user",
    "changes_user",
    "change_share_user",
    "read_share",
    "read_share_user",
    "read_share_operators",
)
"""Reasons of refusals here, as `on_refused` gets them."""


class LimitSettings(msgspec.Struct, frozen=True):
    """The keys of the same names in the controller's configuration. 0: no limit."""

    read_share_percent: float = 0.0
    read_share_user_percent: float = 0.0
    read_share_operators_percent: float = 0.0
    changes_user_per_s: float = 0.0
    change_share_user_percent: float = 0.0
    waits_user_max: int = 0
    calls_user_max: int = 0


class Budget:
    """An amount that is refilled at a rate and may be overdrawn: a call's cost is known when it is over."""

    def __init__(self, rate: float, typical: float, now_s: float) -> None:
        self._rate = rate
        self._most = rate * BURST_S
        self._left = self._most
        self._at_s = now_s
        # Each refused caller is given a moment of its own: together they would meet an empty budget again.
        self._promised_s = now_s
        self._typical = typical

    def set_rate(self, rate: float) -> None:
        """Set the rate of refill."""
        self._rate = rate
        self._most = rate * BURST_S

    def left_share(self, now_s: float) -> float:
        """Fill level: 1 when nothing was used lately, 0 or less when it is empty."""
        self._left = min(self._most, self._left + (now_s - self._at_s) * self._rate)
        self._at_s = now_s
        return self._left / self._most

    def take(self, amount: float) -> None:
        """Use some of it."""
        self._left = max(self._left - amount, -self._rate * DEBT_S)

    def learn(self, amount: float) -> None:
        """Learn the cost of one whole call."""
        self._typical += (amount - self._typical) * _LEARNING

    def retry_after_s(self, now_s: float) -> float:
        """Seconds after which the next refused caller should retry."""
        ready_s = now_s + max(0.0, -self._left) / self._rate
        next_s = max(ready_s, self._promised_s) + self._typical / self._rate
        self._promised_s = min(next_s, now_s + RETRY_AFTER_MAX_S)
        return max(RETRY_AFTER_MIN_S, self._promised_s - now_s)


class _User:
    """`reads` is the user's greatest share, `part` an equal part of what all active users may use; `changes` are counted,
    `deciding` is their time.
    """

    __slots__ = ("budgets", "calls", "changes", "deciding", "part", "reads", "seen_s", "waits")

    def __init__(
        self, reads: Budget | None, part: Budget | None, changes: Budget | None, deciding: Budget | None
    ) -> None:
        self.deciding = deciding
        self.reads = reads
        self.part = part
        self.changes = changes
        self.budgets = tuple(one for one in (reads, part) if one is not None)
        self.calls = 0
        self.waits = 0
        self.seen_s = 0.0


class Ticket:
    """One admitted call. Call `leave` at its end, whatever its result."""

    __slots__ = ("_budgets", "_long_poll", "_slow", "_spent_s", "_user")

    def __init__(
        self, user: _User | None, budgets: tuple[Budget, ...], *, long_poll: bool = False, slow: bool = False
    ) -> None:
        self._user = user
        self._budgets = budgets
        self._long_poll = long_poll
        self._slow = slow
        self._spent_s = 0.0

    @property
    def metered(self) -> bool:
        """Check whether the call's cost matters."""
        return bool(self._budgets)

    def charge(self, spent_s: float) -> None:
        """Add seconds for which the call has held the event loop."""
        self._spent_s += spent_s
        for budget in self._budgets:
            budget.take(spent_s)

    def settle(self, reply_bytes: int, took_s: float) -> None:
        """The call is answered, after this many seconds in all."""
        self.charge(CALL_COST_S + reply_bytes * BYTE_COST_S)
        if self._slow:
            # The store worked for it meanwhile, at the caller's cost only: the loop was free for others.
            elsewhere_s = max(0.0, took_s - self._spent_s)
            for budget in self._budgets if self._user is None else self._user.budgets:
                budget.take(elsewhere_s)
        for budget in self._budgets:
            budget.learn(self._spent_s)

    def leave(self) -> None:
        """The call is over."""
        user = self._user
        if user is not None:
            user.calls -= 1
            user.waits -= self._long_poll


_FREE = Ticket(None, ())


class RequestLimits:
    """Admits calls. `on_refused` gets the reason in one word, from a short list: it may be a metric's label."""

    def __init__(
        self,
        settings: LimitSettings,
        on_refused: Callable[[str], None] = lambda _reason: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._on_refused = on_refused
        self._clock = clock
        now_s = clock()
        self._everybody = _reads(settings.read_share_percent, now_s)
        self._operators = _reads(settings.read_share_operators_percent, now_s)
        # The longest unseen first.
        self._users: OrderedDict[int, _User] = OrderedDict()
        self._asking = 1
        self._counted_s = now_s

    def admit(self, method: Method[Any, Any], caller: Caller, *, operator: bool) -> Ticket:
        """Admit the call, or raise `ApiError` (RESOURCE_EXHAUSTED) with a retry time."""
        if method.right in ("operator", "administrator"):
            return _FREE
        if operator:
            return (
                _FREE if method.mutating or self._operators is None else self._admit_operator(method, caller)
            )
        now_s = self._clock()
        user = self._user(caller.principal.uid, now_s)
        self._check_calls(user, caller)
        long_poll = method.number in _LONG_POLLS
        if method.mutating:
            if long_poll:
                self._check_waits(user, caller)
            self._check_changes(user, caller, now_s)
            budgets: tuple[Budget, ...] = (user.deciding,) if user.deciding is not None else ()
        else:
            if long_poll:
                self._check_waits(user, caller)
            else:
                self._check_reads(user, caller, now_s)
            budgets = user.budgets if self._everybody is None else (*user.budgets, self._everybody)
        user.calls += 1
        user.waits += long_poll
        return Ticket(user, budgets, long_poll=long_poll, slow=method.number == ACCOUNTING.number)

    def _user(self, uid: int, now_s: float) -> _User:
        user = self._users.get(uid)
        if user is None:
            self._forget_one()
            settings = self._settings
            user = _User(
                _reads(settings.read_share_user_percent, now_s),
                _reads(settings.read_share_percent * _PARTS / self._asking, now_s),
                Budget(settings.changes_user_per_s, 1.0, now_s) if settings.changes_user_per_s else None,
                _reads(settings.change_share_user_percent, now_s),
            )
            self._users[uid] = user
        else:
            self._users.move_to_end(uid)
        user.seen_s = now_s
        if now_s >= self._counted_s + _COUNT_EVERY_S:
            self._count(now_s)
        if user.part is not None:
            user.part.set_rate(self._settings.read_share_percent / 100 * _PARTS / self._asking)
        return user

    def _count(self, now_s: float) -> None:
        """Count the active users."""
        self._counted_s = now_s
        recent = (user.seen_s > now_s - _ASKING_S for user in reversed(self._users.values()))
        self._asking = sum(itertools.takewhile(bool, recent))

    def _forget_one(self) -> None:
        """Make room for a user; one with calls under way keeps its place, and there are few of those."""
        if len(self._users) < USERS_MAX:
            return
        uid = next((uid for uid, user in self._users.items() if not user.calls), None)
        if uid is not None:
            del self._users[uid]

    def _admit_operator(self, method: Method[Any, Any], caller: Caller) -> Ticket:
        budget = self._operators
        assert budget is not None
        now_s = self._clock()
        if method.number not in _LONG_POLLS and budget.left_share(now_s) <= 0:
            self._refuse(
                "read_share_operators",
                f"operators' questions have taken their {self._settings.read_share_operators_percent:g} % of "
                "the controller's time (controller.read_share_operators_percent)",
                budget.retry_after_s(now_s),
            )
        return Ticket(None, (budget,), slow=method.number == ACCOUNTING.number)

    # ---- checks ----

    def _check_calls(self, user: _User, caller: Caller) -> None:
        most = self._settings.calls_user_max
        if most and user.calls >= most:
            self._refuse(
                "calls_user",
                f"{_who(caller)} has {user.calls} calls under way, and may have {most} (controller.calls_user_max)",
                WAIT_RETRY_S,
            )

    def _check_waits(self, user: _User, caller: Caller) -> None:
        most = self._settings.waits_user_max
        if most and user.waits >= most:
            self._refuse(
                "waits_user",
                f"{_who(caller)} waits for jobs with {user.waits} calls, and may with {most} "
                "(controller.waits_user_max)",
                WAIT_RETRY_S,
            )

    def _check_changes(self, user: _User, caller: Caller, now_s: float) -> None:
        deciding = user.deciding
        if deciding is not None and deciding.left_share(now_s) <= 0:
            self._refuse(
                "change_share_user",
                f"{_who(caller)}'s changes have taken the {self._settings.change_share_user_percent:g} % of the "
                "controller's time that one user's may take (controller.change_share_user_percent)",
                deciding.retry_after_s(now_s),
            )
        budget = user.changes
        if budget is None:
            return
        if budget.left_share(now_s) <= 0:
            self._refuse(
                "changes_user",
                f"{_who(caller)} has made more than {self._settings.changes_user_per_s:g} changes a second "
                "(controller.changes_user_per_s)",
                budget.retry_after_s(now_s),
            )
        budget.take(1.0)

    def _check_reads(self, user: _User, caller: Caller, now_s: float) -> None:
        if user.reads is not None and user.reads.left_share(now_s) <= 0:
            self._refuse(
                "read_share_user",
                f"{_who(caller)}'s questions have taken the {self._settings.read_share_user_percent:g} % of the "
                "controller's time that one user may take (controller.read_share_user_percent)",
                user.reads.retry_after_s(now_s),
            )
        everybody, part = self._everybody, user.part
        if everybody is None or part is None:
            return
        common, mine = everybody.left_share(now_s), part.left_share(now_s)
        if common <= 0 or (common < _SCARCE and mine <= 0):
            self._refuse(
                "read_share",
                f"questions of all users have taken their {self._settings.read_share_percent:g} % of the "
                f"controller's time (controller.read_share_percent), {_who(caller)} is one of {self._asking} who ask",
                (part if mine <= 0 else everybody).retry_after_s(now_s),
            )

    def _refuse(self, reason: str, text: str, retry_after_s: float) -> NoReturn:
        self._on_refused(reason)
        raise ApiError(
            Status.RESOURCE_EXHAUSTED, f"{text}: come again in {retry_after_s:.1f} s", retry_after_s
        )


def _reads(percent: float, now_s: float) -> Budget | None:
    return Budget(percent / 100, CALL_COST_S, now_s) if percent else None


def _who(caller: Caller) -> str:
    return f"{caller.principal.name} (uid {caller.principal.uid})"


charging: ContextVar[Callable[[float], None] | None] = ContextVar("charging", default=None)
"""Within a metered call: the account for work that others do for it, like the dispatcher's deciding."""
