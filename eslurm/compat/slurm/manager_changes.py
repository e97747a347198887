"""Changes of `sacctmgr add`, `modify` and `delete`, and Slurm's texts of them.

Invariant: a request that would mean something else here than in Slurm raises Unusable and changes nothing.
"""

from __future__ import annotations

from eslurm.compat.slurm import associations as model
from eslurm.compat.slurm.abbreviated import Unusable, listed
from eslurm.compat.slurm.associations import MEM, ROOT, SUBMIT, WALL, Change
from eslurm.compat.slurm.manager_words import ACCOUNT, QOS, USER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eslurm.compat.slurm.associations import Site
    from eslurm.compat.slurm.manager_words import Request

_OLD = "22.05"
_NO_REMOVE = " Error with request: You can not remove the default account of a user"


class Step:
    """Changes that are made together after one question. `text` is printed before it, `trouble` before a refusal's text."""

    __slots__ = ("changes", "text", "trouble")

    def __init__(self, text: str, changes: Sequence[Change], trouble: str = " Error with request: ") -> None:
        self.text = text
        self.changes = list(changes)
        self.trouble = trouble


class Nothing(Exception):
    """Nothing is to be done; `text` is printed, and the exit code is 1."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def check_cluster(request: Request, cluster: str) -> None:
    """Check that only this cluster is named. Raises Unusable."""
    for name in (*request.names("cluster"), *(request.chosen("cluster") or ())):
        if name != cluster:
            raise Unusable(
                f" This cluster '{name}' doesn't exist.",
                "        Contact your admin to add it to accounting.",
            )


# ---- limits ----


def read_limits(request: Request, kind: str) -> dict[str, int | None]:
    """The limits that the settings name."""
    found: dict[str, int | None] = {}
    for one in request.settings:
        option = one.word.name
        if one.key == "tres":
            found.update(model.read_tres(one.value, option))
        elif one.key in ("cpu", "mem", "node"):
            found[one.key] = model.read_count(one.value, option, is_memory=one.key == MEM)
        elif one.key == SUBMIT or (one.key == "maxsubmit" and kind == USER):
            found[SUBMIT] = model.read_count(one.value, option)
        elif one.key == "maxwall" and kind == USER:
            found[WALL] = model.read_wall(one.value, option)
    return found


def _limit_lines(limits: Mapping[str, int | None], head: int, submit: str = "GrpSubmitJobs") -> list[str]:
    tres = {name: value for name, value in limits.items() if name not in (SUBMIT, WALL)}
    lines = []
    if SUBMIT in limits:
        lines.append(_line(submit, "NONE" if limits[SUBMIT] is None else str(limits[SUBMIT]), head))
    if tres:
        ended = [f"{name}=-1" for name, value in tres.items() if value is None]
        kept = model.tres_text({name: value for name, value in tres.items() if value is not None})
        lines.append(_line("GrpTRES", ",".join(filter(None, (kept, *ended))), head))
    if WALL in limits:
        seconds = limits[WALL]
        lines.append(_line("MaxWall", "NONE" if seconds is None else wall_text(seconds), head))
    return lines


def _line(name: str, value: str, head: int) -> str:
    return f"  {name:<{head}}= {value}\n"


def wall_text(seconds: int) -> str:
    """`1-02:00:00`: a time of limits."""
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    clock = f"{hour:02}:{minute:02}:{second:02}"
    return f"{days}-{clock}" if days else clock


def read_shares(request: Request) -> str:
    """The shares that a setting gives; empty: none."""
    found = request.setting("fairshare")
    if found is None:
        return ""
    if not found.value.isdecimal() or not int(found.value):
        raise Unusable(
            f"sacctmgr: error: Fairshare={found.value} is not supported: shares are whole numbers from 1"
        )
    return found.value


# ---- accounts ----


def add_accounts(site: Site, request: Request, cluster: str, release: str = "") -> Step:
    """The step that adds accounts, in the words of a release. Raises Unusable, Nothing."""
    check_cluster(request, cluster)
    names = model.lower_names(request.names())
    if not names:
        raise Unusable(" Need name of account to add.")
    parent = site.account_named(request.value("parent", ROOT))
    shares, limits = read_shares(request), read_limits(request, ACCOUNT)
    new = [name for name in names if name != ROOT and site.account_named(name) not in site.accounts]
    if not new:
        raise Nothing(" Nothing new added.\n")
    description, organization = (request.value(key).lower() for key in ("description", "organization"))
    settings = [
        (key, value)
        for key, value in (
            ("parent", "" if parent == ROOT else parent),
            ("shares", shares),
            ("description", description),
            ("organization", organization),
        )
        if value
    ]
    changes = [Change("add", ACCOUNT, name, *settings) for name in new]
    for name in new:
        changes += site.limit_changes(ACCOUNT, name, _added(limits))
    text = " Adding Account(s)\n" + "".join(f"  {name}\n" for name in new)
    text += " Settings\n" + _line("Description", description or "Account Name", 16)
    text += _line("Organization", organization or "Parent/Account Name", 16)
    if release == _OLD:
        text += " Associations\n" + "".join(f"  A = {name:<10.10} C = {cluster:<10.10}\n" for name in new)
    else:
        text += " Associations =\n" + "".join(f"  C = {cluster:<10} A = {name:<20}\n" for name in new)
    lines = [_line("Fairshare", shares, 14)] if shares else []
    lines += _limit_lines(limits, 14)
    if parent != ROOT:
        lines.append(_line("Parent", parent, 14))
    if lines:
        text += " Settings\n" + "".join(lines)
    return Step(text, changes, " error: Problem adding account associations: ")


def _added(limits: Mapping[str, int | None]) -> dict[str, int | None]:
    """The limits of something new: there are none to be ended."""
    return {field: value for field, value in limits.items() if value is not None}


def chosen_accounts(site: Site, request: Request) -> list[str]:
    """The accounts that the conditions choose."""
    names = request.chosen("name")
    wanted = None if names is None else {site.account_named(name) for name in names}
    found = [name for name in sorted(site.accounts) if wanted is None or name in wanted]
    checks: tuple[tuple[str, Callable[[str], str]], ...] = (
        ("description", site.description_of),
        ("organization", site.organization_of),
        ("parent", site.parent_of),
    )
    for key, read in checks:
        values = request.chosen(key)
        if values is not None:
            lowered = {value.lower() for value in values}
            found = [name for name in found if read(name).lower() in lowered]
    return found


def modify_accounts(site: Site, request: Request, cluster: str) -> list[Step]:
    """The steps that change accounts: what is the account's, then what is of its association. Raises Unusable, Nothing."""
    check_cluster(request, cluster)
    if request.setting("name") or request.setting("cluster"):
        what = "name" if request.setting("name") else "cluster"
        raise Unusable(f" Can't modify the {what} of an account")
    shares, limits = read_shares(request), read_limits(request, ACCOUNT)
    names = chosen_accounts(site, request)
    steps = []
    own = [
        (key, request.value(key).lower()) for key in ("description", "organization") if request.setting(key)
    ]
    if own:
        steps.append(
            _step(" Modified accounts...\n", names, [Change("modify", ACCOUNT, name, *own) for name in names])
        )
    settings = [("shares", shares)] if shares else []
    if request.setting("parent"):
        parent = site.account_named(request.value("parent"))
        settings.append(("parent", "" if parent == ROOT else parent))
    if settings or limits:
        changes = [Change("modify", ACCOUNT, name, *settings) for name in names if settings]
        for name in names:
            changes += site.limit_changes(ACCOUNT, name, limits)
        shown = [f"C = {cluster:<10} A = {name} of {site.parent_of(name)}" for name in names]
        steps.append(_step(" Modified account associations...\n", shown, changes))
    return _something(steps)


