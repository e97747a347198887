"""The site's policies as Slurm's accounting has them: accounts, users, QOS, associations of users with accounts, and limits.

A limit is Slurm's when it is on one account, user or QOS, always in force, and either a whole number of one resource
(GrpTRES, GrpSubmitJobs, MaxSubmitJobs) or the longest time of a user's jobs (MaxWall). Invariant: a policy that Slurm has
no words for is in `Site.others`, and nowhere else.
"""

from __future__ import annotations

from eslurm.compat.errors import OptionError, whole_number
from eslurm.compat.lengths import length_text, parse_length
from eslurm.compat.sizes import format_memory, parse_memory
from eslurm.compat.slurm.abbreviated import Unusable, listed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

ROOT = "root"
"""Slurm's name of the top of the tree."""
SUBMIT, WALL = "submit", "wall"
"""Limits besides those on resources: jobs in the system, and seconds of each job."""
CPU, MEM, NODE = "cpu", "mem", "node"
_RESOURCES = {CPU: "cores", MEM: "memory_mib", NODE: "nodes"}
_TRES = {name: tres for tres, name in _RESOURCES.items()}
_GRES = "gres/"
_KINDS = ("account", "user", "qos")
_USUAL: Mapping[str, Mapping[str, str]] = {
    "account": {"validity": "always"},
    "user": {"validity": "always"},
    "qos": {},
}
"""Settings that Slurm has no words for, with the values that need none."""


class Change:
    """One change of a policy, as `esctl KIND ACTION NAME key=value ...` makes it."""

    __slots__ = ("action", "kind", "name", "settings")

    def __init__(self, action: str, kind: str, name: str, *settings: tuple[str, str]) -> None:
        self.action = action
        self.kind = kind
        self.name = name
        self.settings = settings

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Change) and self.words == other.words

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Change{self.words}"

    @property
    def words(self) -> tuple[object, ...]:
        """All of it, for comparisons."""
        return self.action, self.kind, self.name, *self.settings


class Association:
    """An account, or a user in one: a line of Slurm's table. `depth` is that of the account below root, 1 the first."""

    __slots__ = ("account", "depth", "parent", "user")

    def __init__(self, account: str, user: str, parent: str, depth: int) -> None:
        self.account = account
        self.user = user
        self.parent = parent
        self.depth = depth


