"""The tables of sreport from what runs used: sums by account, by user, by size, and of the cluster.

All amounts are microseconds times cores or nodes; they become seconds when they are shown. Invariant: the sum of the users
of an account and of the accounts below it is the account's.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

from eslurm.compat.errors import whole_number
from eslurm.compat.slurm import report_words as words
from eslurm.compat.slurm.abbreviated import Unusable, columns
from eslurm.compat.slurm.fitted import lines as table_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import TypeAlias

    from eslurm.compat.slurm.report_words import Request

    Line: TypeAlias = tuple[dict[str, str], dict[str, float], float]
    """Cells, amounts by head, and the whole that they are shares of."""

ROOT = "root"
TOP_COUNT = 10
RULE = "-" * 80
_HOUR_S = 3600
_UNKNOWN = " Unknown field"
_SECOND_US = 1_000_000
_GROUPING = (50, 250, 500, 1000)
_NARROWEST, _PERCENT_MORE = 8, 9
"""Width of a column of amounts, and what percents add to it."""
_AMOUNTS = frozenset(
    {"Allocated", "Down", "PLND Down", "Idle", "Planned", "Over Comm", "Reported", "Used", "Energy"}
)
_TREE_WIDTH = -20


class Use:
    """The use of resources by one run, inside of the report's times."""

    __slots__ = ("account", "amounts", "cpus", "job_id", "partition", "user")

    def __init__(
        self,
        user: str,
        account: str,
        cpus: int,
        amounts: Mapping[str, int],
        job_id: int = 0,
        partition: str = "",
    ) -> None:
        self.user = user
        self.account = account or ROOT
        self.cpus = cpus
        self.amounts = amounts
        self.job_id = job_id
        self.partition = partition


class ClusterUse:
    """A cluster's runs, its accounts with those above them, and what it has of each resource."""

    __slots__ = ("counts", "name", "parents", "uses")

    def __init__(
        self, name: str, uses: Sequence[Use], parents: Mapping[str, str], counts: Mapping[str, int]
    ) -> None:
        self.name = name
        self.uses = uses
        self.parents = parents
        self.counts = counts

    def above(self, account: str) -> Iterator[str]:
        """The account, those above it, and the root."""
        seen = {ROOT}
        while account not in seen:
            yield account
            seen.add(account)
            account = self.parents.get(account, ROOT)
        yield ROOT

    def is_below(self, account: str, chosen: set[str]) -> bool:
        """Check whether the account or one above it is chosen."""
        return not chosen.isdisjoint(self.above(account))


class Shape:
    """Options of the whole report: its times in seconds, the unit, resources (none: cores), and how it is printed."""

    __slots__ = ("by_name", "ending", "has_header", "is_ended", "since_s", "tres", "unit", "until_s")

    def __init__(
        self,
        since_s: int,
        until_s: int,
        *,
        unit: str = "Minutes",
        tres: Sequence[str] = (),
        by_name: bool = False,
        has_header: bool = True,
        ending: str | None = None,
        is_ended: bool = False,
    ) -> None:
        self.since_s = since_s
        self.until_s = until_s
        self.unit = unit
        self.tres = tres
        self.by_name = by_name
        self.has_header = has_header
        self.ending = ending
        self.is_ended = is_ended

    @property
    def resources(self) -> Sequence[str]:
        """The resources that have lines."""
        return self.tres or ("cpu",)

    @property
    def span_us(self) -> int:
        """The length of the report's time."""
        return (self.until_s - self.since_s) * _SECOND_US

    def amount(self, used_us: float, whole_us: float) -> str:
        """An amount in the unit, and its share of the whole."""
        percent = f"{100 * used_us / whole_us if whole_us else 0.0:.2f}%"
        if self.unit == "Percent":
            return percent
        return f"{self.time(used_us)}({percent})" if self.unit.endswith("Per") else self.time(used_us)

    def time(self, used_us: float) -> str:
        """An amount in the unit of time; in minutes where only shares are asked for."""
        size = {"S": 1, "M": 60, "H": _HOUR_S, "P": 60}[self.unit[0]]
        return f"{round(used_us / _SECOND_US) / size:.0f}"


