"""Policies as administrators write them: reading of changes by the keys of their kind, and output of policies.

`esctl limit add aug user=ada resource=cores items=640 validity=2017-08-01..2017-08-31` comes here as (key, text) pairs and
leaves as a typed change; `shown` is the way back. Invariant: the output of `shown`, read again, is the same policy (a
reservation's nodes are its names then). Texts hold group names, records their numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from eslurm.compat.access import access_text
from eslurm.compat.amounts import amount_text
from eslurm.compat.errors import OptionError, nearest, quoted
from eslurm.compat.policy_keys import DEFAULT_OPTIONS, FORCE, KEYS, NAME, Draft, Site
from eslurm.compat.policy_values import show_default
from eslurm.core.model.accounts import (
    EVERYONE,
    Account,
    Defaults,
    FreePool,
    Limit,
    Policy,
    Qos,
    Reservation,
    User,
    Validity,
    kind_of,
)
from eslurm.core.model.messages import PolicyChange

__all__ = ["DEFAULT_OPTIONS", "FORCE", "KEYS", "Site", "describe", "read_change", "shown"]

ACTIONS = ("add", "modify", "set", "delete")
_BLANK: Mapping[str, Policy] = {
    "account": Account(""),
    "user": User(""),
    "qos": Qos(""),
    "limit": Limit("", "", "", "*"),
    "pool": FreePool(""),
    "reservation": Reservation("", Validity()),
    "defaults": Defaults(""),
}


def read_change(
    action: str,
    kind: str,
    name: str,
    settings: Iterable[tuple[str, str]],
    site: Site,
    present: Policy | None = None,
) -> PolicyChange:
    """One change. `present` is the current policy, if any. Raises `OptionError` naming policy and key."""
    where = f"{kind} {name}"
    if kind not in KEYS:
        raise OptionError(kind, name, "is no kind of policy", f"use one of {', '.join(KEYS)}")
    if action not in ACTIONS:
        raise OptionError(where, action, "is not an action", f"use one of {', '.join(ACTIONS)}")
    if not NAME.fullmatch(name):
        raise OptionError(kind, name, "is not a name", "use at most 63 letters, digits and _ . @ -")
    blank = replace(_BLANK[kind], name=name)
    draft = Draft(site, present if action == "modify" and present is not None else blank)
    try:
        how = _read_settings(draft, kind, settings)
        if action == "add" or action == "set":
            _drop_unsaid(draft)
        if action != "delete":
            _check_whole(draft, kind, action)
    except OptionError as error:
        raise error.renamed(f"{where}: {error.option}") from None
    if action == "delete":
        if draft.values or draft.chooses or draft.time:
            raise OptionError(where, None, "is to be deleted: settings mean nothing", "leave them out")
        return PolicyChange(action, kind, name)
    given = tuple(field for field in draft.values if field in blank.__struct_fields__)
    return PolicyChange(
        action,
        kind,
        name,
        replace(draft.policy, **draft.values),
        given,
        added=tuple(field for field, sign in how.items() if sign == "+"),
        removed=tuple(field for field, sign in how.items() if sign == "-"),
        choose=draft.choose if draft.chooses else None,
        time=draft.time,
    )


def _read_settings(draft: Draft, kind: str, settings: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Fields that are added to (+) or removed from (-) instead of replaced. The resource is read first: amounts depend on
    it.
    """
    keys = KEYS[kind]
    how: dict[str, str] = {}
    seen: set[str] = set()
    ordered = sorted(settings, key=lambda setting: setting[0].lower() != "resource")
    for written, text in ordered:
        sign = written[-1:] if written[-1:] in ("+", "-") else ""
        word = written[: len(written) - len(sign)].lower()
        key = keys.get(word) or keys.get(word.replace("-", "_"))
        if key is None:
            near = nearest(word, keys)
            raise OptionError(
                written,
                text,
                f"is no setting of {'an' if kind == 'account' else 'a'} {kind}",
                f"did you mean {near}?" if near else f"use one of {', '.join(keys)}",
            )
        if word in seen:
            raise OptionError(written, text, "is given twice", "give it once")
        seen.add(word)
        if sign and not key.is_list:
            raise OptionError(written, text, "is no list", f"use {word}=...")
        value = key.read(draft, text.strip(), word)
        if key.field:
            draft.values[key.field] = value
            if sign:
                how[key.field] = sign
    if draft.chooses:
        draft.values.pop("nodes", None)
    return how


def _drop_unsaid(draft: Draft) -> None:
    """Remove a default with `time=`; without a default, nothing is left of it."""
    for field in ("values", "forced"):
        if field in draft.values:
            draft.values[field] = tuple((option, value) for option, value in draft.values[field] if value)


def _check_whole(draft: Draft, kind: str, action: str) -> None:
    """Check that the mandatory settings are present."""
    values = draft.values
    if action == "modify":
        if not values and not draft.chooses and draft.time is None:
            raise OptionError("modify", None, "changes nothing", f"give one of {', '.join(KEYS[kind])}")
        return
    if kind == "limit" and "consumer" not in values:
        raise OptionError(
            "limit", None, "is on nobody", "give user=, group=, account=, qos= or partition= (or user=*)"
        )
    if kind == "limit" and not {"amount", "duration_s", "area_s"} & values.keys():
        raise OptionError("limit", None, "limits nothing", "give items=, duration= or area=")
    if kind == "pool" and not ("amount" in values or values.get("nodes") or values.get("feature")):
        raise OptionError(
            "pool", None, "says not what it keeps", "give items=, nodes= or feature= (items=all: everything)"
        )
    if kind == "reservation":
        if not values.get("nodes") and not draft.chooses:
            raise OptionError("nodes", None, "are missing", "give names, a number or all: nodes=cn[001-004]")
        if "validity" not in values and draft.time is None:
            raise OptionError(
                "start", None, "is missing", "give start= and duration= or end=, or validity=cron(...)+10h"
            )
    if kind == "defaults" and not values.get("values") and not values.get("forced"):
        raise OptionError("defaults", None, "say nothing", "give e.g. time=2:00:00, or force.partition=long")


def shown(policy: Policy, site: Site) -> dict[str, str]:
    """The settings of a policy in their written form, in the table's order; consumers under the key of their kind."""
    found: dict[str, str] = {}
    kind = kind_of(policy)
    if isinstance(policy, Limit | Defaults) and policy.kind != "system":
        name = policy.consumer
        found[policy.kind] = site.group_of(name) if policy.kind == "group" and name != EVERYONE else name
    if isinstance(policy, Defaults):
        for prefix, pairs in (("", policy.values), (FORCE, policy.forced)):
            found.update((prefix + option, show_default(option, value)) for option, value in pairs)
        return found
    for word, key in KEYS[kind].items():
        if word == "items" and isinstance(policy, Limit | FreePool):
            found[word] = amount_text(policy.amount, policy.resource)
        elif word == "access" and isinstance(policy, FreePool):
            named = [replace(way, groups=tuple(map(site.group_of, way.groups))) for way in policy.access]
            found[word] = access_text(tuple(named), policy.resource)
        elif key.show is not None:
            found[word] = key.show(getattr(policy, key.field), site)
    return found


def describe(policy: Policy) -> str:
    """`limit 'aug'`, for messages."""
    return f"{kind_of(policy)} {quoted(policy.name)}"