class Site:
    """The policies by Slurm's kinds. `policies` are (kind, name, settings as `esctl KIND show --json` has them)."""

    def __init__(self, policies: Iterable[tuple[str, str, Mapping[str, str]]]) -> None:
        self.accounts: dict[str, Mapping[str, str]] = {}
        self.users: dict[str, Mapping[str, str]] = {}
        self.qos: dict[str, Mapping[str, str]] = {}
        self._limits: dict[tuple[str, str], dict[str, list[tuple[int, str]]]] = {}
        self.others: list[str] = []
        """Policies, and settings of policies, that Slurm has no words for."""
        of_kind = {"account": self.accounts, "user": self.users, "qos": self.qos}
        for kind, name, settings in policies:
            if kind in of_kind:
                of_kind[kind][name] = settings
                self.others += [
                    f"{kind} {name}: {key}={settings[key]}"
                    for key, usual in _USUAL[kind].items()
                    if settings.get(key, usual) != usual
                ]
            elif kind == "limit":
                self._add_limit(name, settings)
            else:
                self.others.append(f"{kind} {name}")
        for (kind, name), fields in self._limits.items():
            if kind == "user" and len(self.accounts_of(name)) > 1:
                names = ", ".join(one for values in fields.values() for _, one in values)
                self.others.append(f"limit {names}: on user {name} over all accounts")

    def _add_limit(self, name: str, settings: Mapping[str, str]) -> None:
        found = _as_slurm(settings)
        if found is None:
            self.others.append(f"limit {name}")
            return
        kind, consumer, field, value = found
        self._limits.setdefault((kind, consumer), {}).setdefault(field, []).append((value, name))

    def accounts_of(self, user: str) -> list[str]:
        """A user's accounts, the default first."""
        return listed(self.users.get(user, {}).get("accounts", ""))

    def qos_of(self, user: str) -> list[str]:
        """A user's QOS, the default first."""
        return listed(self.users.get(user, {}).get("qos", ""))

    def users_in(self, account: str) -> list[str]:
        """The users with this account, in the order of their names."""
        return sorted(user for user in self.users if account in self.accounts_of(user))

    def coordinated_by(self, user: str) -> list[str]:
        """The accounts that name the user as a coordinator."""
        return [
            name
            for name, settings in sorted(self.accounts.items())
            if user in listed(settings.get("coordinators", ""))
        ]

    def parent_of(self, account: str) -> str:
        """The account above; `root` at the top."""
        return self.accounts[account].get("parent", "") or ROOT

    def description_of(self, account: str) -> str:
        """An account's description; its name where it has none."""
        return self.accounts[account].get("description", "") or account

    def organization_of(self, account: str) -> str:
        """An account's organization; that of Slurm where it has none: the account above, or its own name at the top."""
        given = self.accounts[account].get("organization", "")
        parent = self.parent_of(account)
        return given or (parent if parent != ROOT else account)

    def account_named(self, name: str) -> str:
        """The account of this name, whatever the case of its letters; the lower name where there is none."""
        return _named(name, self.accounts)

    def qos_named(self, name: str) -> str:
        """The QOS of this name, whatever the case of its letters; the lower name where there is none."""
        return _named(name, self.qos)

    def associations(self) -> Iterator[Association]:
        """The tree from the root down: an account, its users, the accounts below it."""
        below: dict[str, list[str]] = {}
        for name in sorted(self.accounts):
            below.setdefault(self.parent_of(name), []).append(name)
        members: dict[str, list[str]] = {}
        for user in sorted(self.users):
            for account in self.accounts_of(user):
                members.setdefault(account, []).append(user)
        yield Association(ROOT, "", "", 0)
        pending = [(name, 1) for name in reversed(below.get(ROOT, ()))]
        while pending:
            name, depth = pending.pop()
            yield Association(name, "", self.parent_of(name), depth)
            for user in members.get(name, ()):
                yield Association(name, user, "", depth)
            pending += [(one, depth + 1) for one in reversed(below.get(name, ()))]

    def limits(self, kind: str, name: str) -> dict[str, int]:
        """The limits on one account, user or QOS, by `cpu`, `mem`, `node`, `gres/NAME`, `submit` and `wall` (seconds)."""
        found = self._limits.get((kind, name), {})
        return {field: min(values)[0] for field, values in found.items()}

    def limit_changes(self, kind: str, name: str, wanted: Mapping[str, int | None]) -> list[Change]:
        """The changes after which these limits hold; None ends one. Limits that are not named stay."""
        changes = []
        for field, value in wanted.items():
            present = [one for _, one in self._limits.get((kind, name), {}).get(field, ())]
            if value is None:
                changes += [Change("delete", "limit", one) for one in present]
                continue
            key, text = _setting(field, value)
            if present:
                changes.append(Change("modify", "limit", present[0], (key, text)))
                changes += [Change("delete", "limit", one) for one in present[1:]]
                continue
            resource = _resource_of(field)
            label = field.removeprefix(_GRES) if field.startswith(_GRES) else field
            changes.append(
                Change(
                    "add",
                    "limit",
                    f"{kind}.{name}.{label}",
                    (kind, name),
                    ("resource", resource),
                    (key, text),
                )
            )
        return changes

    def without_limits(self, kind: str, name: str) -> list[Change]:
        """The changes that end all limits on it."""
        return self.limit_changes(kind, name, dict.fromkeys(self._limits.get((kind, name), {})))


