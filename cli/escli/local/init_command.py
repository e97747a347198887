"""`eslurm init`: the files of one host of a new cluster, from a few answers.

Invariant: no file is replaced, and none is written unless all can be.
"""

from __future__ import annotations

import os
import socket
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from escli import exits
from escli.console import say, to_json
from escli.errors import ClusterError, unusable
from escli.local.settings import machine_memory_mib
from escli.local.site import STATE_DIR, Answers, HostFile, Site
from eslurm.security.account import Account, find_account
from eslurm.security.ownership import UnsafeFile, make_own_directory
from eslurm.security.site_keys import SITE_KEY, SITE_PUB, new_site, write_site_keys

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
@click.option("--dry-run", is_flag=True, help="Show the files and write none.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def init_command(
    file: Path | None, host: str | None, root: Path | None, dry_run: bool, as_json: bool, **given: Any
) -> int:
    """Write this host's part of a new cluster: on a controller's host the configuration, the site's keys and the answers for
    the other hosts; on each host the arguments of its units for systemd. It asks for answers that are missing.

    Nothing is replaced. The commands to type next are shown.

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
    has_keys = "controller" in roles
    if not dry_run:
        _write(base, files, account, site.answers.cluster if has_keys else "")
    paths = [str(base / one.path.lstrip("/")) for one in files]
    keys = [str(base / STATE_DIR.lstrip("/") / name) for name in (SITE_KEY, SITE_PUB) if has_keys]
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


def _write(base: Path, files: tuple[HostFile, ...], account: Account | None, cluster: str) -> None:
    """Write all of it, the keys of `cluster` if one is named. Raises `ClusterError`."""
    state_dir = base / STATE_DIR.lstrip("/")
    wanted = [base / one.path.lstrip("/") for one in files]
    for path in (*wanted, *([state_dir / SITE_KEY, state_dir / SITE_PUB] if cluster else [])):
        if os.path.lexists(path):
            raise unusable(
                f"{path} is there already: edit it, or remove it first; nothing was written (--dry-run shows the files)"
            )
    try:
        for path, one in zip(wanted, files, strict=True):
            make_own_directory(path.parent, 0o755)
            _create(path, one, account)
        if cluster:
            make_own_directory(state_dir, 0o711)
            # systemd gives the directory to the daemons' user, as does `esctld --user`.
            write_site_keys(state_dir, new_site(cluster, time.time_ns() // 1000))
    except UnsafeFile as error:
        raise unusable(str(error)) from None
    except OSError as error:
        raise ClusterError(f"{error.filename or base}: {error.strerror}") from None


def _create(path: Path, file: HostFile, account: Account | None) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as writer:
        writer.write(file.text)
        if file.is_shared and account is not None:
            os.fchown(fd, -1, account.gid)
        os.fchmod(fd, 0o640 if file.is_shared else 0o644)
