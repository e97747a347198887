"""From numbers to principals: a relay's gid counts for a member of that group only."""

from __future__ import annotations

import os
import pwd

import pytest

from eslurm.api.principals import PRIMARY, Principals, look_up
from eslurm.core.model.job import Principal
from eslurm.ports.api import ApiError, Status
from tests.support.loops import run

ADA = Principal("ada", 1000, 100, (100, 200))


def look_up_ada(uid: int, gid: int) -> Principal:
    """A name service that knows one user."""
    if uid != ADA.uid:
        return Principal(str(uid), uid, gid, () if gid == PRIMARY else (gid,))
    return Principal("ada", uid, ADA.gid if gid == PRIMARY else gid, ADA.groups)


def relayed(uid: int, gid: int) -> Principal:
    async def scenario() -> Principal:
        principals = Principals(lookup=look_up_ada)
        try:
            return await principals.resolve_relayed(uid, gid)
        finally:
            principals.close()

    found: Principal = run(scenario())
    return found


@pytest.mark.parametrize(("given", "taken"), [(100, 100), (200, 200), (0, 100), (27, 100), (PRIMARY, 100)])
def test_a_relayed_gid_is_taken_from_members_only(given: int, taken: int) -> None:
    assert relayed(ADA.uid, given) == Principal("ada", ADA.uid, taken, (100, 200))


def test_a_relayed_uid_that_nobody_knows_is_refused_with_the_way_out() -> None:
    with pytest.raises(ApiError, match=r"uid 4242 is unknown .* name service") as caught:
        relayed(4242, 0)
    assert caught.value.status is Status.PERMISSION_DENIED


def test_the_name_service_says_the_primary_group() -> None:
    entry = pwd.getpwuid(os.getuid())
    found = look_up(entry.pw_uid, PRIMARY)
    assert (found.name, found.gid) == (entry.pw_name, entry.pw_gid) and found.gid in found.groups
    assert look_up(987_654, PRIMARY) == Principal("987654", 987_654, PRIMARY, ())