def window(
    start_us: int | None, end_us: int | None, now_us: int, offset_s: Callable[[int], int]
) -> tuple[int, int]:
    """The report's times in seconds: whole hours, yesterday by default, an hour at least, and none after the present.

    `offset_s` is that of local time from UTC.
    """
    now_s = now_us // _SECOND_US
    midnight_s = _midnight_s(now_s, offset_s)
    since_s = _midnight_s(midnight_s - _HOUR_S, offset_s) if start_us is None else start_us // _SECOND_US
    until_s = midnight_s if end_us is None else min(-(-end_us // _SECOND_US), now_s)
    since_s -= (since_s + offset_s(since_s)) % _HOUR_S
    until_s += -(until_s + offset_s(until_s)) % _HOUR_S
    return since_s, max(until_s, since_s + _HOUR_S)


def _midnight_s(at_s: int, offset_s: Callable[[int], int]) -> int:
    """The beginning of a moment's day; its offset may have changed since."""
    found_s = at_s - (at_s + offset_s(at_s)) % 86_400
    return found_s + offset_s(at_s) - offset_s(found_s)


def text(
    request: Request,
    clusters: Sequence[ClusterUse],
    shape: Shape,
    moment: Callable[[int], str],
    proper_name: Callable[[str], str],
) -> str:
    """The whole report. Raises Unusable."""
    if request.report == words.SIZES:
        return _sizes(request, clusters, shape, moment)
    heads = columns(
        words.FIELDS[request.report],
        ",".join(request.values("format")) or words.DEFAULTS[request.report][bool(shape.tres)],
        _UNKNOWN,
    )
    make = {
        words.UTILIZATION: _utilization,
        words.ACCOUNTS: _by_account,
        words.USERS: _by_user,
        words.TOP: _top,
    }[request.report]
    rows: list[dict[str, str]] = []
    largest: dict[str, float] = {}
    for cluster in clusters:
        for row, amounts, whole in make(request, cluster, shape):
            for head, used_us in amounts.items():
                largest[head] = max(largest.get(head, 0), used_us)
                row[head] = shape.amount(used_us, whole)
            row["Cluster"] = cluster.name
            if "Login" in row:
                row["Proper Name"] = proper_name(row["Login"]) if row["Login"] else ""
            rows.append(row)
    shown = []
    for head, width, is_given in heads:
        own = width
        if head in _AMOUNTS and not is_given:
            own = _amount_width(largest.get(head, 0), shape)
        elif head == "Account" and request.has("tree") and not is_given:
            own = _TREE_WIDTH
        shown.append((head, own))
    cells = [[row.get(head, "") for head, _ in shown] for row in rows]
    return _above(request, shape, moment) + "".join(
        table_lines(shown, cells, has_header=shape.has_header, ending=shape.ending, is_ended=shape.is_ended)
    )


def _amount_width(largest_us: float, shape: Shape) -> int:
    digits = len(str(round(largest_us / _SECOND_US)))
    return max(_NARROWEST, digits) + (_PERCENT_MORE if shape.unit.endswith("Per") else 0)


def _above(request: Request, shape: Shape, moment: Callable[[int], str]) -> str:
    if not shape.has_header:
        return ""
    times = f"{moment(shape.since_s)} - {moment(shape.until_s - 1)}"
    length = f" ({shape.until_s - shape.since_s} secs)"
    top = request.last("top") or str(TOP_COUNT)
    title = {
        words.UTILIZATION: f"Cluster Utilization {times}",
        words.ACCOUNTS: f"Cluster/Account/User Utilization {times}{length}",
        words.USERS: f"Cluster/User/Account Utilization {times}{length}",
        words.TOP: f"Top {top} Users {times}{length}",
        words.SIZES: f"Job Sizes {times}{length}",
    }[request.report]
    unit = words.UNITS[shape.unit]
    if request.report == words.SIZES:
        usage = "Units are in number of jobs ran" if request.has("count") else f"Time reported in {unit}"
        usage = (f"TRES type is {','.join(shape.tres)}\n" if shape.tres else "") + usage
    elif shape.unit == "Percent":
        usage = f"Usage reported in {unit}"
    else:
        usage = f"Usage reported in {'TRES' if shape.tres else 'CPU'} {unit}"
    return f"{RULE}\n{title}\n{usage}\n{RULE}\n"


# ---- sums ----


def _utilization(request: Request, cluster: ClusterUse, shape: Shape) -> Iterator[Line]:
    for tres, whole in _wholes(cluster, shape).items():
        used = sum(use.amounts[tres] for use in cluster.uses)
        amounts: dict[str, float] = {
            "Allocated": used,
            "Down": 0,
            "PLND Down": 0,
            "Idle": whole - used,
            "Planned": 0,
            "Over Comm": 0,
            "Reported": whole,
            "Energy": 0,
        }
        yield {"TRES Name": tres, "TRES Count": str(cluster.counts[tres])}, amounts, whole


def _chosen(request: Request, cluster: ClusterUse) -> Iterable[Use]:
    """The runs of the users and accounts that the conditions name."""
    users, accounts = set(request.values("users")), set(request.values("accounts"))
    for use in cluster.uses:
        if users and use.user not in users:
            continue
        if accounts and not cluster.is_below(use.account, accounts):
            continue
        yield use


def _wholes(cluster: ClusterUse, shape: Shape) -> dict[str, float]:
    """All that the cluster has of each resource, as Slurm's shares of users and accounts are of it."""
    # More may be used than there is now: nodes that the cluster had then are gone.
    return {
        tres: max(cluster.counts[tres] * shape.span_us, sum(use.amounts[tres] for use in cluster.uses))
        for tres in shape.resources
    }


def _by_account(request: Request, cluster: ClusterUse, shape: Shape) -> Iterator[Line]:
    chosen = set(request.values("accounts"))
    wholes = _wholes(cluster, shape)
    sums: dict[tuple[str, str], dict[str, float]] = {}
    for use in _chosen(request, cluster):
        for account in cluster.above(use.account):
            if not chosen or cluster.is_below(account, chosen):
                _add(sums, (account, ""), use)
        _add(sums, (use.account, use.user), use)
    names = {account for account, _ in sums}
    below: dict[str, list[str]] = {}
    for name in sorted(names - {ROOT}):
        parent = cluster.parents.get(name, ROOT)
        below.setdefault(parent if parent in names else ROOT, []).append(name)
    users: dict[str, list[str]] = {}
    for account, user in sorted(sums):
        if user:
            users.setdefault(account, []).append(user)
    pending = [(name, 1 if ROOT in names else 0) for name in reversed(below.get(ROOT, ()))]
    if ROOT in names:
        pending.append((ROOT, 0))
    while pending:
        name, depth = pending.pop()
        for user in ("", *users.get(name, ())):
            if (name, user) not in sums or (request.has("users") and not user):
                continue
            shown = " " * (depth + bool(user)) + name if request.has("tree") else name
            for tres in shape.resources:
                row = {"Account": shown, "Login": user, "TRES Name": tres}
                yield row, {"Used": sums[name, user][tres], "Energy": 0}, wholes[tres]
        if name != ROOT:
            pending += [(one, depth + 1) for one in reversed(below.get(name, ()))]


def _add(sums: dict[tuple[str, str], dict[str, float]], key: tuple[str, str], use: Use) -> None:
    found = sums.setdefault(key, dict.fromkeys(use.amounts, 0))
    for tres, amount in use.amounts.items():
        found[tres] += amount


def _by_user(request: Request, cluster: ClusterUse, shape: Shape) -> Iterator[Line]:
    wholes = _wholes(cluster, shape)
    sums: dict[tuple[str, str], dict[str, float]] = {}
    for use in _chosen(request, cluster):
        _add(sums, (use.user, use.account), use)
    for user, account in sorted(sums):
        for tres in shape.resources:
            row = {"Login": user, "Account": account, "TRES Name": tres}
            yield row, {"Used": sums[user, account][tres], "Energy": 0}, wholes[tres]


def _top(request: Request, cluster: ClusterUse, shape: Shape) -> Iterator[Line]:
    wholes = _wholes(cluster, shape)
    sums: dict[tuple[str, str], dict[str, float]] = {}
    accounts: dict[tuple[str, str], dict[str, None]] = {}
    for use in _chosen(request, cluster):
        key = (use.user, "" if request.has("group") else use.account)
        _add(sums, key, use)
        accounts.setdefault(key, {})[use.account] = None
    first = shape.resources[0]
    ordered = sorted(sums)
    if not shape.by_name:
        ordered.sort(key=lambda key: -sums[key][first])
    for key in ordered[: _count(request)]:
        for tres in shape.resources:
            row = {"Login": key[0], "Account": ", ".join(sorted(accounts[key])), "TRES Name": tres}
            yield row, {"Used": sums[key][tres], "Energy": 0}, wholes[tres]


def _count(request: Request) -> int:
    given = request.last("top")
    if not given:
        return TOP_COUNT
    count = whole_number(given, 9)
    if count <= 0:
        raise Unusable(f"sreport: error: Invalid value for TopCount ({given})")
    return count


# ---- sizes ----


def _bounds(request: Request) -> tuple[int, ...] | None:
    """The bounds of ranges; None: each size is one."""
    given = request.values("grouping")
    if given and "individual".startswith(given[0].lower()):
        return None
    bounds: list[int] = []
    for one in given:
        bound = whole_number(one, 9)
        if bound <= (bounds[-1] if bounds else 0):
            raise Unusable(f"sreport: error: grouping={','.join(given)} is not supported: use rising numbers")
        bounds.append(bound)
    return tuple(bounds) or _GROUPING


def _sizes(
    request: Request, clusters: Sequence[ClusterUse], shape: Shape, moment: Callable[[int], str]
) -> str:
    if len(shape.resources) > 1:
        raise Unusable(
            " Job report only supports a single --tres type.",
            " Generate a separate report for each TRES type.",
        )
    ranges = _Ranges(_bounds(request), clusters, "CPUs" if shape.resources[0] == "cpu" else "TRES")
    text = ",".join(request.values("format")) or words.DEFAULTS[words.SIZES][0]
    heads = [(head, width) for head, width, _ in columns(words.FIELDS[words.SIZES], text, _UNKNOWN)]
    has_count, tres = request.has("count"), shape.resources[0]
    rows = []
    for cluster in clusters:
        sums: dict[str, list[float]] = {}
        for use, account in _sized(request, cluster):
            amounts = sums.setdefault(account, [0] * len(ranges.names))
            amounts[ranges.place(use.cpus)] += 1 if has_count else use.amounts[tres]
        all_of_it = sum(map(sum, sums.values()))
        for account, amounts in sorted(sums.items()):
            total = sum(amounts)
            row = [{"Cluster": cluster.name, "Account": account}.get(head, "") for head, _ in heads]
            row += [f"{one:.0f}" if has_count else shape.amount(one, total) for one in amounts]
            row.append(f"{total:.0f}" if has_count else shape.time(total))
            rows.append([*row, f"{100 * total / all_of_it if all_of_it else 0:.2f}%"])
    width = 20 if shape.unit.endswith("Per") else 13
    shown = [*heads, *((name, width) for name in ranges.names), ("Total Count", 11), ("% of cluster", 12)]
    return _above(request, shape, moment) + "".join(
        table_lines(shown, rows, has_header=shape.has_header, ending=shape.ending, is_ended=shape.is_ended)
    )


class _Ranges:
    """Ranges of cores and their heads; `bounds` None: each size of these clusters' runs is one."""

    def __init__(self, bounds: tuple[int, ...] | None, clusters: Sequence[ClusterUse], noun: str) -> None:
        if bounds is None:
            self._sizes = sorted({use.cpus for cluster in clusters for use in cluster.uses})
            self.names = [f"{size} {noun}" for size in self._sizes]
        else:
            self._sizes = [0, *bounds]
            self.names = [f"{low}-{high - 1} {noun}" for low, high in pairwise(self._sizes)]
            self.names.append(f">= {bounds[-1]} {noun}")

    def place(self, cpus: int) -> int:
        """The place of a size among the ranges."""
        return bisect_right(self._sizes, cpus) - 1


def _sized(request: Request, cluster: ClusterUse) -> Iterator[tuple[Use, str]]:
    """The chosen runs, each with the account in whose line it counts."""
    users, named = set(request.values("users")), request.values("accounts") or [ROOT]
    jobs, partitions = set(request.values("jobs")), set(request.values("partitions"))
    is_flat = request.has("flat")
    for use in cluster.uses:
        if users and use.user not in users:
            continue
        if (jobs and str(use.job_id) not in jobs) or (partitions and use.partition not in partitions):
            continue
        chain = list(cluster.above(use.account))
        if is_flat:
            if not request.has("accounts") or use.account in named:
                yield use, use.account
            continue
        at = next((place for place, account in enumerate(chain) if account in named), -1)
        if at < 0:
            continue
        if not request.has("asparent"):
            yield use, chain[at]
        elif at > 0:
            yield use, chain[at - 1]
