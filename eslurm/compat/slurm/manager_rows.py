"""The lines of `sacctmgr show`, by the heads of their columns. A column that a line does not have is empty."""

from __future__ import annotations

from eslurm.compat.lengths import parse_length
from eslurm.compat.sizes import format_memory
from eslurm.compat.slurm.associations import CPU, MEM, NODE, ROOT, SUBMIT, WALL, tres_text
from eslurm.compat.slurm.layout import padded_clock
from eslurm.compat.slurm.manager_accounts import chosen_accounts
from eslurm.compat.slurm.manager_qos import chosen_qos
from eslurm.compat.slurm.manager_users import chosen_pairs, chosen_users
from eslurm.compat.slurm.manager_words import ACCOUNT, ASSOCIATION, CLUSTER, QOS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from eslurm.compat.slurm.associations import Association, Site
    from eslurm.compat.slurm.manager_words import Request

Row = dict[str, str]


def rows(entity: str, site: Site, request: Request, cluster: str, *, has_associations: bool) -> list[Row]:
    """The lines of an entity that the conditions choose."""
    if entity == CLUSTER:
        return [{"Cluster": cluster, "Name": cluster, "Share": "1"}]
    if entity == QOS:
        return [_qos(site, name) for name in chosen_qos(site, request)]
    if entity == ASSOCIATION:
        return list(_associations(site, request, cluster))
    if entity == ACCOUNT:
        names = chosen_accounts(site, request)
        if not has_associations:
            return [_account(site, name) for name in names]
        wanted = set(names)
        return [
            {
                **_association(site, one, cluster),
                **_account(site, one.account),
                "ParentName": "" if one.user else one.parent,
            }
            for one in site.associations()
            if one.account in wanted
        ]
    pairs = chosen_pairs(site, request)
    users = chosen_users(site, request)
    if not has_associations:
        if request.has("account"):
            users = list(dict.fromkeys(user for user, _ in pairs))
        return [_user(site, name) for name in users]
    return [
        {**_association(site, one, cluster), **_user(site, one.user)} for one in _pairs_in_order(site, pairs)
    ]


def _pairs_in_order(site: Site, pairs: list[tuple[str, str]]) -> list[Association]:
    wanted = {pair: at for at, pair in enumerate(pairs)}
    found = [one for one in site.associations() if (one.user, one.account) in wanted]
    return sorted(found, key=lambda one: wanted[one.user, one.account])


def _account(site: Site, name: str) -> Row:
    return {
        "Account": name,
        "Name": name,
        "Descr": site.description_of(name),
        "Org": site.organization_of(name),
        "Coord Accounts": site.accounts[name].get("coordinators", ""),
    }


def _user(site: Site, name: str) -> Row:
    accounts, qos = site.accounts_of(name), site.qos_of(name)
    return {
        "User": name,
        "Name": name,
        "Def Acct": accounts[0] if accounts else "",
        "Def QOS": qos[0] if qos else "",
        "Admin": "None",
        "Coord Accounts": ",".join(site.coordinated_by(name)),
    }


def _associations(site: Site, request: Request, cluster: str) -> Iterator[Row]:
    accounts, users = request.chosen("account"), request.chosen("user")
    parents, qos, default = (request.chosen(key) for key in ("parent", "qos", "defaultqos"))
    names = None if accounts is None else {site.account_named(name) for name in accounts}
    above = None if parents is None else {site.account_named(name) for name in parents}
    is_tree = request.has("tree")
    for one in site.associations():
        # An empty name means associations of accounts alone.
        if users is not None and one.user not in (users or [""]):
            continue
        open_to = site.qos_of(one.user)
        if (names is not None and one.account not in names) or (
            above is not None and one.parent not in above
        ):
            continue
        if qos is not None and not set(qos) & set(open_to):
            continue
        if default is not None and open_to[:1] not in [[name] for name in default]:
            continue
        row = _association(site, one, cluster)
        if is_tree:
            row["Account"] = " " * (one.depth + bool(one.user)) + one.account
        yield row


def _association(site: Site, one: Association, cluster: str) -> Row:
    row = {"Cluster": cluster, "Account": one.account, "User": one.user, "ParentName": one.parent}
    if one.account == ROOT and not one.user:
        return row | {"Share": "1"}
    if not one.user:
        row["Share"] = site.accounts[one.account].get("shares", "1")
        return row | limit_cells(site.limits("account", one.account))
    qos = site.qos_of(one.user)
    row |= {
        "Share": site.users[one.user].get("shares", "1"),
        "QOS": ",".join(qos),
        "Def QOS": qos[0] if qos else "",
    }
    limits = limit_cells(site.limits("user", one.user))
    limits["MaxSubmit"] = limits.pop("GrpSubmit", "")
    return row | limits


def limit_cells(limits: Mapping[str, int]) -> Row:
    """The cells of limits; a user's GrpSubmit is Slurm's MaxSubmit."""
    row = {"GrpTRES": tres_text(limits)}
    for field, head in ((CPU, "GrpCPUs"), (NODE, "GrpNodes"), (SUBMIT, "GrpSubmit")):
        if field in limits:
            row[head] = str(limits[field])
    if MEM in limits:
        row["GrpMem"] = format_memory(limits[MEM])
    if WALL in limits:
        row["MaxWall"] = padded_clock(limits[WALL])
    return row


def _qos(site: Site, name: str) -> Row:
    settings = site.qos[name]
    grace = settings.get("preempt_grace", "site")
    longest, exempt = (parse_length(settings.get(key, "none"), key) for key in ("time_max", "preempt_exempt"))
    return {
        "Name": name,
        "Descr": settings.get("description", "") or name,
        "Priority": settings.get("priority", "0"),
        "GraceTime": "" if grace == "site" else padded_clock(parse_length(grace, "preempt_grace")),
        "Preempt": settings.get("preempts", ""),
        "PreemptMode": settings.get("preempt_mode", "requeue"),
        "PreemptExemptTime": padded_clock(exempt) if exempt else "",
        "UsageFactor": f"{float(settings.get('usage_factor', '1')):.6f}",
        **limit_cells(site.limits("qos", name)),
        "MaxWall": padded_clock(longest) if longest else "",
    }