def _something(steps: list[Step]) -> list[Step]:
    if not steps:
        raise Unusable(" You didn't give me anything to set")
    return steps


def _step(head: str, names: Sequence[str], changes: Sequence[Change]) -> Step:
    if not names:
        raise Nothing(f"{head}  Nothing modified\n")
    return Step(head + "".join(f"  {name}\n" for name in names), changes)


def _conditions(request: Request) -> None:
    if not request.conditions:
        raise Unusable(" No conditions given to remove, not executing.")


def delete_accounts(site: Site, request: Request, cluster: str) -> Step:
    """The step that removes accounts, and takes them from their users. Raises Unusable, Nothing."""
    check_cluster(request, cluster)
    _conditions(request)
    if ROOT in [name.lower() for name in request.chosen("name") or ()]:
        raise Unusable(" You are not allowed to remove the root account.", " Use remove cluster instead.")
    names = chosen_accounts(site, request)
    if not names:
        raise Nothing(" Nothing deleted\n")
    defaults = [
        _of_user(cluster, user, account)
        for account in names
        for user in site.users_in(account)
        if site.accounts_of(user)[0] == account
    ]
    if defaults:
        raise Unusable(
            _NO_REMOVE,
            *(f"  {one}" for one in defaults),
            " Please either remove the accounts listed above from list and resubmit,",
            " or change these users' default accounts to remove the account(s).",
            " Changes Discarded",
        )
    users = dict.fromkeys(user for account in names for user in site.users_in(account))
    changes = [
        Change(
            "modify", USER, user, ("accounts", ",".join(a for a in site.accounts_of(user) if a not in names))
        )
        for user in users
    ]
    for name in names:
        changes += [*site.without_limits(ACCOUNT, name), Change("delete", ACCOUNT, name)]
    return Step(" Deleting accounts...\n" + "".join(f"  {name}\n" for name in names), changes)


