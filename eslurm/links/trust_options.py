"""The options that name a daemon's identity and the site's keys, the same for satellites and agents.

Imports nothing heavy: command lines are read before gRPC is imported.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from eslurm.security.credentials import Credentials
    from eslurm.security.membership import Role


def add_trust_options(parser: ArgumentParser) -> None:
    """The options of a daemon that is a member of the site."""
    given: tuple[tuple[str, str], ...] = (
        ("--site-keys", "the site's public keys; default: site.pub in --state-dir"),
        (
            "--identity",
            "this daemon's own key, drawn when it is missing; default: identity.key in --state-dir",
        ),
        ("--membership", "what the site says of that key; default: membership in --state-dir"),
    )
    for option, text in given:
        parser.add_argument(option, type=Path, default=None, metavar="FILE", help=text)


def read_member(
    given: Any, role: Role, names: Iterable[str], now_us: int, renewed_at: Iterable[Path] = ()
) -> Credentials:
    """The credentials that the options name, checked to allow the daemon's role and names.

    `given` has the options as attributes, and `cluster`; `renewed_at` are further directories for a newer membership.
    Raises `CannotJoin`.
    """
    from eslurm.security.credentials import CannotJoin, Renewal, check_own, read_credentials
    from eslurm.security.membership import MEMBERSHIP, NotAMember

    state_dir: Path = given.state_dir
    names = tuple(names)
    files = [given.membership or state_dir / MEMBERSHIP, *(place / MEMBERSHIP for place in renewed_at)]
    # First: what is written from here on is news.
    renewal = Renewal(files, role, names)
    credentials = read_credentials(state_dir, given.site_keys, given.identity, given.membership)
    path = given.membership or state_dir / MEMBERSHIP
    if credentials.members.ring.cluster != given.cluster:
        raise CannotJoin(
            f"the site's keys are of cluster {credentials.members.ring.cluster!r}, not {given.cluster!r}: "
            "give --site-keys of this one"
        )
    if not credentials.membership:
        raise CannotJoin(
            f"{path} is missing: join the cluster (eslurm join --role {role}), or issue one on a controller's host "
            "(eslurm keys issue)"
        )
    try:
        check_own(credentials, role, names, now_us)
    except NotAMember as error:
        raise CannotJoin(f"{path}: {error}") from None
    credentials.renewal = renewal
    return credentials
