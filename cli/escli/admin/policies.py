"""`esctl account|user|qos|limit|pool|reservation|defaults show|add|modify|delete`, and `esctl load FILE.toml`.

The words are sent as they stand: the controller reads them, so that every command and every file gets the same errors.
"""

from __future__ import annotations

import json
import os

from escli import changes, exits, program
from escli.failures import CommandFailed
from escli.tables import Column, render
from eslurm.compat.errors import OptionError, escaped, nearest, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any, TypeAlias

    from escli.api import Api
    from escli.options import Words

    Action: TypeAlias = Callable[[Api, list[str], Words], int]

COMMAND = "esctl"
ACTIONS = ("show", "add", "modify", "delete")
EXAMPLES: Mapping[str, str] = {
    "account": "esctl account add physics shares=10",
    "user": "esctl user add ada accounts=physics,chemistry",
    "qos": "esctl qos add urgent priority=1000 preempts=normal",
    "limit": "esctl limit add ncpus group=physics resource=cores items=640 duration=4d3h",
    "pool": "esctl pool add small items=10/20% access='cores<4 and time<1h'",
    "reservation": "esctl reservation add course nodes=4 start=2030-01-31T08:00 duration=4h users=ada,bob",
    "defaults": "esctl defaults add site time=1:00:00",
}
"""Per kind of policy how one is made."""
_FILE_BYTES_MAX = 4 * 1024 * 1024
_LEFT_OUT: Mapping[str, tuple[str, ...]] = {"limit": ("user", "group", "account", "qos", "partition")}


def actions() -> Iterator[tuple[str, Action]]:
    """The words of `esctl` that are handled here."""
    for kind in EXAMPLES:
        yield kind, _of_kind(kind)


def _of_kind(kind: str) -> Action:
    def control(api: Api, words: list[str], given: Words) -> int:
        if not words:
            raise OptionError(kind, None, "needs an action", f"use one of {', '.join(ACTIONS)}")
        action = words[0].lower()
        if action not in ACTIONS:
            near = nearest(action, ACTIONS)
            way_out = f"did you mean {near}?" if near else f"use one of {', '.join(ACTIONS)}"
            raise OptionError(kind, words[0], "is not an action", way_out)
        if action == "show":
            return _show(api, kind, words[1:], given)
        return _change(api, kind, action, words[1:], given)

    return control


def _change(api: Api, kind: str, action: str, words: Sequence[str], given: Words) -> int:
    from eslurm.v1 import controller_pb2 as pb

    if not words or "=" in words[0]:
        raise OptionError(
            f"{kind} {action}", words[0] if words else None, "needs a name", f"use e.g. {EXAMPLES[kind]}"
        )
    name, *pairs = words
    change = pb.PolicyChange(action=action, kind=kind, name=name)
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise OptionError(f"{kind} {action}", pair, "is not KEY=VALUE", f"use e.g. {EXAMPLES[kind]}")
        change.settings.add(key=key, value=value)
    reply = api.call("ChangePolicies", pb.ChangePoliciesRequest(changes=[change]), request_id=os.urandom(16))
    return changes.report(COMMAND, reply, as_json=given.has("json"))


# ---- show ----


def _show(api: Api, kind: str, names: Sequence[str], given: Words) -> int:
    from eslurm.v1 import controller_pb2 as pb

    for name in names:
        if "=" in name:
            raise OptionError(
                f"{kind} show", name, "is not a name", f"use e.g. esctl {kind} show {name.partition('=')[2]}"
            )
    reply = api.call("Policies", pb.PoliciesRequest(kind=kind, names=names))
    found = [(info.name, json.loads(info.json)) for info in reply.policies]
    if given.has("json"):
        listed = [{"kind": kind, "name": name, **settings} for name, settings in found]
        program.say(json.dumps({"policies": listed, "revision": reply.revision}, indent=1))
    elif found:
        program.say(table(kind, found).rstrip("\n"))
    else:
        program.say(f"no {kind} is set: {EXAMPLES[kind]}")
    return exits.OK


def table(kind: str, found: Sequence[tuple[str, Mapping[str, str]]]) -> str:
    """One line per policy, its settings in the controller's order."""
    heads, rows = _lines(kind, found)
    columns = [Column("NAME"), *(Column(head.upper()) for head in heads)]
    shown = [
        [name, *(escaped(cell) or "-" for cell in row)] for (name, _), row in zip(found, rows, strict=True)
    ]
    return render(columns, shown, gap="  ")


