"""Changes of accounts and of their coordinators by sacctmgr."""

from __future__ import annotations

from eslurm.compat.slurm import associations as model
from eslurm.compat.slurm.abbreviated import Unusable, listed
from eslurm.compat.slurm.associations import ROOT, Change
from eslurm.compat.slurm.manager_steps import (
    NO_REMOVE,
    OLD,
    Nothing,
    Step,
    check_cluster,
    check_conditions,
    limit_lines,
    line,
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
    from collections.abc import Callable

    from eslurm.compat.slurm.associations import Site
    from eslurm.compat.slurm.manager_words import Request


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
        changes += site.limit_changes(ACCOUNT, name, without_ends(limits))
    text = " Adding Account(s)\n" + "".join(f"  {name}\n" for name in new)
    text += " Settings\n" + line("Description", description or "Account Name", 16)
    text += line("Organization", organization or "Parent/Account Name", 16)
    if release == OLD:
        text += " Associations\n" + "".join(f"  A = {name:<10.10} C = {cluster:<10.10}\n" for name in new)
    else:
        text += " Associations =\n" + "".join(f"  C = {cluster:<10} A = {name:<20}\n" for name in new)
    lines = [line("Fairshare", shares, 14)] if shares else []
    lines += limit_lines(limits, 14)
    if parent != ROOT:
        lines.append(line("Parent", parent, 14))
    if lines:
        text += " Settings\n" + "".join(lines)
    return Step(text, changes, " error: Problem adding account associations: ")


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
            step(" Modified accounts...\n", names, [Change("modify", ACCOUNT, name, *own) for name in names])
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
        steps.append(step(" Modified account associations...\n", shown, changes))
    return something(steps)


def delete_accounts(site: Site, request: Request, cluster: str) -> Step:
    """The step that removes accounts, and takes them from their users. Raises Unusable, Nothing."""
    check_cluster(request, cluster)
    check_conditions(request)
    if ROOT in [name.lower() for name in request.chosen("name") or ()]:
        raise Unusable(" You are not allowed to remove the root account.", " Use remove cluster instead.")
    names = chosen_accounts(site, request)
    if not names:
        raise Nothing(" Nothing deleted\n")
    defaults = [
        of_user(cluster, user, account)
        for account in names
        for user in site.users_in(account)
        if site.accounts_of(user)[0] == account
    ]
    if defaults:
        raise Unusable(
            NO_REMOVE,
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
