"""Limits (C-11..C-14): those that bind a job, and their constraints on its start.

A job is bound through its user, its groups, its account and those above it, its QOS and its partition. For each of them
and each resource a limit on that resource precedes one on `*`, one on a name precedes one on each (C-12); for groups and
accounts "each" means the job's primary group and its own account. At every instant the first of these levels with a limit
in force counts, and of that level all. A consumer without limits is not bound (C-13). A limit that forbids a job now may
allow it later: a job is moved, not refused (C-14), unless the limit is always in force.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

import msgspec

from eslurm.core.model.accounts import EVERYONE, UNLIMITED, Account, Amount, Limit
from eslurm.core.model.units import SECOND_US
from eslurm.core.model.wording import are, counted
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.resources.usage import Steps, Used, amount_words, first_within, last_over, length_words
from eslurm.core.resources.windows import Windows, find_gap, stop_of

NODES: Final = "nodes"
JOBS: Final = "jobs"
ARRAYJOBS: Final = "arrayjobs"
COUNTED: Final = frozenset({JOBS, ARRAYJOBS})
"""Bounds on submissions: they say nothing about when a job may run."""

Consumer: TypeAlias = tuple[str, str]
"""(kind, name)."""

Level: TypeAlias = list[Limit]


class Who(Protocol):
    """A job's owner and associations, as limits see them."""

    @property
    def user(self) -> str: ...
    @property
    def groups(self) -> tuple[str, ...]: ...
    @property
    def account(self) -> str: ...
    @property
    def qos(self) -> str: ...
    @property
    def partition(self) -> str: ...


class LimitIndex:
    """The limits by consumer. Built once per change of policies; cheap to query."""

    __slots__ = ("_below", "_by_consumer", "_each", "_parents")

    def __init__(self, limits: Iterable[Limit], accounts: Mapping[str, Account] | None = None) -> None:
        self._by_consumer: dict[Consumer, dict[str, Level]] = {}
        self._parents = {name: account.parent for name, account in (accounts or {}).items()}
        for limit in limits:
            named = self._by_consumer.setdefault((limit.kind, limit.consumer), {})
            named.setdefault(limit.resource, []).append(limit)
        self._each = frozenset(kind for kind, name in self._by_consumer if name == EVERYONE)
        self._below: dict[str, list[str]] = {}
        for name, parent in self._parents.items():
            if parent:
                self._below.setdefault(parent, []).append(name)

    def consumers(self, who: Who, partitions: Iterable[str] = ()) -> Iterator[Consumer]:
        """The consumers through which any limit binds the job; `partitions` are those of its parts, if it has several."""
        found = self._by_consumer
        if not found:
            return
        for consumer in self.memberships(who, partitions):
            if consumer in found or (consumer[0] in self._each and _is_own(consumer, who)):
                yield consumer

    def levels(self, consumer: Consumer, resource: str, who: Who) -> list[Level]:
        """The limits that bind one consumer's use of a resource, those with precedence first."""
        named = [self._by_consumer.get(consumer, {})]
        if _is_own(consumer, who):
            named.append(self._by_consumer.get((consumer[0], EVERYONE), {}))
        words = (resource,) if resource in COUNTED or resource == NODES else (resource, EVERYONE)
        return [level for limits in named for word in words if (level := limits.get(word))]

    def memberships(self, who: Who, partitions: Iterable[str] = ()) -> Iterator[Consumer]:
        """Every consumer of the job that a limit could name."""
        yield "user", who.user
        for group in who.groups:
            yield "group", group
        account, seen = who.account, set[str]()
        while account and account not in seen:
            yield "account", account
            seen.add(account)
            account = self._parents.get(account, "")
        if who.qos:
            yield "qos", who.qos
        for name in partitions or (who.partition,):
            yield "partition", name

    def accounts_in(self, name: str) -> list[str]:
        """An account and all below it, each once."""
        found = {name: None}
        for account in (left := [name]):
            for below in self._below.get(account, ()):
                if below not in found:
                    found[below] = None
                    left.append(below)
        return list(found)


def _is_own(consumer: Consumer, who: Who) -> bool:
    kind, name = consumer
    if kind == "group":
        return who.groups[:1] == (name,)
    return kind != "account" or name == who.account


def most_items(amount: Amount, available: int) -> int | None:
    """`min[/max%]`: the larger of the number and the share of what is available; None: no bound (C-11)."""
    if amount.percent:
        # The tenth of a millionth forgives what a share loses in binary.
        return max(amount.items, int(available * amount.percent / 100 + 1e-7))
    return None if amount.items == UNLIMITED else amount.items