def _of_user(cluster: str, user: str, account: str, width: int = 10) -> str:
    return f"C = {cluster:<10} A = {account:<{width}} U = {user:<9}"


# ---- users ----


def add_users(site: Site, request: Request, cluster: str, release: str = "") -> Step:
    """The step that adds users, or accounts to users, in the words of a release. Raises Unusable, Nothing."""
    check_cluster(request, cluster)
    names = request.names()
    accounts = [site.account_named(name) for name in request.names("account")]
    if not names:
        raise Unusable(" Need name of user to add.")
    if not accounts:
        raise Unusable(" Need name of account or wckey to add.")
    default = site.account_named(request.value("defaultaccount")) if request.setting("defaultaccount") else ""
    if default and default not in accounts:
        raise Unusable(
            f"sacctmgr: error: DefaultAccount={default} is not supported: name it among the accounts, too"
        )
    shares, limits = read_shares(request), _added(read_limits(request, USER))
    qos = _user_qos(site, request)
    changes: list[Change] = []
    added, pairs = [], []
    for name in names:
        present = site.accounts_of(name)
        new = [account for account in accounts if account not in present]
        pairs += [(name, account) for account in new]
        if name not in site.users:
            added.append(name)
            ordered = [default, *(one for one in accounts if one != default)] if default else accounts
            settings = [("accounts", ",".join(ordered)), ("shares", shares), ("qos", ",".join(qos or ()))]
            changes.append(Change("add", USER, name, *(one for one in settings if one[1])))
        elif new:
            changes.append(_with_accounts(site, name, new, default))
            _check_same(site, name, shares, qos)
        if new and limits:
            _check_one_account(name, len(present) + len(new))
            changes += site.limit_changes(USER, name, limits)
    if not pairs:
        raise Nothing(" Nothing new added.\n")
    text = ""
    if added:
        text = " Adding User(s)\n" + "".join(f"  {name}\n" for name in added)
        head = " Settings =\n" if release == _OLD else " Settings\n"
        text += head + _line("Default Account", default or accounts[0], 16)
    text += " Associations =\n"
    for user, account in pairs:
        if release == _OLD:
            text += f"  U = {user:<9.9} A = {account:<10.10} C = {cluster:<10.10}\n"
        else:
            text += f"  {_of_user(cluster, user, account, 20)}\n"
    lines = [_line("Fairshare", shares, 14)] if shares else []
    lines += _limit_lines(limits, 14, "MaxSubmitJobs")
    if request.setting("qos"):
        lines.append(_line("QOS", ",".join(qos or ()), 14))
    if request.setting("defaultqos"):
        lines.append(_line("DefQOS", request.value("defaultqos"), 14))
    if lines:
        text += " Non Default Settings\n" + "".join(lines)
    return Step(text, changes, " error: Problem adding user associations: ")


