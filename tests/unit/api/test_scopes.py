"""Scopes: the whole table, so that a new method is put into it on purpose."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from eslurm.api.authoriser import Authoriser
from eslurm.api.methods import BY_NAME, METHODS
from eslurm.api.scopes import METHODS_OF, grants, permits
from eslurm.core.control.rights import Level
from eslurm.core.model.token import SCOPES
from eslurm.ports.api import Caller, Status
from tests.kits.api import ALICE, PATIENCE_S, REQUEST_ID, Service
from tests.support.loops import run

READ = "read own-jobs submit"
CHANGE = "own-jobs submit"
TABLE = {
    "Ping": f"{READ} estimator",
    "Submit": "submit",
    "Cancel": CHANGE,
    "Hold": CHANGE,
    "Requeue": CHANGE,
    "UpdateJob": CHANGE,
    "UpdateNodes": "",
    "Jobs": READ,
    "Nodes": READ,
    "Satellites": READ,
    "Accounting": READ,
    "WaitJobs": READ,
    "Config": READ,
    "CreateStep": "submit",
    "WaitStep": READ,
    "FinishStep": "submit",
    "AttachStep": "submit",
    "AttendJob": "submit",
    "ReleaseJob": "submit",
    "FinishPart": CHANGE,
    "UpdateSatellites": "",
    "Broadcasts": READ,
    "TreeReport": READ,
    "Controllers": READ,
    "Takeover": "",
    "Reconfigure": "",
    "ExportLog": "",
    "Doctor": "",
    "Policies": READ,
    "ChangePolicies": "",
    "Why": READ,
    "Plan": READ,
    "Shares": READ,
    "Statistics": READ,
    "JobScript": CHANGE,
    "UpdatePartitions": "",
    "Steps": READ,
    "TopJob": CHANGE,
    "StepUsage": CHANGE,
    "Crontab": "submit",
    "SetCrontab": "submit",
    "Federation": READ,
    "ChangeFederation": "",
    "CallCell": READ,
    "Suspend": "",
    "JobFeed": "estimator",
    "SetForecasts": "estimator",
    "Audit": "",
    "CreateToken": "",
    "Tokens": READ,
    "RevokeTokens": "",
    "CreateJoinToken": "",
    "Joins": "",
    "DecideJoin": "",
    "RevokeMembers": "",
    "MovePack": CHANGE,
    "ExtendJob": CHANGE,
    "ResizeJob": CHANGE,
}
"""Method -> the scopes besides admin whose tokens may call it."""


def test_the_table_is_this_one() -> None:
    known = {method.name for method in METHODS}
    assert known >= set(TABLE)
    for method in METHODS:
        # One that is not in the table above is for admin only until somebody decides.
        assert {scope for scope in METHODS_OF if permits(scope, method)} == set(
            TABLE.get(method.name, "").split()
        )
        assert permits("admin", method) and permits("", method) and not permits("another", method)
    assert set(METHODS_OF) | {"admin"} == set(SCOPES)
    assert all(set(names) <= known for names in METHODS_OF.values())


def test_no_scope_to_read_changes_anything() -> None:
    assert not [name for name in METHODS_OF["read"] if BY_NAME[name].mutating]
    assert not [
        name
        for scope in ("read", "own-jobs", "submit")
        for name in METHODS_OF[scope]
        if BY_NAME[name].is_privileged
    ]


@pytest.mark.parametrize("scope", SCOPES)
def test_the_gate_asks_the_table(scope: str) -> None:
    """Through the real gate, for a user and for an administrator behind a token."""

    async def scenario() -> None:
        for level in (Level.USER, Level.ADMINISTRATOR):
            # As the core does: a limited token brings no level.
            gate = Authoriser(
                Service(), lambda who, level=level: level if who.scope == "admin" else Level.USER
            )  # type: ignore[misc]
            for method in METHODS:
                who = replace(ALICE, via="token", scope=scope)
                request_id = REQUEST_ID if method.mutating else b""
                caller = Caller(who, request_id, False, int(PATIENCE_S * 1e6), "token", "id")
                answered = await gate.answer(method, b"", caller)
                allowed = permits(scope, method) and (
                    not method.is_privileged
                    or grants(who, method)
                    or (scope == "admin" and level > Level.USER)
                )
                assert (answered.status is not Status.PERMISSION_DENIED) == allowed, (method.name, answered)
                if not permits(scope, method):
                    assert f"{method.name} is beyond a token of scope {scope}" in answered.text

    run(scenario())