class Ask(msgspec.Struct, frozen=True, gc=False):
    """One job's request of one resource through one consumer."""

    resource: str
    items: int
    consumer: Consumer


class Items:
    """At most this many items at a time, whenever the limit is in force: uRS = min(free, limit - usdRS) (C-31)."""

    __slots__ = ("_available", "_beyond_us", "_bound", "_counted", "_windows", "ask", "limit", "used")
    kind = "limit"

    def __init__(
        self,
        limit: Limit,
        ask: Ask,
        used: Used,
        windows: Windows,
        available: Mapping[str, int],
        beyond_us: int = 0,
    ) -> None:
        self.limit = limit
        self.ask = ask
        self.used = used
        self._windows = windows
        self._available = available
        self._beyond_us = beyond_us
        # Of how many available items the bound is worked out.
        self._counted = -1
        self._bound = 0

    @property
    def bound(self) -> int:
        """The most items, as of what is available now."""
        available = self._available.get(self.ask.resource, 0)
        if available != self._counted:
            most = most_items(self.limit.amount, available)
            self._counted, self._bound = available, INFINITY_US if most is None else most
        return self._bound

    def earliest(self, duration_us: int, from_us: int, until_us: int) -> int | None:
        """See `Constraint`."""
        duration_us, until_us = at_the_latest(duration_us, until_us, self._beyond_us)
        most = self.bound - self.ask.items
        return earliest_below(self.used.steps, self._windows, most, duration_us, from_us, until_us)

    def why(self) -> str:
        """See `Constraint`."""
        ask, used = self.ask, self.used
        text = (
            f"limit {self.limit.name}: {who_words(ask.consumer)} may use {amount_words(self.bound, ask.resource)} "
            f"at a time; {amount_words(used.items_now, ask.resource)} {are(used.items_now)} used by "
            f"{counted(used.jobs_now, 'job')}"
        )
        if used.items_now:
            text += _until(used.next_release_us)
        return f"{text}, {amount_words(ask.items, ask.resource)} {are(ask.items)} asked for"


class Duration:
    """While the limit is in force no job holds the resource for longer: longer jobs avoid its windows."""

    __slots__ = ("_beyond_us", "_duration_us", "_windows", "ask", "limit")
    kind = "limit"

    def __init__(
        self, limit: Limit, ask: Ask, windows: Windows, duration_us: int, beyond_us: int = 0
    ) -> None:
        self.limit = limit
        self.ask = ask
        self._windows = windows
        self._duration_us = duration_us
        self._beyond_us = beyond_us

    def earliest(self, duration_us: int, from_us: int, until_us: int) -> int | None:
        """See `Constraint`."""
        duration_us, until_us = at_the_latest(duration_us, until_us, self._beyond_us)
        if duration_us <= self.limit.duration_s * SECOND_US:
            return from_us if stop_of(from_us, duration_us) <= until_us else None
        return find_gap(self._windows, duration_us, from_us, until_us)

    def why(self) -> str:
        """See `Constraint`."""
        return (
            f"limit {self.limit.name}: {who_words(self.ask.consumer)} may hold {self.ask.resource} for "
            f"{length_words(self.limit.duration_s * SECOND_US)} at most while it is in force, "
            f"{length_words(self._duration_us)} are asked for"
        )


class Area:
    """Items times seconds: from the start of a job on, the rest of the consumer's running and planned jobs, its own
    included, is at most the limit; for jobs that touch a window in which it is in force.

    So `500h` lets one job hold one item for 500 hours or 500 items for one, and lets the next one begin as soon as the
    rest of the others has shrunk by as much as it needs.
    """

    __slots__ = ("_beyond_us", "_windows", "ask", "limit", "used")
    kind = "limit"

    def __init__(self, limit: Limit, ask: Ask, used: Used, windows: Windows, beyond_us: int = 0) -> None:
        self.limit = limit
        self.ask = ask
        self.used = used
        self._windows = windows
        self._beyond_us = beyond_us

    def earliest(self, duration_us: int, from_us: int, until_us: int) -> int | None:
        """See `Constraint`."""
        duration_us, until_us = at_the_latest(duration_us, until_us, self._beyond_us)
        left_us = self.limit.area_s * SECOND_US - self.ask.items * duration_us
        shrunk_us = self.used.area_below_from(left_us) if duration_us < INFINITY_US and left_us >= 0 else None
        at_us = from_us
        while at_us < until_us:
            end_us = stop_of(at_us, duration_us)
            if end_us > until_us:
                return None
            if shrunk_us is not None and shrunk_us <= at_us:
                return at_us
            window = self._windows.find(at_us, end_us)
            if window is None:
                return at_us if at_us == from_us or not self._windows.is_over(at_us) else None
            at_us = window[1] if shrunk_us is None else min(window[1], shrunk_us)
        return None

    def why(self) -> str:
        """See `Constraint`."""
        left_us = self.used.area_from(self.used.now_us)
        held = length_words(left_us) if left_us < INFINITY_US else "without end"
        most = length_words(self.limit.area_s * SECOND_US)
        return (
            f"limit {self.limit.name}: {who_words(self.ask.consumer)} may plan {most} of {self.ask.resource} "
            f"(items times time) at a time; what runs and is planned still takes {held}"
        )


