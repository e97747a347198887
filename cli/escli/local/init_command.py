"""`eslurm init`: the files of one host of a new cluster, from a few answers.

Invariant: no file is replaced without `--force`, the site's keys never, and none is written unless all are.
"""

from __future__ import annotations

import os
import socket
import sys
import time
import tomllib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import msgspec

from escli import exits
from escli.console import say, to_json
from escli.errors import ClusterError, unusable
from escli.local.new_files import NewFile, write_all
from escli.local.settings import machine_memory_mib
from escli.local.site import CONFIG_FILE, STATE_DIR, Answers, HostFile, Site
from eslurm.config.file import read_config
from eslurm.config.problems import ConfigError
from eslurm.security.account import Account, find_account
from eslurm.security.ownership import UnsafeFile
from eslurm.security.site_keys import (
    SITE_KEY,
    SITE_PUB,
    new_site,
    ring_file,
    site_key_file,
)

_FILE = click.Path(path_type=Path, dir_okay=False)
_DIRECTORY = click.Path(path_type=Path, file_okay=False)
_HELP = {
    "cluster": "The cluster's name.",
    "controllers": "Hosts of the controllers: the first one leads, the others stand by.",
    "nodes": "The compute nodes: cn[001-100].",
    "cores": "Cores of each node for jobs.",
    "memory_mib": "Memory in MiB of each node for jobs.",
    "satellites": "Hosts of satellites, for more than about 100 nodes: sat[1-2].",
    "login": "Hosts for users' commands alone.",
    "store": "Where jobs are kept: postgresql://... (default: a SQLite file).",
}
_QUESTIONS: tuple[tuple[str, str, Callable[[], Any]], ...] = (
    ("cluster", "Name of the cluster", lambda: None),
    ("controllers", "Hosts of controllers, the one that leads first", lambda: _own_name()),
    ("nodes", "Compute nodes, as cn[001-100]", lambda: None),
    ("satellites", "Hosts of satellites (none below 100 nodes)", lambda: ""),
    ("store", "Store, as postgresql://... (empty: a SQLite file)", lambda: ""),
    ("cores", "Cores of each node", lambda: os.cpu_count() or 1),
    ("memory_mib", "Memory of each node in MiB", machine_memory_mib),
)
_NUMBERS = ("cores", "memory_mib")


def _answer_options(function: Callable[..., int]) -> Callable[..., int]:
    """An option for each answer."""
    for name, text in reversed(_HELP.items()):
        kind, metavar = (click.IntRange(1), "N") if name in _NUMBERS else (str, "TEXT")
        function = click.option(f"--{name.replace('_', '-')}", name, type=kind, metavar=metavar, help=text)(
            function
        )
    return function


