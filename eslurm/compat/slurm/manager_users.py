"""Changes of users and of their associations with accounts by sacctmgr."""

from __future__ import annotations

from eslurm.compat.slurm.abbreviated import Unusable, listed
from eslurm.compat.slurm.associations import Change
from eslurm.compat.slurm.manager_steps import (
    NO_REMOVE,
    OLD,
    Nothing,
    Step,
    check_cluster,
    check_conditions,
    limit_lines,
    line,
    merged,
    of_user,
    read_limits,
    read_shares,
    something,
    step,
    without_ends,
)
from eslurm.compat.slurm.manager_words import ACCOUNT, USER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from eslurm.compat.slurm.associations import Site
    from eslurm.compat.slurm.manager_words import Request


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
    shares, limits = read_shares(request), without_ends(read_limits(request, USER))
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
        head = " Settings =\n" if release == OLD else " Settings\n"
        text += head + line("Default Account", default or accounts[0], 16)
    text += " Associations =\n"
    for user, account in pairs:
        if release == OLD:
            text += f"  U = {user:<9.9} A = {account:<10.10} C = {cluster:<10.10}\n"
        else:
            text += f"  {of_user(cluster, user, account, 20)}\n"
    lines = [line("Fairshare", shares, 14)] if shares else []
    lines += limit_lines(limits, 14, "MaxSubmitJobs")
    if request.setting("qos"):
        lines.append(line("QOS", ",".join(qos or ()), 14))
    if request.setting("defaultqos"):
        lines.append(line("DefQOS", request.value("defaultqos"), 14))
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
                merged(found, [site.qos_named(name) for name in listed(one.value)], one.sign),
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
        shown = [of_user(cluster, user, account, 20) for user, account in pairs]
        steps.append(step(" Modified user associations...\n", shown, changes))
    return something(steps)


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
    return step(" Modified users...\n", users, changes)


def delete_users(site: Site, request: Request, cluster: str) -> Step:
    """The step that removes users, or accounts from users. Raises Unusable, Nothing."""
    check_cluster(request, cluster)
    check_conditions(request)
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
            NO_REMOVE,
            *(f"  {of_user(cluster, user, account)}" for user, account in defaults),
            " You must change the default account of these users or remove the users completely from the affected "
            "clusters to allow these changes.",
            " Changes Discarded",
        )
    text = " Deleting user associations...\n"
    text += "".join(f"  {of_user(cluster, user, account)}\n" for user, account in pairs)
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
