"""`sacctmgr`: accounts, users, QOS, their associations and limits, shown and changed. The controller checks rights."""

from __future__ import annotations

import sys

from escli import exits
from escli.slurm import frame
from escli.slurm.manager_calls import Asker, apply, check_idle, levels_of, site_of
from eslurm.compat.slurm import (
    manager_accounts,
    manager_fields,
    manager_qos,
    manager_rows,
    manager_users,
    manager_words,
)
from eslurm.compat.slurm.abbreviated import Unusable
from eslurm.compat.slurm.associations import Site
from eslurm.compat.slurm.fitted import lines
from eslurm.compat.slurm.manager_steps import Nothing, check_cluster
from eslurm.compat.slurm.manager_words import ACCOUNT, ASSOCIATION, CLUSTER, COORDINATOR, QOS, USER
from eslurm.compat.slurm.small_options import SACCTMGR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from escli.slurm.frame import Context
    from eslurm.compat.slurm.getopt import Options
    from eslurm.compat.slurm.manager_steps import Step
    from eslurm.compat.slurm.manager_words import Request

ROWS = SACCTMGR
_SHOWN = (ACCOUNT, ASSOCIATION, CLUSTER, QOS, USER)
_CHANGED = (ACCOUNT, COORDINATOR, QOS, USER)
_ADD: Mapping[str, Callable[[Site, Request, str, str], Step]] = {
    ACCOUNT: manager_accounts.add_accounts,
    USER: manager_users.add_users,
    QOS: manager_qos.add_qos,
}
_MODIFY: Mapping[str, Callable[[Site, Request, str], list[Step]]] = {
    ACCOUNT: manager_accounts.modify_accounts,
    USER: manager_users.modify_users,
    QOS: manager_qos.modify_qos,
}
_DELETE: Mapping[str, Callable[[Site, Request, str], Step]] = {
    ACCOUNT: manager_accounts.delete_accounts,
    USER: manager_users.delete_users,
    QOS: manager_qos.delete_qos,
}


def run(context: Context, given: Options) -> int:
    """The command; returns the exit code."""
    try:
        return _run(context, given)
    except Unusable as problem:
        raise frame.Failed(*problem.lines) from None
    except Nothing as nothing:
        sys.stdout.write(nothing.text)
        return exits.FAILED


def _run(context: Context, given: Options) -> int:
    if not given.rest:
        raise frame.Failed("sacctmgr: error: the interactive mode is not supported: give a command")
    verb = _verb(given.rest[0])
    words = given.rest[1:]
    if verb == "show":
        return _show(context, given, words)
    if given.has("readonly") and verb != "dump":
        raise frame.Failed("Can't run this command in readonly mode.")
    if verb in ("dump", "load"):
        from escli.slurm import manager_file

        if verb == "dump":
            return manager_file.dump(context, words)
        return manager_file.load(context, words, is_immediate=given.has("immediate"))
    return _change(context, verb, words, is_immediate=given.has("immediate"))


def _verb(word: str) -> str:
    """The command that a word begins, by its own name."""
    lowered = word.lower()
    names = [name for name in manager_words.VERBS if name == lowered]
    names += [
        name
        for name in manager_words.VERBS
        if len(lowered) >= (1 if name in ("modify", "update") else 3) and name.startswith(lowered)
    ]
    if not names:
        raise frame.Failed(f"sacctmgr: error: {word} is not supported: see sacctmgr --help")
    status, _, note = manager_words.VERBS[names[0]].partition(" ")
    if status != "yes":
        raise frame.Failed(f"sacctmgr: error: {names[0]} is not supported: {note}")
    return {"create": "add", "list": "show", "remove": "delete", "update": "modify"}.get(names[0], names[0])


# ---- changes ----


