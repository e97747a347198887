"""The flat file of `sacctmgr dump` and `load`: QOS, the tree of accounts and users, and their limits.

Invariant: a site that was loaded from a dump is dumped as the same text. What a file says and this site has no words for is
refused with its line; what the site has and the file has no words for is in `Site.others`.
"""

from __future__ import annotations

from contextlib import contextmanager

from eslurm.compat.lengths import parse_length
from eslurm.compat.slurm import associations as model
from eslurm.compat.slurm.abbreviated import Phrase, Unusable, Word, find, listed
from eslurm.compat.slurm.associations import ROOT, SUBMIT, WALL, Change
from eslurm.compat.slurm.fitted import lines as table_lines
from eslurm.compat.slurm.layout import padded_clock
from eslurm.compat.slurm.manager_fields import columns
from eslurm.compat.slurm.manager_qos import qos_settings
from eslurm.compat.slurm.manager_rows import limit_cells
from eslurm.compat.slurm.manager_steps import read_limits, read_shares
from eslurm.compat.slurm.manager_words import (
    ACCOUNT,
    ACCOUNT_LINES,
    CLUSTER,
    CLUSTER_LINES,
    QOS,
    SETTINGS,
    USER,
    Request,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import TypeAlias

    from eslurm.compat.slurm.associations import Site

    Refused: TypeAlias = tuple[int, str, Unusable]
    """The number of a line, an option of it as written, and why it is refused."""

LINE_MAX = 65_536
_HEADER = """\
# Accounts, users, QOS and limits of a cluster, for `sacctmgr load file=`.
# QOS - 'name':Description='text':Priority=10
# Cluster - 'name'
# Parent - 'root' begins the accounts and users below an account that stands above it.
# Account - 'name':Description='text':Organization='text':Fairshare=10:GrpTRES=cpu=100
# User - 'name':DefaultAccount='account':Fairshare=1:QOS='normal'
"""
_COORDINATOR = Word("Coordinator", 2, "coordinator", "")
_CLASSIFICATION = Word("Classification", 2, "none", "")
_WORDS: Mapping[str, tuple[Word, ...]] = {
    "qos": SETTINGS[QOS],
    "cluster": (_CLASSIFICATION, *CLUSTER_LINES),
    "parent": (),
    "account": ACCOUNT_LINES,
    "user": (_COORDINATOR, *SETTINGS[USER]),
}
_ALIASES = {"machine": "cluster", "project": "account"}
_LIMITS = (
    "Share,GrpTRESM,GrpTRESR,GrpTRES,GrpJ,GrpJobsA,GrpMEM,GrpN,GrpS,GrpW,MaxTRESM,MaxTRES,MaxTRESPerN,MaxJ,MaxS,MaxN,MaxW,"
    "QOS,DefaultQOS"
)


# ---- writing ----


def dump(site: Site, cluster: str) -> str:
    """The file of a site. Raises Unusable for a text that no quotes can hold."""
    found = [_HEADER]
    for name, settings in sorted(site.qos.items()):
        found.append(_entry("QOS", name, _qos_pairs(site, name, settings)))
    found.append(_entry("Cluster", cluster, [("Fairshare", "1")]))
    parent = ""
    for group, entries in _groups(site):
        if group != parent:
            found.append(f"Parent - {_quoted(group)}\n")
            parent = group
        found += entries
    return "".join(found)


def _groups(site: Site) -> Iterator[tuple[str, list[str]]]:
    """Each account with lines below it, in an order in which an account comes before those below it."""
    below: dict[str, list[str]] = {}
    for name in sorted(site.accounts):
        below.setdefault(site.parent_of(name), []).append(name)
    pending = [ROOT]
    while pending:
        group = pending.pop()
        users = site.users_in(group) if group in site.accounts else []
        entries = [_entry("User", user, _user_pairs(site, user)) for user in users]
        entries += [_entry("Account", name, _account_pairs(site, name)) for name in below.get(group, ())]
        if entries:
            yield group, entries
        pending += reversed(below.get(group, ()))


def _account_pairs(site: Site, name: str) -> list[tuple[str, str]]:
    limits = site.limits(ACCOUNT, name)
    return [
        ("Description", _quoted(site.description_of(name))),
        ("Organization", _quoted(site.organization_of(name))),
        ("Fairshare", site.accounts[name].get("shares", "1")),
        *_limit_pairs(limits, "GrpSubmitJobs"),
    ]


def _user_pairs(site: Site, user: str) -> list[tuple[str, str]]:
    accounts, qos, coordinated = site.accounts_of(user), site.qos_of(user), site.coordinated_by(user)
    pairs = [("DefaultAccount", _quoted(accounts[0]))]
    if coordinated:
        pairs.append(("Coordinator", _quoted(",".join(coordinated))))
    if qos:
        pairs.append(("DefaultQOS", _quoted(qos[0])))
    pairs.append(("Fairshare", site.users[user].get("shares", "1")))
    if len(accounts) == 1:
        pairs += _limit_pairs(site.limits(USER, user), "MaxSubmitJobs")
    if qos:
        pairs.append(("QOS", _quoted(",".join(qos))))
    return pairs


def _limit_pairs(limits: Mapping[str, int], submit: str) -> Iterator[tuple[str, str]]:
    tres = model.tres_text(limits)
    if tres:
        yield "GrpTRES", tres
    if SUBMIT in limits:
        yield submit, str(limits[SUBMIT])
    if WALL in limits:
        yield "MaxWallDurationPerJob", _minutes(limits[WALL])


def _qos_pairs(site: Site, name: str, settings: Mapping[str, str]) -> list[tuple[str, str]]:
    pairs = [("Description", _quoted(settings.get("description", "") or name))]
    grace = settings.get("preempt_grace", "site")
    if grace != "site":
        pairs.append(("GraceTime", str(parse_length(grace, "GraceTime"))))
    pairs += _limit_pairs(site.limits(QOS, name), "GrpSubmitJobs")
    longest, exempt = (parse_length(settings.get(key, "none"), key) for key in ("time_max", "preempt_exempt"))
    if longest:
        pairs.append(("MaxWallDurationPerJob", _minutes(longest)))
    if settings.get("preempts"):
        pairs.append(("Preempt", _quoted(settings["preempts"])))
    pairs.append(("PreemptMode", _quoted(settings.get("preempt_mode", "requeue"))))
    if exempt:
        pairs.append(("PreemptExemptTime", _minutes(exempt)))
    if settings.get("priority", "0") != "0":
        pairs.append(("Priority", settings["priority"]))
    if settings.get("usage_factor", "1") != "1":
        pairs.append(("UsageFactor", f"{float(settings['usage_factor']):.6f}"))
    return pairs


def _minutes(seconds: int) -> str:
    """Whole minutes as Slurm writes them; else a clock, quoted for its colons."""
    return str(seconds // 60) if seconds % 60 == 0 else f"'{padded_clock(seconds)}'"


def _entry(kind: str, name: str, pairs: Sequence[tuple[str, str]]) -> str:
    return f"{kind} - {_quoted(name)}" + "".join(f":{key}={value}" for key, value in pairs) + "\n"


def _quoted(text: str) -> str:
    for mark in "'\"":
        if mark not in text:
            return f"{mark}{text}{mark}"
    raise Unusable(f"sacctmgr: error: the text {text} has both kinds of quotes: change it with esctl first")


# ---- reading ----


class Entry:
    """A line of the file: what it is about, its name, the account above it, and its settings."""

    __slots__ = ("kind", "name", "number", "parent", "settings")

    def __init__(self, kind: str, name: str, number: int, parent: str, settings: list[Phrase]) -> None:
        self.kind = kind
        self.name = name
        self.number = number
        self.parent = parent
        self.settings = settings

    def request(self) -> Request:
        """The settings as a command would have them."""
        found = Request()
        found.settings = self.settings
        return found


def parse(text: str, refused: list[Refused] | None = None) -> list[Entry]:
    """The lines of a file but for comments and `Parent` lines. Raises Unusable with the line's number.

    With `refused` the options that this site has no words for are added there, and left out.
    """
    found: list[Entry] = []
    parent = ""
    known = {ROOT}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        head, dash, rest = line.partition("-")
        kind = _ALIASES.get(head.strip().lower(), head.strip().lower())
        if kind not in _WORDS or not dash or len(line) > LINE_MAX:
            raise Unusable(f" Misformatted line({number}): {line[:80]}")
        name, *options = _pieces(rest.strip(), number)
        if not name:
            raise Unusable(" No name given", f" Problem with line({number})")
        has_cluster = any(one.kind == CLUSTER for one in found)
        if kind == QOS and has_cluster:
            raise Unusable(" You need to specify all QOS before the 'Cluster - $NAME' in your file")
        if kind == CLUSTER and has_cluster:
            raise Unusable(" You can only add one cluster at a time.")
        if kind not in (QOS, CLUSTER) and not has_cluster:
            raise Unusable(" You need to specify a cluster name first with 'Cluster - $NAME' in your file")
        if kind == "parent":
            parent = name
            if parent not in known:
                raise Unusable(
                    f" line({number}) You need to add this parent ({parent}) as a child before you can add children to it."
                )
            continue
        if kind == ACCOUNT:
            known.add(name)
        found.append(
            Entry(kind, name, number, parent or ROOT, _options(kind, name, options, number, refused))
        )
    if not any(one.kind == CLUSTER for one in found):
        raise Unusable(" You need to specify a cluster name first with 'Cluster - $NAME' in your file")
    return found


def _pieces(text: str, number: int) -> list[str]:
    """The parts between colons, those in quotes whole; the first without its quotes."""
    found, start, mark = [], 0, ""
    for at, letter in enumerate(text):
        if mark:
            mark = "" if letter == mark else mark
        elif letter in "'\"":
            mark = letter
        elif letter == ":":
            found.append(text[start:at])
            start = at + 1
    if mark:
        raise Unusable(f" Problem with line({number}): quotes are not closed")
    found.append(text[start:])
    found[0] = found[0].strip().strip("'\"")
    return found


def _options(
    kind: str, owner: str, pieces: Sequence[str], number: int, refused: list[Refused] | None
) -> list[Phrase]:
    found = []
    for piece in pieces:
        try:
            found.append(_option(kind, owner, piece, number))
        except Unusable as problem:
            if refused is None:
                raise
            refused.append((number, piece, problem))
    return found


def _option(kind: str, owner: str, piece: str, number: int) -> Phrase:
    head, equals, value = piece.partition("=")
    name = head.strip()
    word = find(_WORDS[kind], name)
    if not equals:
        raise Unusable(
            f" Bad format on {piece}: End your option with an '=' sign", f" Problem with line({number})"
        )
    if word is None or word.key in ("name", "account", "cluster"):
        raise Unusable(f" Unknown option: {name}", f" Problem with line({number})")
    text = value.strip()
    if len(text) > 1 and text[0] in "'\"" and text[-1] == text[0]:
        text = text[1:-1]
    if word.key == "no":
        # The superuser is an administrator here in any case.
        if word.name == "AdminLevel" and (text.lower() == "none" or owner == ROOT):
            return Phrase(_CLASSIFICATION, "", text, piece)
        raise Unusable(f" {word.name} is not supported: {word.note}", f" Problem with line({number})")
    return Phrase(word, "", text, piece)


# ---- loading ----


def open_to(one: Entry, accounts: Mapping[str, Entry], clusters: Sequence[Entry]) -> tuple[str, list[str]]:
    """The default QOS of an association, and its QOS: its own, or those of the accounts above it, or of the cluster."""
    chain, seen = [one], {""}
    account = one.parent
    while account in accounts and account not in seen:
        seen.add(account)
        chain.append(accounts[account])
        account = accounts[account].parent
    found: list[str] = []
    default = ""
    for entry in (*reversed(clusters), *reversed(chain)):
        request = entry.request()
        default = request.value("defaultqos", default)
        if request.setting("qos") is None:
            continue
        names = listed(request.value("qos"))
        if not any(name[:1] in "+-" for name in names):
            found = []
        for name in names:
            bare = name.lstrip("+-")
            found = [other for other in found if other != bare]
            if name[:1] != "-":
                found.append(bare)
    return default, found


class Load:
    """The changes that make a site what a file says, and the text that tells of them. What the file does not name stays."""

    def __init__(self, site: Site, entries: Sequence[Entry]) -> None:
        self.changes: list[Change] = []
        self._site = site
        self._entries = entries
        self._changed: list[str] = []
        self._tables: list[str] = []
        self._accounts = {one.name: one for one in entries if one.kind == ACCOUNT}
        self._clusters = self._of(CLUSTER)
        self._read_qos()
        self._read_accounts()
        self._read_users()

    def text(self, cluster: str) -> str:
        """The tables of what is added, and lines for what changes; empty: nothing is new."""
        if not self.changes:
            return ""
        return f"For cluster {cluster}\n" + "".join(self._changed) + "".join(self._tables)

    def _read_qos(self) -> None:
        added = []
        for one in self._of(QOS):
            name = (
                self._site.qos_named(one.name)
                if self._site.qos_named(one.name) in self._site.qos
                else one.name
            )
            present = self._site.qos.get(name)
            with _line_of(one):
                self._qos(one, name, present)
            if present is None:
                added.append({"Name": name, "Priority": one.request().value("priority", "0")})
        self._table("QOS\n", "Name%20,Prio", added, "")

    def _qos(self, one: Entry, name: str, present: Mapping[str, str] | None) -> None:
        settings = qos_settings(self._site, one.request(), present or {})
        if present is None:
            self.changes.append(Change("add", QOS, name, *(pair for pair in settings if pair[1])))
        else:
            self._modify(QOS, name, settings, {**present, "description": present.get("description") or name})
        self._limit(QOS, name, one)

    def _limit(self, kind: str, name: str, one: Entry) -> None:
        present = self._site.limits(kind, name)
        wanted = {
            field: value
            for field, value in read_limits(one.request(), kind).items()
            if value != present.get(field)
        }
        made = self._site.limit_changes(kind, name, wanted)
        if made and name in {ACCOUNT: self._site.accounts, QOS: self._site.qos, USER: self._site.users}[kind]:
            self._changed.append(f"{' Changed limits':<30.30} for {kind:<7.7} {name:<10.10}\n")
        self.changes += made

    def _modify(
        self, kind: str, name: str, settings: Sequence[tuple[str, str]], present: Mapping[str, str]
    ) -> None:
        """Change the settings that differ; lengths and numbers are compared by their values."""
        made = [
            (key, value) for key, value in settings if _plain(key, value) != _plain(key, present.get(key, ""))
        ]
        if made:
            self.changes.append(Change("modify", kind, name, *made))
            self._changed += [
                f"{f' Changed {key}':<30.30} for {kind:<7.7} {name:<10.10} {present.get(key, ''):>8} -> {value}\n"
                for key, value in made
            ]

    def _read_accounts(self) -> None:
        site = self._site
        coordinators: dict[str, list[str]] = {}
        for one in self._of(USER):
            for account in listed(one.request().value("coordinator")):
                names = coordinators.setdefault(account, [])
                if one.name not in names:
                    names.append(one.name)
        rows, tree = [], []
        for one in self._accounts.values():
            request = one.request()
            with _line_of(one):
                shares = read_shares(request)
            parent = "" if one.parent == ROOT else one.parent
            settings = [("parent", parent)]
            settings += [("shares", shares)] if shares else []
            settings += [
                (key, request.value(key)) for key in ("description", "organization") if request.setting(key)
            ]
            people = coordinators.pop(one.name, [])
            if one.name not in site.accounts:
                settings += [("coordinators", ",".join(people))]
                self.changes.append(Change("add", ACCOUNT, one.name, *(pair for pair in settings if pair[1])))
                organization = request.value("organization") or (parent or one.name)
                description = request.value("description") or one.name
                rows.append({"Name": one.name, "Descr": description, "Org": organization})
                cells = limit_cells(_numbers(read_limits(request, ACCOUNT)))
                tree.append({"Account": one.name, "ParentName": one.parent, "Share": shares or "1", **cells})
            else:
                shown = {
                    "description": site.description_of(one.name),
                    "organization": site.organization_of(one.name),
                    "shares": site.accounts[one.name].get("shares", "1"),
                    "parent": site.accounts[one.name].get("parent", ""),
                }
                self._modify(ACCOUNT, one.name, settings, shown)
                self._coordinate(one.name, people)
            with _line_of(one):
                self._limit(ACCOUNT, one.name, one)
        for account, people in coordinators.items():
            self._coordinate(account, people)
        self._table("Accounts\n", "Name,Description,Organization,QOS", rows, "-" * 51)
        self._table("Account Associations\n", f"Account,ParentName,{_LIMITS}", tree, "-" * 62)

    def _coordinate(self, account: str, people: Sequence[str]) -> None:
        present = listed(self._site.accounts.get(account, {}).get("coordinators", ""))
        new = [user for user in people if user not in present]
        if new:
            self.changes.append(Change("modify", ACCOUNT, account, ("coordinators+", ",".join(new))))

    def _read_users(self) -> None:
        by_name: dict[str, list[Entry]] = {}
        for one in self._of(USER):
            if one.parent != ROOT:
                by_name.setdefault(one.name, []).append(one)
            elif one.name != ROOT:
                raise Unusable(
                    f" user {one.name} is in the root account, which has no users here",
                    f" Problem with line({one.number})",
                )
        rows, tree = [], []
        for name, lines in by_name.items():
            is_new, before = name not in self._site.users, self._site.accounts_of(name)
            accounts, shares, qos = self._user(name, lines)
            if is_new:
                coordinated = ",".join(dict.fromkeys(one.request().value("coordinator") for one in lines))
                rows.append(
                    {"Name": name, "Def Acct": accounts[0], "Admin": "None", "Coord Accounts": coordinated}
                )
            for one in lines:
                if one.parent in before:
                    continue
                cells = limit_cells(_numbers(read_limits(one.request(), USER)))
                cells |= {
                    "MaxSubmit": cells.pop("GrpSubmit", ""),
                    "QOS": ",".join(qos),
                    "Def QOS": (qos or [""])[0],
                }
                tree.append({"User": name, "Account": one.parent, "Share": shares or "1", **cells})
        self._table("Users\n", "Name,DefaultA,DefaultW,QOS,Admin,Coord", rows, "-" * 51)
        self._table("User Associations\n", f"User,Account,{_LIMITS}", tree, "-" * 62)

    def _user(self, name: str, lines: Sequence[Entry]) -> tuple[list[str], str, list[str]]:
        site, first = self._site, lines[0]
        present = site.accounts_of(name)
        accounts = list(dict.fromkeys((*present, *(one.parent for one in lines))))
        default = next((text for one in lines if (text := one.request().value("defaultaccount"))), "")
        if default and default not in accounts:
            raise Unusable(
                f" DefaultAccount={default} is none of the user's accounts",
                f" Problem with line({first.number})",
            )
        if default:
            accounts = [default, *(one for one in accounts if one != default)]
        shares, qos_lists = set(), set()
        for one in lines:
            with _line_of(one):
                shares.add(read_shares(one.request()))
                qos_lists.add(self._qos_of(one))
        shares.discard("")
        if len(shares) > 1 or len(qos_lists) > 1:
            what = "Fairshare" if len(shares) > 1 else "QOS"
            raise Unusable(
                f" {what} of user {name} is another one in each account: here a user has one for all accounts",
                f" Problem with line({lines[-1].number})",
            )
        share, qos = next(iter(shares), ""), list(next(iter(qos_lists)))
        settings = [("accounts", ",".join(accounts))]
        settings += [("shares", share)] if share else []
        settings += [("qos", ",".join(qos))] if qos else []
        if name not in site.users:
            self.changes.append(Change("add", USER, name, *settings))
        else:
            self._modify(USER, name, settings, {"shares": "1", **site.users[name]})
        for one in lines:
            with _line_of(one):
                if read_limits(one.request(), USER) and len(accounts) > 1:
                    raise Unusable(
                        f" user {name} has {len(accounts)} accounts, and a limit of a user here is on all of them together"
                    )
                self._limit(USER, name, one)
        return accounts, share, qos

    def _qos_of(self, one: Entry) -> tuple[str, ...]:
        """The QOS of an association, the default first."""
        default, found = open_to(one, self._accounts, self._clusters)
        if default and default not in found:
            raise Unusable(f" DefaultQOS={default} is none of the QOS: {','.join(found) or 'none'}")
        return (default, *(name for name in found if name != default)) if default else tuple(found)

    def _of(self, kind: str) -> list[Entry]:
        return [one for one in self._entries if one.kind == kind]

    def _table(self, title: str, heads: str, rows: Sequence[Mapping[str, str]], rule: str) -> None:
        if not rows:
            return
        shown = columns(heads)
        cells = [[row.get(head, "") for head, _ in shown] for row in rows]
        end = f"{rule}\n\n" if rule else ""
        self._tables.append(title + "".join(table_lines(shown, cells, has_header=True)) + end)


def _numbers(limits: Mapping[str, int | None]) -> dict[str, int]:
    return {field: value for field, value in limits.items() if value is not None}


@contextmanager
def _line_of(one: Entry) -> Iterator[None]:
    """Refusals within name the line."""
    try:
        yield
    except Unusable as problem:
        raise Unusable(*problem.lines, f" Problem with line({one.number})") from None


_LENGTHS = ("time_max", "preempt_exempt", "preempt_grace")


def _plain(key: str, value: str) -> object:
    if key in _LENGTHS and value not in ("site", ""):
        return parse_length(value, key)
    if key == "usage_factor" and value:
        return float(value)
    return tuple(listed(value)) if key in ("accounts", "qos", "preempts") else value
