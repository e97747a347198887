"""`eslurm keys`: the site's keys and the memberships of its hosts, on a controller's host.

Only files of the controller's directory are read and written; running controllers notice within a second and inform all
others. Invariant: without `--force` nothing is revoked or retired that would end this very cluster.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import click

from escli import exits
from escli.errors import ClusterError
from escli.local.layout import choose
from eslurm.compat.errors import OptionError, quoted
from eslurm.compat.hostlist import expand, fold
from eslurm.security import ledger
from eslurm.security.enrolment import enrol
from eslurm.security.files import UnsafeFile
from eslurm.security.joining import fingerprint
from eslurm.security.sealing import BadSeal, SealingKey
from eslurm.security.site_keys import (
    SITE_KEY,
    SiteKeyError,
    new_site,
    read_site_keys,
    write_site_keys,
)

ROLES = ("agent", "satellite", "login", "estimator")
DAY_US = 86_400_000_000


@click.group(help="The site's keys and the memberships of its hosts, on a controller's host.")
def keys() -> None:
    """The group; its help is above."""


def _of_site(function: Callable[..., int]) -> Callable[..., int]:
    """A command on a controller's directory, with failures of one line each."""

    @click.option(
        "--state-dir",
        metavar="DIR",
        help="The controller's directory (default: $ESLURM_STATE_DIR, or ~/.local/state/eslurm).",
    )
    def run(state_dir: str | None, **given: Any) -> int:
        directory = choose(state_dir, os.environ).directory
        try:
            return function(directory, **given)
        except (SiteKeyError, UnsafeFile, BadSeal) as error:
            raise ClusterError(str(error), exits.FAILED) from None
        except OptionError as error:
            raise ClusterError(str(error), exits.USAGE) from None
        except OSError as error:
            raise ClusterError(f"{error.filename or directory}: {error.strerror}", exits.FAILED) from None

    run.__name__ = function.__name__
    return run


@keys.command(help="Draw the keys of a new cluster; `eslurm up` does it by itself.")
@click.option("--cluster", required=True, metavar="NAME", help="The cluster's name, as in its configuration.")
@_of_site
def init(directory: Path, cluster: str) -> int:
    if (directory / SITE_KEY).exists():
        raise SiteKeyError(
            f"{directory / SITE_KEY} is there already: replace a key with `eslurm keys rotate`"
        )
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_site_keys(directory, new_site(cluster, _now_us()))
    click.echo(f"{directory / SITE_KEY}: keep it secret; each controller of the cluster needs a copy")
    return exits.OK


@keys.command("list", help="The keys that verify, and the one that signs.")
@_of_site
def list_keys(directory: Path) -> int:
    site = read_site_keys(directory)
    click.echo(f"cluster {site.cluster}, revision {site.revision}")
    for record in site.records:
        key = SealingKey(record.seed)
        shown = f"{record.state:<8} {_date(record.created_us)}  fingerprint {fingerprint(key.public)}"
        click.echo(f"{key.id.hex()}  {shown}")
    return exits.OK


@keys.command(help="Add a key, which verifies everywhere first; with --finish it signs from now on.")
@click.option("--finish", is_flag=True, help="Let the key that was added sign.")
@_of_site
def rotate(directory: Path, finish: bool) -> int:
    site = read_site_keys(directory)
    site = site.with_next_signing() if finish else site.with_next(_now_us())
    write_site_keys(directory, site)
    if finish:
        click.echo(
            f"key {site.signing.id.hex()} signs. Copy {SITE_KEY} to the other controllers, issue memberships anew "
            "(eslurm keys issue), then retire the old key (eslurm keys retire ID)"
        )
    else:
        click.echo(
            f"a new key verifies. Copy {SITE_KEY} to the other controllers; once all hosts have been linked to a "
            "controller or to one another: eslurm keys rotate --finish"
        )
    return exits.OK


@keys.command(help="Remove a key that signs no more: what it has sealed is valid nowhere.")
@click.argument("identifier", metavar="ID")
@click.option("--force", is_flag=True, help="Even if memberships in use are sealed by it.")
@_of_site
def retire(directory: Path, identifier: str, force: bool) -> int:
    site = read_site_keys(directory)
    try:
        after = site.without(bytes.fromhex(identifier))
    except ValueError:
        raise SiteKeyError(f"{quoted(identifier)} is no key's id: see eslurm keys list") from None
    revoked = ledger.read_revoked(directory, site)
    newest = {(one.role, one.names): one for one in ledger.read(directory)}
    left = [
        one
        for one in newest.values()
        if one.key == identifier.lower() and bytes.fromhex(one.serial) not in revoked.serials
    ]
    if left and not force:
        raise SiteKeyError(
            f"{len(left)} memberships are sealed by that key ({left[0].role} {left[0].names}): issue them anew first "
            "(eslurm keys issue; eslurm up does it for its own cluster), or give --force"
        )
    if revoked.revision:
        # Under the key that stays.
        ledger.revoke(directory, site, frozenset())
    write_site_keys(directory, after)
    click.echo(f"key {identifier} is retired")
    return exits.OK