def _change(context: Context, verb: str, words: Sequence[str], *, is_immediate: bool) -> int:
    entity = manager_words.entity_of(words[0], _CHANGED) if words else ""
    if not entity or (entity == COORDINATOR and verb == "modify"):
        names = [one for one in _CHANGED if verb != "modify" or one != COORDINATOR]
        what = words[0] if words else "nothing"
        raise frame.Failed(
            f"sacctmgr: error: {verb} {what} is not supported: {verb} {', '.join(names[:-1])} or {names[-1]}"
        )
    is_set = verb == "add" and entity != COORDINATOR
    request = manager_words.read(entity, words[1:], is_added=is_set)
    _only_conditions(entity, verb, request)
    with context.open_api() as api:
        site, cluster = site_of(api), frame.own_cluster(api)
        asker = Asker(is_immediate=is_immediate)
        if verb == "modify" and request.settings and not request.conditions:
            asker.confirm("You didn't set any conditions with 'WHERE'.\nAre you sure you want to continue?")
        if entity == COORDINATOR:
            steps = [manager_accounts.change_coordinators(site, request, is_added=verb == "add")]
        elif verb == "modify":
            steps = _MODIFY[entity](site, request, cluster)
        else:
            steps = [
                _ADD[entity](site, request, cluster, context.release)
                if verb == "add"
                else _DELETE[entity](site, request, cluster)
            ]
        if entity == USER and verb == "add":
            _check_known(request.names(), asker)
        if entity == USER and verb == "delete":
            pairs = manager_users.chosen_pairs(site, request)
            named = [account for _, account in pairs] if request.has("account") else None
            users = (
                manager_users.chosen_users(site, request) if named is None else [user for user, _ in pairs]
            )
            check_idle(api, cluster, list(dict.fromkeys(users)), named)
        return apply(api, steps, asker)


def _only_conditions(entity: str, verb: str, request: Request) -> None:
    for one in request.conditions:
        if one.key in ("format", "withassoc", "withcoord", "tree") and verb != "show":
            raise Unusable(f" Unknown condition: {one.written}", " Use keyword 'set' to modify value")


def _check_known(names: Sequence[str], asker: Asker) -> None:
    import pwd

    for name in names:
        try:
            pwd.getpwnam(name)
        except KeyError:
            asker.confirm(f"There is no uid for user '{name}'\nAre you sure you want to continue?")


# ---- show ----


def _show(context: Context, given: Options, words: Sequence[str]) -> int:
    entity = manager_words.entity_of(words[0], _SHOWN) if words else ""
    if not entity:
        what = words[0] if words else "nothing"
        raise frame.Failed(
            f"sacctmgr: error: show {what} is not supported: show account, association, cluster, qos or user"
        )
    request = manager_words.read(entity, words[1:])
    is_wide = entity in manager_fields.WITH_ASSOCIATIONS and (
        request.has("withassoc") or given.has("associations")
    )
    text = ",".join(one.value for one in request.conditions if one.key == "format")
    if not text:
        text = manager_fields.DEFAULTS[entity]
        if request.has("withcoord") and entity in (ACCOUNT, USER):
            text += ",Coord"
        if is_wide:
            text += f",{manager_fields.WITH_ASSOCIATIONS[entity]}"
    heads = manager_fields.columns(text, is_tree=request.has("tree"))
    with context.open_api() as api:
        cluster = frame.own_cluster(api)
        check_cluster(request, cluster)
        rows = manager_rows.rows(entity, site_of(api), request, cluster, has_associations=is_wide)
        if entity == USER and any(head == "Admin" for head, _ in heads):
            levels = levels_of(api, {row["User"] for row in rows})
            rows = [{**row, "Admin": levels[row["User"]]} for row in rows]
    shown = [[row.get(head, "") for head, _ in heads] for row in rows]
    ending = "|" if given.has("parsable") or given.has("parsable2") else None
    sys.stdout.write(
        "".join(
            lines(
                heads,
                shown,
                has_header=not given.has("noheader"),
                ending=ending,
                is_ended=given.has("parsable"),
            )
        )
    )
    return exits.OK
