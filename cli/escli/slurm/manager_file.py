"""`sacctmgr dump` and `load`: the files, and the calls."""

from __future__ import annotations

import sys

from escli import exits
from escli.slurm import frame
from escli.slurm.manager_calls import Asker, apply, site_of
from eslurm.compat.slurm import account_file
from eslurm.compat.slurm.abbreviated import Unusable
from eslurm.compat.slurm.manager_steps import Step

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from escli.slurm.frame import Context

_FILE_BYTES_MAX = 4 * 1024 * 1024


def dump(context: Context, words: Sequence[str]) -> int:
    """Write the site's file; returns 1, with a line each, when the site has what the file has no words for."""
    cluster, path = _words(words, ("Cluster", "File"))
    if not cluster:
        raise Unusable(" We need a cluster to dump.")
    with context.open_api() as api:
        if cluster != frame.own_cluster(api):
            raise Unusable(f" Cluster {cluster} doesn't exist.")
        site = site_of(api)
    text = account_file.dump(site, cluster)
    if not path:
        path = f"./{cluster}.cfg"
        frame.print_line(f" No filename given, using {path}.")
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise Unusable(f"Can't open file {path}, {error.strerror}") from None
    for other in site.others:
        frame.print_error(f"sacctmgr: error: not in the file, which has no words for it: {other}")
    return exits.FAILED if site.others else exits.OK


def load(context: Context, words: Sequence[str], *, is_immediate: bool) -> int:
    """Make the site what a file says."""
    path, cluster = _words(words, ("File", "Cluster"))
    if not path:
        raise Unusable(" No filename given, specify one with file=''")
    entries = account_file.parse(_read(path))
    with context.open_api() as api:
        own = frame.own_cluster(api)
        named = cluster or next(one.name for one in entries if one.kind == "cluster")
        if named != own:
            raise Unusable(
                f" This cluster '{named}' doesn't exist: the file is for another one: use load cluster={own} file={path}"
            )
        wanted = account_file.Load(site_of(api), entries)
        text = wanted.text(own)
        if not text:
            sys.stdout.write(f"For cluster {own}\n Nothing new added.\n")
            return exits.OK
        return apply(
            api, [Step(text, wanted.changes, " Problem with requests: ")], Asker(is_immediate=is_immediate)
        )


def _words(words: Sequence[str], names: Sequence[str]) -> tuple[str, str]:
    """The values of two options; a word alone is the first."""
    found = dict.fromkeys(names, "")
    for word in words:
        key, equals, value = word.partition("=")
        name = (
            names[0]
            if not equals
            else next((one for one in names if one.lower().startswith(key.lower())), "")
        )
        if not name or (not equals and word.lower() == "clean"):
            raise Unusable(
                "sacctmgr: error: clean is not supported: delete what is to go"
                if key.lower().startswith("cle")
                else f" Unknown option: {word}"
            )
        if found[name]:
            raise Unusable(f" {name} already set to {found[name]}")
        found[name] = value if equals else word
    return found[names[0]], found[names[1]]


def _read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            raw = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise Unusable(f' Unable to read "{path}": {error.strerror}') from None
    if len(raw) > _FILE_BYTES_MAX:
        raise Unusable(f" {path} is larger than {_FILE_BYTES_MAX} bytes: split it")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise Unusable(f" {path} is not text in UTF-8") from None