@keys.command(
    help="Make a host a member: its identity, membership and the site's public keys, for its state directory."
)
@click.option("--role", type=click.Choice(ROLES), help="What its daemon is.")
@click.option("--names", metavar="LIST", help="The nodes it serves, or its own name: cn[1-4].")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Where the files go.")
@click.option("--each", is_flag=True, help="A membership for each of the names, in DIR/NAME.")
@click.option(
    "--from",
    "lines",
    type=click.File(),
    metavar="FILE",
    help="Many of them, in place of --role, --names and --out: ROLE LIST DIR in each line (-: of the standard input).",
)
@click.option(
    "--days",
    type=click.IntRange(1, 36_500),
    metavar="N",
    help="How long it is valid (default: until revoked).",
)
@_of_site
def issue(
    directory: Path,
    role: Any,
    names: str | None,
    out: Path | None,
    each: bool,
    lines: TextIO | None,
    days: int | None,
) -> int:
    site = read_site_keys(directory)
    if lines is not None:
        if role or names or out or each:
            raise OptionError(
                "--from", None, "names all of them", "leave out --role, --names, --out and --each"
            )
        hosts = [_host(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    elif role and names and out:
        hosts = [(role, names, out)]
    else:
        raise OptionError(
            "keys issue", None, "needs --role, --names and --out", "or give a line for each host by --from"
        )
    now_us = _now_us()
    until_us = now_us + days * DAY_US if days else 0
    for what, text, place in hosts:
        found = expand(text, "--names")
        for home, of in _homes(place, found, each=each).items():
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            enrol(site, home, what, of, now_us, until_us, ledger=directory)
        click.echo(
            f"{place}{'/NAME' if each else ''}: {what} {fold(found)}; copy the files to the state directory of that daemon, "
            "identity.key in secret"
        )
    return exits.OK


def _host(number: int, line: str) -> tuple[Any, str, Path]:
    words = line.split()
    if len(words) != 3 or words[0] not in ROLES:
        shown = f"--from (line {number})"
        raise OptionError(
            shown,
            line.strip(),
            "is not ROLE LIST DIR",
            f"give one of {', '.join(ROLES)}, names and a directory",
        )
    return words[0], words[1], Path(words[2])


def _homes(place: Path, found: tuple[str, ...], *, each: bool) -> dict[Path, str]:
    """The names of each membership, by its target directory."""
    if not each:
        return {place: fold(found)}
    for name in found:
        if "/" in name or name.startswith("."):
            raise OptionError("--each", name, "is no name for a directory", "issue that one without --each")
    return {place / name: name for name in found}


@keys.command(help="The memberships that were issued.")
@_of_site
def members(directory: Path) -> int:
    revoked = ledger.read_revoked(directory, read_site_keys(directory))
    for one in ledger.read(directory):
        state = "revoked" if bytes.fromhex(one.serial) in revoked.serials else ""
        until = f"until {_date(one.until_us)}" if one.until_us else ""
        click.echo(
            f"{one.serial}  {one.role:<10} {one.names}  {_date(one.since_us)} {until} {state}".rstrip()
        )
    return exits.OK


@keys.command(
    help="End memberships: of a serial, or all of a host's name. Their links end at once, everywhere."
)
@click.argument("which", metavar="SERIAL|NAME")
@_of_site
def revoke(directory: Path, which: str) -> int:
    site = read_site_keys(directory)
    found = ledger.matching(ledger.read(directory), which)
    before = ledger.read_revoked(directory, site).serials
    serials = frozenset(bytes.fromhex(one.serial) for one in found) - before
    if not serials:
        said = "is revoked already" if found else "is no membership's serial and no member's name"
        raise SiteKeyError(f"{quoted(which)} {said}: see eslurm keys members")
    ledger.revoke(directory, site, serials)
    for one in found:
        click.echo(f"revoked: {one.serial} {one.role} {one.names}")
    return exits.OK


def _now_us() -> int:
    return time.time_ns() // 1000


def _date(at_us: int) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(at_us / 1_000_000))