def _named(name: str, known: Mapping[str, object]) -> str:
    if name in known:
        return name
    lowered = name.lower()
    return next((one for one in known if one.lower() == lowered), lowered)


def _as_slurm(settings: Mapping[str, str]) -> tuple[str, str, str, int] | None:
    """(kind, name, field, value) of a limit that Slurm has words for."""
    kind = next((one for one in _KINDS if one in settings), "")
    consumer = settings.get(kind, "")
    items, duration = settings.get("items", "unlimited"), settings.get("duration", "none")
    resource = settings.get("resource", "*")
    if consumer in ("", "*") or settings.get("validity", "always") != "always":
        return None
    if settings.get("area", "none") != "none" or (items == "unlimited") == (duration == "none"):
        return None
    if items == "unlimited":
        return (
            (kind, consumer, WALL, parse_length(duration, WALL))
            if (kind, resource) == ("user", "cores")
            else None
        )
    if "%" in items or resource in ("*", "arrayjobs"):
        return None
    if resource == "jobs":
        return kind, consumer, SUBMIT, int(items)
    field = _TRES.get(resource, _GRES + resource)
    return kind, consumer, field, parse_memory(items) if field == MEM else int(items)


def _resource_of(field: str) -> str:
    if field == SUBMIT:
        return "jobs"
    return "cores" if field == WALL else _RESOURCES.get(field, field.removeprefix(_GRES))


def _setting(field: str, value: int) -> tuple[str, str]:
    if field == WALL:
        return "duration", length_text(value)
    return "items", format_memory(value) if field == MEM else str(value)


def read_tres(text: str, option: str) -> dict[str, int | None]:
    """The limits of `cpu=10,mem=4G,gres/gpu=2`; -1 ends one. Raises Unusable."""
    found: dict[str, int | None] = {}
    for part in listed(text):
        name, equals, count = part.lower().partition("=")
        field = name.replace("gres:", _GRES)
        is_known = field in _RESOURCES or (field.startswith(_GRES) and len(field) > len(_GRES))
        if not equals or not is_known:
            raise Unusable(
                f"sacctmgr: error: {option}={part} is not supported: use cpu=, mem=, node= or gres/NAME="
            )
        found[field] = read_count(count, f"{option}={name}", is_memory=field == MEM)
    if not found:
        raise Unusable(f"sacctmgr: error: Invalid value for {option} ({text})")
    return found


def read_count(text: str, option: str, *, is_memory: bool = False) -> int | None:
    """A number; -1: None, no limit. Raises Unusable."""
    if text.strip() == "-1":
        return None
    try:
        count = parse_memory(text) if is_memory else whole_number(text, 10)
    except OptionError:
        count = -1
    if count < 0:
        raise Unusable(f"sacctmgr: error: Invalid value for {option} ({text})")
    return count


def read_wall(text: str, option: str) -> int | None:
    """Seconds of a time in minutes or `D-HH:MM:SS`; -1: None. Raises Unusable."""
    if text.strip() in ("-1", "UNLIMITED", "unlimited"):
        return None
    try:
        seconds = parse_length(text, option)
    except OptionError:
        seconds = 0
    if seconds <= 0:
        raise Unusable(f" Bad {option} time format: {text}")
    return seconds


def tres_text(limits: Mapping[str, int]) -> str:
    """`cpu=10,mem=4G,node=2,gres/gpu=1`: in Slurm's order."""
    shown = [(name, limits[name]) for name in (CPU, MEM, NODE) if name in limits]
    shown += [(name, value) for name, value in sorted(limits.items()) if name.startswith(_GRES)]
    return ",".join(f"{name}={format_memory(value) if name == MEM else value}" for name, value in shown)


def lower_names(names: Sequence[str]) -> list[str]:
    """Names as sacctmgr makes them: in lower letters, each once."""
    return list(dict.fromkeys(name.lower() for name in names))
