"""Changes of classes of service by sacctmgr."""

from __future__ import annotations

from eslurm.compat.slurm import associations as model
from eslurm.compat.slurm.abbreviated import Unusable, listed
from eslurm.compat.slurm.associations import Change
from eslurm.compat.slurm.layout import padded_clock
from eslurm.compat.slurm.manager_steps import (
    Nothing,
    Step,
    check_conditions,
    limit_lines,
    line,
    merged,
    of_user,
    read_limits,
    without_ends,
)
from eslurm.compat.slurm.manager_words import QOS, USER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from eslurm.compat.slurm.associations import Site
    from eslurm.compat.slurm.manager_words import Request


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
            value = ",".join(merged(listed(found.get(key, present.get(key, ""))), names, one.sign))
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


def add_qos(site: Site, request: Request, _cluster: str = "", _release: str = "") -> Step:
    """The step that adds classes of service; all clusters have them, in the same words. Raises Unusable, Nothing."""
    names = model.lower_names(request.names())
    if not names:
        raise Unusable(" Need name of qos to add.")
    new = [name for name in names if site.qos_named(name) not in site.qos]
    limits = without_ends(read_limits(request, QOS))
    settings = qos_settings(site, request, {})
    if not new:
        raise Nothing(" Nothing new added.\n")
    changes = [Change("add", QOS, name, *(one for one in settings if one[1])) for name in new]
    for name in new:
        changes += site.limit_changes(QOS, name, limits)
    text = " Adding QOS(s)\n" + "".join(f"  {name}\n" for name in new) + " Settings\n"
    text += line("Description", request.value("description").lower() or new[-1], 15)
    lines = limit_lines(limits, 25)
    shown = dict(settings)
    for key, head in _QOS_HEADS.items():
        value = shown.get(_QOS_KEYS[key])
        if value is not None:
            is_length = key in ("maxwall", "preemptexempt") and value != "none"
            lines.append(
                line(head, padded_clock(int(value[:-1])) if is_length else value.removesuffix("s"), 25)
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


def modify_qos(site: Site, request: Request, _cluster: str = "") -> list[Step]:
    """The step that changes classes of service, which all clusters have. Raises Unusable, Nothing."""
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
    check_conditions(request)
    names = chosen_qos(site, request)
    if not names:
        raise Nothing("  Nothing deleted\n")
    defaults = [
        of_user(cluster, user, account)
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