def _with_accounts(site: Site, user: str, new: Sequence[str], default: str) -> Change:
    if site.limits(USER, user):
        raise Unusable(
            f"sacctmgr: error: user {user} has limits, which would be on all accounts together: end them first, or use "
            f"esctl user modify {user} accounts+={','.join(new)}"
        )
    if not default:
        return Change("modify", USER, user, ("accounts+", ",".join(new)))
    rest = [one for one in (*site.accounts_of(user), *new) if one != default]
    return Change("modify", USER, user, ("accounts", ",".join((default, *rest))))


def _check_same(site: Site, user: str, shares: str, qos: Sequence[str] | None) -> None:
    """Check that an association to be added has the user's shares and QOS: there is one of each."""
    if shares and shares != site.users[user].get("shares", "1"):
        raise Unusable(
            f"sacctmgr: error: Fairshare={shares} is not supported: user {user} has shares for all its accounts: "
            f"use sacctmgr modify user {user} set fairshare={shares}"
        )
    if qos is not None and qos != site.qos_of(user):
        raise Unusable(
            f"sacctmgr: error: QOS={','.join(qos)} is not supported: user {user} has QOS for all its accounts: "
            f"use sacctmgr modify user {user} set qos={','.join(qos)}"
        )


def _check_one_account(user: str, accounts: int) -> None:
    if accounts > 1:
        raise Unusable(
            f"sacctmgr: error: limits of user {user} are not supported: it has {accounts} accounts, and a limit of a user "
            "is on all of them together: use esctl limit add"
        )


def _user_qos(site: Site, request: Request, present: Sequence[str] = ()) -> list[str] | None:
    """A user's QOS after `qos=`, `+=`, `-=` and `DefaultQOS=`, the default first; None: they stay."""
    found = list(present)
    is_changed = False
    for one in request.settings:
        if one.key == "qos":
            found, is_changed = (
                _merged(found, [site.qos_named(name) for name in listed(one.value)], one.sign),
                True,
            )
    default = request.setting("defaultqos")
    if default is not None:
        name = site.qos_named(default.value)
        if name not in found:
            raise Unusable(
                f"sacctmgr: error: DefaultQOS={default.value} is none of the QOS: {','.join(found) or 'none'}"
            )
        found, is_changed = [name, *(one for one in found if one != name)], True
    return found if is_changed else None


def _merged(present: Sequence[str], names: Sequence[str], sign: str) -> list[str]:
    if sign == "+":
        return list(dict.fromkeys((*present, *names)))
    if sign == "-":
        return [one for one in present if one not in names]
    return list(dict.fromkeys(names))


def chosen_users(site: Site, request: Request) -> list[str]:
    """The users that the conditions choose, but for those on accounts."""
    names = request.chosen("name")
    defaults = request.chosen("defaultaccount")
    default_qos, qos = request.chosen("defaultqos"), request.chosen("qos")
    found = []
    for name in sorted(site.users):
        accounts, open_to = site.accounts_of(name), site.qos_of(name)
        if names is not None and name not in names:
            continue
        if defaults is not None and accounts[:1] not in [[site.account_named(one)] for one in defaults]:
            continue
        if default_qos is not None and open_to[:1] not in [[site.qos_named(one)] for one in default_qos]:
            continue
        if qos is not None and not {site.qos_named(one) for one in qos} & set(open_to):
            continue
        found.append(name)
    return found


def chosen_pairs(site: Site, request: Request) -> list[tuple[str, str]]:
    """The associations (user, account) that the conditions choose."""
    accounts = request.chosen("account")
    wanted = None if accounts is None else {site.account_named(one) for one in accounts}
    return [
        (user, account)
        for user in chosen_users(site, request)
        for account in site.accounts_of(user)
        if wanted is None or account in wanted
    ]


