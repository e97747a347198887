"""`sacctmgr show`: users, accounts, associations, classes of service, the cluster. Nothing is changed by it."""

from __future__ import annotations

import json
import sys

from escli import exits
from escli.slurm import frame
from eslurm.compat.slurm import fitted
from eslurm.compat.slurm.small_options import MANAGER_WIDTHS, SACCTMGR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from escli.slurm.frame import Context
    from eslurm.compat.slurm.getopt import Options

ROWS = SACCTMGR
_USERS, _ACCOUNTS, _ASSOCIATIONS, _QOS, _CLUSTERS = "user", "account", "association", "qos", "cluster"
_DEFAULTS: Mapping[str, str] = {
    _USERS: "User,Def Acct,Admin",
    _ACCOUNTS: "Account,Descr,Org",
    _ASSOCIATIONS: "Cluster,Account,User,Partition,Share,QOS,Def QOS",
    _QOS: "Name,Priority",
    _CLUSTERS: "Cluster,ControlHost,ControlPort,RPC,Share,QOS,Def QOS",
}
_WITH_ACCOUNTS = "User,Def Acct,Admin,Cluster,Account,Partition,Share,QOS,Def QOS"
_NAMED: Mapping[str, tuple[str, ...]] = {
    _USERS: ("name", "user", "users", "names"),
    _ACCOUNTS: ("name", "account", "accounts", "names"),
    _ASSOCIATIONS: ("user", "users", "account", "accounts", "cluster", "clusters"),
    _QOS: ("name", "names", "qos"),
    _CLUSTERS: ("name", "names", "cluster"),
}


def run(context: Context, given: Options) -> int:
    """The command; returns the exit code."""
    rest = list(given.rest)
    if not rest or rest[0].lower() not in ("show", "list"):
        word = rest[0] if rest else "the interactive mode"
        raise frame.Failed(f"sacctmgr: error: {word} is not supported: see esctl add, modify, delete, load")
    subject = _subject(rest[1].lower() if len(rest) > 1 else "")
    options, chosen, has_accounts = _words(subject, rest[2:])
    has_accounts |= given.has("associations")
    wide = subject == _USERS and has_accounts
    heads = fitted.columns(options or (_WITH_ACCOUNTS if wide else _DEFAULTS[subject]), MANAGER_WIDTHS)
    with context.open_api() as api:
        rows = _rows(api, subject, frame.own_cluster(api), has_accounts=has_accounts)
    shown = [
        [row.get(name, "") for name, _ in heads]
        for row in rows
        if all(row.get(key, "") in values for key, values in chosen.items())
    ]
    ending = "|" if given.has("parsable") or given.has("parsable2") else None
    lines = fitted.lines(
        heads, shown, has_header=not given.has("noheader"), ending=ending, is_ended=given.has("parsable")
    )
    sys.stdout.write("".join(lines))
    return exits.OK


def _subject(word: str) -> str:
    for subject in _DEFAULTS:
        if len(word) >= 3 and (subject.startswith(word) or word == f"{subject}s"):
            return subject
    raise frame.Failed(
        f"sacctmgr: error: show {word} is not supported: show user, account, association, qos or cluster"
    )


def _words(subject: str, rest: Sequence[str]) -> tuple[str, dict[str, set[str]], bool]:
    """The columns, the choice by column, and whether users have a line for each account. Raises Failed."""
    options, chosen, has_accounts = "", {}, False
    heads = {"user": "User", "account": "Account", "cluster": "Cluster", "qos": "Name"}
    for word in rest:
        key, equals, value = word.partition("=")
        name = key.lower()
        if equals and name == "format":
            options = ",".join(filter(None, (options, value)))
        elif not equals and name in ("withassoc", "withassocs"):
            has_accounts = True
        elif not equals and name in ("where", "withcoord", "withclusters"):
            continue
        elif equals and name in _NAMED[subject]:
            column = heads[
                subject if name in ("name", "names") else name.removesuffix("s") if name != "qos" else "qos"
            ]
            chosen[column] = set(value.split(","))
        elif not equals and subject in heads:
            chosen.setdefault(heads[subject], set()).update(value or key for key in (word,))
        else:
            raise frame.Failed(f"sacctmgr: error: Unknown condition: {word}")
    return options, chosen, has_accounts


def _rows(api: Any, subject: str, cluster: str, *, has_accounts: bool) -> list[dict[str, str]]:
    from eslurm.v1 import controller_pb2 as pb

    if subject == _CLUSTERS:
        return [{"Cluster": cluster, "Name": cluster, "Share": "1", "QOS": "normal"}]
    found: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for one in api.call("Policies", pb.PoliciesRequest()).policies:
        found.setdefault(one.kind, []).append((one.name, json.loads(one.json or "{}")))
    if subject == _QOS:
        return [
            {"Name": name, "Priority": str(values.get("priority", 0))}
            for name, values in found.get("qos", ())
        ]
    if subject == _ACCOUNTS:
        return [
            {
                "Account": name,
                "Name": name,
                "Descr": str(values.get("description", "") or name),
                "Org": str(values.get("organization", "") or name),
                "ParentName": str(values.get("parent", "")),
            }
            for name, values in found.get("account", ())
        ]
    rows = []
    for name, values in found.get("user", ()):
        accounts = list(values.get("accounts", ()))
        default = str(values.get("default_account", "") or (accounts[0] if accounts else ""))
        user = {
            "User": name,
            "Name": name,
            "Def Acct": default,
            "DefaultAccount": default,
            "Admin": "None",
            "Cluster": cluster,
        }
        if subject == _ASSOCIATIONS or has_accounts:
            rows += [
                {**user, "Account": account, "Share": str(values.get("shares", 1))} for account in accounts
            ]
        else:
            rows.append(user)
    return rows