def at_the_latest(duration_us: int, until_us: int, beyond_us: int) -> tuple[int, int]:
    """An expected interval, and the end of the query's interval, extended to the job's limit."""
    return duration_us + beyond_us, until_us if until_us >= INFINITY_US else until_us + beyond_us


def earliest_below(
    steps: Steps, windows: Windows, most: int, duration_us: int, from_us: int, until_us: int
) -> int | None:
    """The first instant from which an interval nowhere meets a use above `most` while a window is open."""
    if most < 0:
        return find_gap(windows, duration_us, from_us, until_us)
    at_us = from_us
    freed = True
    while at_us < until_us:
        end_us = stop_of(at_us, duration_us)
        if end_us > until_us:
            return None
        breach = _last_breach(steps, windows, most, at_us, end_us)
        if breach is None:
            return at_us if freed or not windows.is_over(at_us) else None
        # Every start before that meets it as well.
        over_us, closes_us = breach
        freed_us = first_within(steps, most, over_us)
        freed = freed_us is not None and freed_us <= closes_us
        at_us = freed_us if freed and freed_us is not None else closes_us
    return None


def _last_breach(
    steps: Steps, windows: Windows, most: int, from_us: int, until_us: int
) -> tuple[int, int] | None:
    """Begin of the last excess within an open window, and the end of that window."""
    found: tuple[int, int] | None = None
    at_us = from_us
    while at_us < until_us:
        window = windows.find(at_us, until_us)
        if window is None:
            break
        opens_us, closes_us = window
        since_us = opens_us if opens_us > at_us else at_us
        over_us = last_over(steps, most, since_us, closes_us if closes_us < until_us else until_us)
        if over_us is not None:
            found = over_us, closes_us
        at_us = closes_us
    return found


def never_by(limit: Limit, ask: Ask, duration_us: int, best: Mapping[str, int]) -> str:
    """The reason why a limit that is always in force forbids such a job, with the largest allowed value; "" if it does
    not.
    """
    head = f"limit {limit.name}: {who_words(ask.consumer)} may"
    most = most_items(limit.amount, best.get(ask.resource, 0))
    if most is not None and ask.items > most:
        return (
            f"{head} use {amount_words(most, ask.resource)} at a time, "
            f"{ask.items} {are(ask.items)} asked for: ask for at most {most}"
        )
    if limit.duration_s and duration_us > limit.duration_s * SECOND_US:
        most_text = length_words(limit.duration_s * SECOND_US)
        return (
            f"{head} hold {ask.resource} for {most_text} at most, {length_words(duration_us)} {_is_asked(duration_us)}: "
            f"use --time of at most {most_text}"
        )
    if limit.area_s and ask.items and duration_us * ask.items > limit.area_s * SECOND_US:
        most_text = length_words(limit.area_s * SECOND_US // ask.items)
        return (
            f"{head} plan {length_words(limit.area_s * SECOND_US)} of {ask.resource} (items times time), "
            f"{amount_words(ask.items, ask.resource)} for {length_words(duration_us)} {_is_asked(duration_us)}: "
            f"with so many use --time of at most {most_text}"
        )
    return ""


def effective(levels: Sequence[Level], windows_of: Mapping[str, Windows]) -> list[tuple[Limit, Windows]]:
    """Each limit with its effective windows: without those of the levels before it."""
    found: list[tuple[Limit, Windows]] = []
    before: list[Windows] = []
    for level in levels:
        if any(windows.is_always for windows in before):
            break
        for limit in level:
            windows = windows_of[limit.name].less(before)
            if not windows.is_never:
                found.append((limit, windows))
        before += [windows_of[limit.name] for limit in level]
    return found


def who_words(consumer: Consumer) -> str:
    """`user ada`."""
    return f"{consumer[0]} {consumer[1]}"


def _is_asked(duration_us: int) -> str:
    return "is asked for" if duration_us >= INFINITY_US else "are asked for"


def _until(release_us: int | None) -> str:
    return f" ({length_words(release_us)} until the first gives some back)" if release_us is not None else ""