def modify_users(site: Site, request: Request, cluster: str) -> list[Step]:
    """The steps that change users: what is the user's, then what is of its associations. Raises Unusable, Nothing."""
    check_cluster(request, cluster)
    for key, what in (("name", "name"), ("account", "account"), ("cluster", "cluster")):
        if request.setting(key):
            raise Unusable(f" Can't modify the {what} of an user")
    shares, limits = read_shares(request), read_limits(request, USER)
    pairs = chosen_pairs(site, request)
    users = (
        list(dict.fromkeys(user for user, _ in pairs))
        if request.has("account")
        else chosen_users(site, request)
    )
    steps = []
    if request.setting("defaultaccount"):
        if request.has("account"):
            raise Unusable(
                "sacctmgr: error: where account= with DefaultAccount is not supported: use where defaultaccount="
            )
        steps.append(_new_default(site, users, site.account_named(request.value("defaultaccount"))))
    has_qos = bool(request.setting("qos") or request.setting("defaultqos"))
    if shares or limits or has_qos:
        changes: list[Change] = []
        for user in users:
            accounts = site.accounts_of(user)
            if len([one for one, _ in pairs if one == user]) < len(accounts):
                raise Unusable(
                    f"sacctmgr: error: where account= is not supported here: user {user} has other accounts, too, "
                    "and shares, QOS and limits for all of them"
                )
            settings = [("shares", shares)] if shares else []
            qos = _user_qos(site, request, site.qos_of(user))
            settings += [("qos", ",".join(qos))] if qos is not None else []
            if settings:
                changes.append(Change("modify", USER, user, *settings))
            if limits:
                _check_one_account(user, len(accounts))
                changes += site.limit_changes(USER, user, limits)
        shown = [_of_user(cluster, user, account, 20) for user, account in pairs]
        steps.append(_step(" Modified user associations...\n", shown, changes))
    return _something(steps)


def _new_default(site: Site, users: Sequence[str], default: str) -> Step:
    changes = []
    for user in users:
        accounts = site.accounts_of(user)
        if default not in accounts:
            raise Unusable(
                f" User '{user}' can't be associated with default account '{default}': it has {','.join(accounts) or 'none'}"
            )
        rest = [one for one in accounts if one != default]
        changes.append(Change("modify", USER, user, ("accounts", ",".join((default, *rest)))))
    return _step(" Modified users...\n", users, changes)


def delete_users(site: Site, request: Request, cluster: str) -> Step:
    """The step that removes users, or accounts from users. Raises Unusable, Nothing."""
    check_cluster(request, cluster)
    _conditions(request)
    if not request.has("account"):
        users = chosen_users(site, request)
        if not users:
            raise Nothing(" Nothing deleted\n")
        text = " Deleting users...\n" + "".join(f"  {name}\n" for name in users)
        return Step(text, [change for user in users for change in _without_user(site, user)])
    pairs = chosen_pairs(site, request)
    if not pairs:
        raise Nothing(" Nothing deleted\n")
    left = {user: [one for one in site.accounts_of(user) if (user, one) not in pairs] for user, _ in pairs}
    defaults = [(user, one) for user, one in pairs if left[user] and site.accounts_of(user)[0] == one]
    if defaults:
        raise Unusable(
            _NO_REMOVE,
            *(f"  {_of_user(cluster, user, account)}" for user, account in defaults),
            " You must change the default account of these users or remove the users completely from the affected "
            "clusters to allow these changes.",
            " Changes Discarded",
        )
    text = " Deleting user associations...\n"
    text += "".join(f"  {_of_user(cluster, user, account)}\n" for user, account in pairs)
    gone = [user for user, accounts in left.items() if not accounts]
    if gone:
        text += " Deleting users (No Associations)...\n" + "".join(f"  {user}\n" for user in gone)
    changes = [
        Change("modify", USER, user, ("accounts", ",".join(accounts)))
        for user, accounts in left.items()
        if accounts
    ]
    return Step(text, [*changes, *(change for user in gone for change in _without_user(site, user))])


def _without_user(site: Site, user: str) -> list[Change]:
    """The changes after which nothing of a user is left."""
    return [
        *(
            Change("modify", ACCOUNT, account, ("coordinators-", user))
            for account in site.coordinated_by(user)
        ),
        *site.without_limits(USER, user),
        Change("delete", USER, user),
    ]


