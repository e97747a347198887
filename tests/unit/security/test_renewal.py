"""A membership that is replaced while its daemon runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eslurm.core.model.hostlist import unfold
from eslurm.security.credentials import Credentials, Renewal, read_credentials
from eslurm.security.files import UnsafeFile, write_public
from eslurm.security.membership import MEMBERSHIP, Identity, NotAMember
from tests.support.trust import Site

SITE = Site()
NAMES = "cn[1-2]"


def running(directory: Path) -> Credentials:
    """The credentials that a daemon has read at its start."""
    SITE.write_member(directory, "agent", NAMES)
    renewal = Renewal([directory / MEMBERSHIP, directory / "above" / MEMBERSHIP], "agent", unfold(NAMES))
    credentials = read_credentials(directory)
    credentials.renewal = renewal
    return credentials


def test_a_newer_one_is_used_wherever_it_was_put(tmp_path: Path) -> None:
    credentials = running(tmp_path)
    assert not credentials.renew(1)
    fresh = SITE.issue(credentials.identity, "agent", "cn[1-9]")
    write_public(tmp_path / MEMBERSHIP, fresh)
    assert credentials.renew(1) and credentials.membership == fresh
    assert not credentials.renew(1)
    again = SITE.issue(credentials.identity, "agent", NAMES)
    (tmp_path / "above").mkdir()
    write_public(tmp_path / "above" / MEMBERSHIP, again)
    assert credentials.renew(1) and credentials.membership == again


def test_one_that_does_not_fit_is_told_of_once_and_not_used(tmp_path: Path) -> None:
    credentials = running(tmp_path)
    before = credentials.membership
    ended = SITE.issue(credentials.identity, "agent", NAMES, until_us=1)
    for sealed in (
        SITE.issue(Identity.generate(), "agent", NAMES),
        SITE.issue(credentials.identity, "satellite", NAMES),
        SITE.issue(credentials.identity, "agent", "cn1"),
        Site("other").issue(credentials.identity, "agent", NAMES),
        ended,
        b"nothing",
    ):
        write_public(tmp_path / MEMBERSHIP, sealed)
        with pytest.raises(NotAMember):
            credentials.renew(2)
        assert not credentials.renew(2) and credentials.membership == before
    write_public(tmp_path / MEMBERSHIP, SITE.issue(credentials.identity, "agent", NAMES))
    (tmp_path / MEMBERSHIP).chmod(0o666)
    with pytest.raises(UnsafeFile):
        credentials.renew(2)
    os.unlink(tmp_path / MEMBERSHIP)
    assert not credentials.renew(2) and credentials.membership == before