def _lines(kind: str, found: Sequence[tuple[str, Mapping[str, str]]]) -> tuple[list[str], list[list[str]]]:
    """Heads and cells. Consumers of limits share a column, and so do all values of defaults."""
    apart = _LEFT_OUT.get(kind, ())
    if kind == "defaults":
        heads = ["for", "settings"]
        rows = []
        for _, settings in found:
            whose = {key: value for key, value in settings.items() if key in ("user", "group")}
            rest = {key: value for key, value in settings.items() if key not in (*whose, "state")}
            rows.append([_pairs(whose) or "all", _pairs(rest)])
        return heads, rows
    heads = list(dict.fromkeys(key for _, settings in found for key in settings if key not in apart))
    rows = [[settings.get(head, "") for head in heads] for _, settings in found]
    if apart:
        heads.insert(0, "consumer")
        for row, (_, settings) in zip(rows, found, strict=True):
            row.insert(0, _pairs({key: settings[key] for key in apart if key in settings}))
    return heads, rows


def _pairs(settings: Mapping[str, str]) -> str:
    return " ".join(f"{key}={value}" for key, value in settings.items())


# ---- load ----


def load(api: Api, words: list[str], given: Words) -> int:
    """`esctl load FILE.toml`: all policies of a file, or none."""
    from eslurm.v1 import controller_pb2 as pb

    if len(words) != 1:
        raise OptionError(
            "load", " ".join(words), "names no single file", "use e.g. esctl load policies.toml"
        )
    request = pb.ChangePoliciesRequest()
    for kind, name, settings in read_file(words[0]):
        change = request.changes.add(action="set", kind=kind, name=name)
        for key, value in settings:
            change.settings.add(key=key, value=value)
    if not request.changes:
        raise CommandFailed(
            exits.FAILED, f"{words[0]}: holds no policies: write e.g. [account.physics] shares = 10"
        )
    reply = api.call("ChangePolicies", request, request_id=os.urandom(16))
    if not given.has("json"):
        program.say(f"{reply.count} policies are set")
    return changes.report(COMMAND, reply, as_json=given.has("json"))


def read_file(path: str) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """(kind, name, settings) of each table `[kind.name]` in a TOML file. Raises `CommandFailed`."""
    import tomllib

    try:
        with open(path, "rb") as file:
            raw = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise CommandFailed(
            exits.FAILED, f"load: {quoted(path)} cannot be read: {error.strerror}: name a TOML file"
        ) from None
    if len(raw) > _FILE_BYTES_MAX:
        raise CommandFailed(exits.FAILED, f"{path}: is larger than {_FILE_BYTES_MAX} bytes: split it")
    try:
        content = tomllib.loads(raw.decode())
    except RecursionError:
        raise CommandFailed(exits.FAILED, f"{path}: is nested too deeply: write [KIND.NAME] tables") from None
    except ValueError as error:
        raise CommandFailed(exits.FAILED, f"{path}: is no TOML: {error}") from None
    found = []
    for kind, named in content.items():
        if kind not in EXAMPLES or not isinstance(named, dict):
            near = nearest(kind, EXAMPLES)
            way_out = (
                f"did you mean [{near}.NAME]?" if near else f"use tables [KIND.NAME] of {', '.join(EXAMPLES)}"
            )
            raise CommandFailed(exits.FAILED, f"{path}: {quoted(kind)} is no kind of policy: {way_out}")
        for name, settings in named.items():
            if not isinstance(settings, dict):
                raise CommandFailed(
                    exits.FAILED,
                    f"{path}: {kind}.{_key(name)} is no table: write [{kind}.NAME] and settings below it",
                )
            found.append((kind, name, list(_settings(path, f"{kind}.{_key(name)}", settings))))
    return found


def _settings(path: str, where: str, settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in settings.items():
        if isinstance(value, dict):
            # `force.time = "1h"` is a table in TOML.
            for inner, forced in value.items():
                yield f"{key}.{inner}", _plain(path, f"{where}: {_key(key)}.{_key(inner)}", forced)
        else:
            yield key, _plain(path, f"{where}: {_key(key)}", value)


def _key(text: str) -> str:
    """A key of the file in the form for messages."""
    return quoted(text)[1:-1]


def _plain(path: str, where: str, value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list) and all(
        isinstance(one, str | int) and not isinstance(one, bool) for one in value
    ):
        return ",".join(map(str, value))
    raise CommandFailed(
        exits.FAILED, f"{path}: {where}: is neither a text, a number, yes or no, nor a list of them"
    )