# ---- classes of service ----

_QOS_KEYS: Mapping[str, str] = {
    "description": "description",
    "gracetime": "preempt_grace",
    "maxwall": "time_max",
    "preempt": "preempts",
    "preemptmode": "preempt_mode",
    "preemptexempt": "preempt_exempt",
    "priority": "priority",
    "usagefactor": "usage_factor",
}
_QOS_HEADS: Mapping[str, str] = {
    "gracetime": "GraceTime",
    "maxwall": "MaxWall",
    "preempt": "Preempt",
    "preemptmode": "PreemptMode",
    "preemptexempt": "PreemptExemptTime",
    "priority": "Priority",
    "usagefactor": "UsageFactor",
}


def qos_settings(site: Site, request: Request, present: Mapping[str, str]) -> list[tuple[str, str]]:
    """The settings of a QOS in the words of esctl."""
    found: dict[str, str] = {}
    for one in request.settings:
        key = _QOS_KEYS.get(one.key)
        if key is None:
            continue
        value = one.value
        if one.key == "description":
            value = value.lower()
        elif one.key == "gracetime":
            value = "site" if value == "-1" else f"{model.read_count(value, one.word.name)}s"
        elif one.key in ("maxwall", "preemptexempt"):
            seconds = model.read_wall(value, one.word.name)
            value = "none" if seconds is None else f"{seconds}s"
        elif one.key == "preempt":
            names = [] if value == "-1" else [site.qos_named(name) for name in listed(value)]
            value = ",".join(_merged(listed(found.get(key, present.get(key, ""))), names, one.sign))
        elif one.key == "preemptmode":
            value = value.lower()
            if value not in ("cancel", "requeue", "suspend", "off"):
                raise Unusable(f" Bad Preempt Mode given: {value}")
        elif one.key == "priority":
            value = "0" if value == "-1" else value
        elif one.key == "usagefactor":
            value = "1" if value == "-1" else value
        found[key] = value
    return list(found.items())


def add_qos(site: Site, request: Request, cluster: str, release: str = "") -> Step:
    """The step that adds classes of service; all clusters have them, in the same words. Raises Unusable, Nothing."""
    del cluster, release
    names = model.lower_names(request.names())
    if not names:
        raise Unusable(" Need name of qos to add.")
    new = [name for name in names if site.qos_named(name) not in site.qos]
    limits = _added(read_limits(request, QOS))
    settings = qos_settings(site, request, {})
    if not new:
        raise Nothing(" Nothing new added.\n")
    changes = [Change("add", QOS, name, *(one for one in settings if one[1])) for name in new]
    for name in new:
        changes += site.limit_changes(QOS, name, limits)
    text = " Adding QOS(s)\n" + "".join(f"  {name}\n" for name in new) + " Settings\n"
    text += _line("Description", request.value("description").lower() or new[-1], 15)
    lines = _limit_lines(limits, 25)
    shown = dict(settings)
    for key, head in _QOS_HEADS.items():
        value = shown.get(_QOS_KEYS[key])
        if value is not None:
            is_length = key in ("maxwall", "preemptexempt") and value != "none"
            lines.append(
                _line(head, wall_text(int(value[:-1])) if is_length else value.removesuffix("s"), 25)
            )
    return Step(text + "".join(lines), changes, " Problem adding QOS: ")


def chosen_qos(site: Site, request: Request) -> list[str]:
    """The classes of service that the conditions choose."""
    names, modes, described = (request.chosen(key) for key in ("name", "preemptmode", "description"))
    wanted = None if names is None else {site.qos_named(name) for name in names}
    return [
        name
        for name, settings in sorted(site.qos.items())
        if (wanted is None or name in wanted)
        and (modes is None or settings.get("preempt_mode", "") in [mode.lower() for mode in modes])
        and (
            described is None
            or (settings.get("description", "") or name).lower() in [d.lower() for d in described]
        )
    ]