@click.command("init", short_help="Write the files of a new cluster's host: configuration, keys, units.")
@_answer_options
@click.option(
    "--answers", "file", type=_FILE, metavar="FILE", help="The answers as TOML; options come first."
)
@click.option("--host", metavar="NAME", help="Which of the hosts this is (default: its short host name).")
@click.option("--root", type=_DIRECTORY, metavar="DIR", help="Write below DIR in place of /.")
@click.option("--force", is_flag=True, help="Replace files that are there; the site's keys stay.")
@click.option("--dry-run", is_flag=True, help="Show the files and write none.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def init_command(
    file: Path | None,
    host: str | None,
    root: Path | None,
    force: bool,
    dry_run: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Write this host's part of a new cluster: on a controller's host the configuration, the site's keys and the answers for
    the other hosts; on each host the arguments of its units for systemd. It asks for answers that are missing.

    It writes all of it or nothing, and replaces nothing without --force. The commands to type next are shown.

    \b
    eslurm init                                      asks, on the controller's host
    eslurm init --cluster demo --controllers ctl1 --nodes cn[01-16] --cores 64 --memory-mib 256000
    eslurm init --answers site.toml                  on each other host
    eslurm init --answers site.toml --root image     into a directory, as any user
    """
    site = Site(_answers(file, {name: value for name, value in given.items() if value is not None}))
    me = host or _own_name()
    roles = site.roles_of(me)
    account = _account(root)
    files = site.files_of(roles, me, sorted({0, account.uid} if account else {0}))
    base = root or Path("/")
    new_keys = _new_keys(base, site.answers.cluster, force) if "controller" in roles else ()
    if not dry_run:
        _write(base, files, account, new_keys, force)
    paths = [str(base / one.path.lstrip("/")) for one in files]
    keys = [str(key.path) for key in new_keys]
    commands = site.next_commands(roles, me)
    if as_json:
        shown = [
            {"path": path, **({"text": one.text} if dry_run else {})}
            for path, one in zip(paths, files, strict=True)
        ]
        say(
            to_json(
                {
                    "host": me,
                    "roles": roles,
                    "written": not dry_run,
                    "files": shown,
                    "keys": keys,
                    "next": commands,
                }
            )
        )
        return exits.OK
    if dry_run:
        for path, one in zip(paths, files, strict=True):
            say(f"--- {path}\n{one.text}")
    verb = "would write" if dry_run else "wrote"
    for path in (*paths, *keys):
        say(f"{verb} {path}{' (keep it secret)' if path.endswith(SITE_KEY) else ''}")
    say(f"{me} is {', '.join(roles)} of cluster {site.answers.cluster}. Next:")
    for line in commands:
        say(f"  {line}")
    return exits.OK


def _own_name() -> str:
    return socket.gethostname().partition(".")[0]


def _answers(file: Path | None, given: dict[str, Any]) -> Answers:
    """The answers of the file and the options; those that are missing are asked for on a terminal."""
    found: dict[str, Any] = {}
    if file is not None:
        try:
            found = tomllib.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise unusable(f"--answers: {file}: {error.strerror}") from None
        except ValueError as error:
            raise unusable(f"--answers: {file}: is not valid TOML: {error}") from None
    found |= given
    if file is None and sys.stdin.isatty():
        for name, text, default in _QUESTIONS:
            if name not in found:
                kind = int if name in _NUMBERS else str
                found[name] = click.prompt(text, default=default(), type=kind, err=True)
    try:
        return msgspec.convert(found, Answers)
    except msgspec.ValidationError as error:
        raise unusable(
            f"{file or 'answers'}: {error}: give --{', --'.join(_HELP).replace('_', '-')}, or a file (--answers)"
        ) from None


def _account(root: Path | None) -> Account | None:
    """The daemons' user; None without root, and below another root where there is none. Raises `ClusterError`."""
    if os.geteuid() != 0:
        if root is None:
            raise unusable("only root can write to /etc: run it as root, or give --root DIR")
        return None
    try:
        return find_account("")  # as daemons that root starts find theirs
    except ValueError:
        if root is not None:
            return None
        raise unusable(
            "there is no account eslurm, which the daemons run as: useradd --system --no-create-home --shell "
            "/usr/sbin/nologin eslurm (the packages make it)"
        ) from None


def _write(
    base: Path, files: tuple[HostFile, ...], account: Account | None, keys: tuple[NewFile, ...], force: bool
) -> None:
    """Write all of it or nothing; the configuration last, without which no controller starts. Raises `ClusterError`."""
    gid = account.gid if account else None
    wanted = [*keys]
    for one in reversed(files):
        mode, group = (0o640, gid) if one.is_shared else (0o644, None)
        wanted.append(NewFile(base / one.path.lstrip("/"), one.text.encode(), mode, group))
    try:
        write_all(wanted, replace=force)
    except FileExistsError as error:
        path = error.filename2 or error.filename
        raise unusable(
            f"{path} is there already: edit it, or replace what is there by --force; nothing was written "
            "(--dry-run shows the files)"
        ) from None
    except UnsafeFile as error:
        raise unusable(f"{error}; nothing was written") from None
    except OSError as error:
        raise ClusterError(
            f"{error.filename or base}: {error.strerror or error}; nothing was written"
        ) from None


def _new_keys(base: Path, cluster: str, force: bool) -> tuple[NewFile, ...]:
    """New keys of the site. With `force` those that are there stay: all hosts of the cluster know it by them.

    Raises `ClusterError` when those are another cluster's, by the configuration that is there.
    """
    state_dir = base / STATE_DIR.lstrip("/")
    paths = state_dir / SITE_KEY, state_dir / SITE_PUB
    if force and any(map(os.path.lexists, paths)):
        file = base / CONFIG_FILE.lstrip("/")
        with suppress(ConfigError):
            name = read_config(file).cluster.name
            if name != cluster:
                raise unusable(
                    f"{file} is of cluster {name}, not {cluster}, and the site's keys are there: correct the name, or "
                    f"remove {paths[0]} and {paths[1]} for a new site"
                )
        return ()
    keys = new_site(cluster, time.time_ns() // 1000)
    # systemd gives the directory to the daemons' user, as does `esctld --user`.
    return (
        NewFile(paths[0], site_key_file(keys), 0o600, directory_mode=0o711),
        NewFile(paths[1], ring_file(keys.ring), 0o644, directory_mode=0o711),
    )