def modify_qos(site: Site, request: Request, cluster: str) -> list[Step]:
    """The step that changes classes of service, which all clusters have. Raises Unusable, Nothing."""
    del cluster
    if request.setting("name"):
        raise Unusable(" Can't modify the name of a qos")
    names = chosen_qos(site, request)
    limits = read_limits(request, QOS)
    if not (limits or qos_settings(site, request, {})):
        raise Unusable(" You didn't give me anything to set")
    if not names:
        raise Nothing("  Nothing modified\n")
    changes: list[Change] = []
    for name in names:
        settings = qos_settings(site, request, site.qos[name])
        if settings:
            changes.append(Change("modify", QOS, name, *settings))
        changes += site.limit_changes(QOS, name, limits)
    return [Step(" Modified qos...\n" + "".join(f"  {name}\n" for name in names), changes)]


def delete_qos(site: Site, request: Request, cluster: str) -> Step:
    """The step that removes classes of service, and takes them from users. Raises Unusable, Nothing."""
    _conditions(request)
    names = chosen_qos(site, request)
    if not names:
        raise Nothing("  Nothing deleted\n")
    defaults = [
        _of_user(cluster, user, account)
        for user in sorted(site.users)
        for account in site.accounts_of(user)
        if site.qos_of(user)[:1] and site.qos_of(user)[0] in names
    ]
    if defaults:
        raise Unusable(
            " Error with request: You can not remove the default qos of an association",
            *(f"  {one}" for one in defaults),
            " Please either remove the qos' listed above from list and resubmit,",
            " or change the default qos to remove the qos.",
            " Changes Discarded",
        )
    changes = [
        Change("modify", USER, user, ("qos-", ",".join(gone)))
        for user in sorted(site.users)
        if (gone := [name for name in names if name in site.qos_of(user)])
    ]
    changes += [
        Change("modify", QOS, other, ("preempts-", ",".join(gone)))
        for other, settings in sorted(site.qos.items())
        if other not in names
        and (gone := [name for name in names if name in listed(settings.get("preempts", ""))])
    ]
    for name in names:
        changes += [*site.without_limits(QOS, name), Change("delete", QOS, name)]
    return Step(" Deleting QOS(s)...\n" + "".join(f"  {name}\n" for name in names), changes)


# ---- coordinators ----


def change_coordinators(site: Site, request: Request, *, is_added: bool) -> Step:
    """The step that makes users coordinators of accounts, or no more. Raises Unusable, Nothing."""
    users, accounts = (request.chosen(key) or [] for key in ("name", "account"))
    accounts = [site.account_named(name) for name in accounts]
    if is_added:
        if not users or not accounts:
            raise Unusable(" You need to specify a user list and an account list here.")
        text = " Adding Coordinator User(s)\n" + "".join(f"  {name}\n" for name in users)
        text += " To Account(s) and all sub-accounts\n" + "".join(f"  {name}\n" for name in accounts)
        changes = [Change("modify", ACCOUNT, name, ("coordinators+", ",".join(users))) for name in accounts]
        return Step(text, changes, " Problem adding coordinator: ")
    if not users and not accounts:
        raise Unusable(" You need to specify a user list or an account list here.")
    text = ""
    if users:
        text = " Removing Coordinators with user name\n" + "".join(f"  {name}\n" for name in users)
        where = "".join(f"  {name}\n" for name in accounts)
        text += f" From Account(s)\n{where}" if accounts else " From all accounts\n"
    else:
        text = " Removing all users from Accounts\n" + "".join(f"  {name}\n" for name in accounts)
    changes, removed = [], []
    for name in accounts or sorted(site.accounts):
        present = listed(site.accounts.get(name, {}).get("coordinators", ""))
        gone = [user for user in present if not users or user in users]
        if gone:
            changes.append(Change("modify", ACCOUNT, name, ("coordinators-", ",".join(gone))))
            removed += [f"  U = {user:<9} A = {name:<10}\n" for user in gone]
    if not changes:
        raise Nothing(f"{text} Nothing removed\n")
    return Step(f"{text} Removed Coordinators (sub accounts not listed)...\n{''.join(removed)}", changes)
