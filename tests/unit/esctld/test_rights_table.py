"""Rights to call: every method, every identity, every door, against the running controller.

`NEEDED` is the table: what each method asks of its caller. `is_allowed` says what that means for an identity at a door, and
each call is made through the real door: a Unix socket, the ends of links, the gRPC server, or the gate that all share.
A method without a row fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
import pytest
from google.protobuf.message import Message
from msgspec.structs import replace

from eslurm.api import methods
from eslurm.api.methods import METHODS, Method
from eslurm.api.principals import Principals
from eslurm.api.unix_client import Client
from eslurm.api.unix_server import UnixServer
from eslurm.core.model.job import Principal
from eslurm.lab.sim.store_image import StoreImage
from eslurm.ports.api import Answered, ApiRefused, Caller, Status, status_of
from eslurm.v1 import controller_pb2 as pb
from eslurm.v1 import link_pb2
from tests.kits.api import PATIENCE_S, until
from tests.kits.leading import CLUSTER
from tests.support.loops import run
from tests.unit.esctld.lead.test_links import FakeLink
from tests.unit.esctld.test_privacy import ADA, BEN, CARL, OPERATOR, ROOT, Site, private, step_in

ADMIN = Principal("admin", 5009, 5009, (5009,))
IDENTITIES: Final = {
    "user": BEN,
    "owner": ADA,
    "coordinator": CARL,
    "operator": OPERATOR,
    "administrator": ADMIN,
    "root": ROOT,
}
"""`owner` is the user of the job that calls are about, `coordinator` coordinates its account."""
LINKS: Final = {
    "standby": ("controller", "c2", ""),
    "login host": ("login", "login1", "login1"),
    "node with a job of the caller": ("agent", "cn1", "cn1"),
    "satellite's word for such a node": ("satellite", "s1", "cn1"),
    "node without a job of the caller": ("agent", "cn1", "cn1"),
    "node that names another": ("agent", "cn2", "cn1"),
    "node that names a login host": ("agent", "login1", "login1"),
    "satellite that names a node": ("satellite", "s1", "cn1"),
}
"""Doors behind a link: the role and the name of who is at its other end, and the node that its calls name."""
DOORS: Final = ("socket", "token", "cell", *LINKS)
CLOSED: Final = frozenset(name for name in LINKS if "without" in name or "that names" in name)

ANYONE: Final = frozenset(IDENTITIES)
NEEDED: Final[dict[str, frozenset[str]]] = {
    "anyone": ANYONE,
    "owner": frozenset({"owner"}),
    "managed": frozenset({"owner", "coordinator", "operator", "administrator", "root"}),
    "owned": frozenset({"owner", "operator", "administrator", "root"}),
    "coordinator": frozenset({"coordinator", "operator", "administrator", "root"}),
    "operator": frozenset({"operator", "administrator", "root"}),
    "administrator": frozenset({"administrator", "root"}),
    # Calls about a token of somebody else; everybody may make, see and revoke their own (`tests/security/test_tokens.py`).
    "others' tokens": frozenset({"administrator", "root"}),
    "cells": frozenset(),
}
RIGHTS: Final[dict[str, str]] = {
    "Ping": "anyone",
    "Submit": "anyone",
    "Cancel": "managed",
    "Hold": "managed",
    "Requeue": "managed",
    "UpdateJob": "managed",
    "UpdateNodes": "operator",
    "Jobs": "anyone",
    "Nodes": "anyone",
    "Satellites": "anyone",
    "Accounting": "anyone",
    "WaitJobs": "anyone",
    "Config": "anyone",
    "CreateStep": "owner",
    "WaitStep": "managed",
    "FinishStep": "owner",
    "UpdateSatellites": "operator",
    "Broadcasts": "anyone",
    "TreeReport": "anyone",
    "Controllers": "anyone",
    "Takeover": "administrator",
    "Reconfigure": "administrator",
    "ExportLog": "administrator",
    "Doctor": "operator",
    "Policies": "anyone",
    "ChangePolicies": "coordinator",
    "Why": "anyone",
    "Plan": "anyone",
    "Shares": "anyone",
    "Statistics": "anyone",
    "JobScript": "owned",
    "UpdatePartitions": "operator",
    "Steps": "anyone",
    "TopJob": "managed",
    "StepUsage": "owned",
    "Crontab": "owned",
    # A crontab without a text is removed, which operators may, too.
    "SetCrontab": "owned",
    "Federation": "anyone",
    "ChangeFederation": "administrator",
    "CallCell": "anyone",
    "Suspend": "operator",
    "JobFeed": "operator",
    "SetForecasts": "operator",
    "Audit": "administrator",
    "CreateToken": "others' tokens",
    "Tokens": "others' tokens",
    "RevokeTokens": "others' tokens",
    "CreateJoinToken": "administrator",
    "Joins": "administrator",
    "DecideJoin": "administrator",
    "RevokeMembers": "administrator",
    "FinishPart": "managed",
    "MovePack": "managed",
    "ExtendJob": "managed",
    "TellGuest": "cells",
    "ResizeJob": "managed",
    "AttachStep": "owner",
    "AttendJob": "owner",
    "ReleaseJob": "owner",
}
"""The table: method -> what it asks of its caller."""


def is_allowed(method: str, identity: str, door: str) -> bool:
    """The table's verdict: rights over others come through no node and no login host, and root not at all."""
    if method == "TellGuest":
        # Leaders of other cells alone, about the jobs of a user.
        return door == "cell" and identity != "root"
    if method == "CreateStep" and door == "cell":
        # Only in a job that holds nodes for one of that cell.
        return False
    if door in CLOSED or (door == "token" and method == "CreateToken"):
        return False
    needed = NEEDED[RIGHTS[method]]
    if door in ("socket", "token", "standby"):
        return identity in needed
    return identity != "root" and (needed == ANYONE or (identity == "owner" and "owner" in needed))


def request_of(method: str, site: Site) -> Message:
    """A call that is of the owner's jobs where it is of any, and changes nothing that later calls look at."""
    waiting = pb.JobRef(job_id=site.waiting_job)
    change = pb.PolicyChange(action="modify", kind="user", name="ada")
    change.settings.add(key="accounts+", value="optics")
    made: dict[str, Message] = {
        "Submit": pb.SubmitRequest(jobs=[pb.JobRequest(script=b"#!/bin/sh\n", work_dir="/tmp", held=True)]),
        "Cancel": pb.CancelRequest(jobs=[pb.JobRef(job_id=site.ada_job)], signal=18),
        "Hold": pb.HoldRequest(jobs=[waiting]),
        "Requeue": pb.RequeueRequest(jobs=[waiting]),
        "UpdateJob": pb.UpdateJobRequest(job=waiting, comment="looked at"),
        "Suspend": pb.SuspendRequest(jobs=[waiting]),
        "MovePack": pb.MovePackRequest(job=waiting),
        "ExtendJob": pb.ExtendJobRequest(job=waiting, by_s=60),
        "ResizeJob": pb.ResizeJobRequest(job=waiting, by_nodes=-1),
        "CreateStep": step_in(site.ada_job),
        "WaitStep": pb.WaitStepRequest(job_id=site.ada_job, step=0, timeout_s=1),
        "FinishStep": pb.FinishStepRequest(job_id=site.ada_job, step=0),
        "AttachStep": pb.AttachStepRequest(job_id=site.ada_job, step=0),
        "AttendJob": pb.AttendJobRequest(job_id=site.ada_job),
        "ReleaseJob": pb.ReleaseJobRequest(job_id=site.ada_job),
        "FinishPart": pb.FinishPartRequest(job=pb.JobRef(job_id=site.ada_job, part=1)),
        "Takeover": pb.TakeoverRequest(to="nowhere"),
        "ChangePolicies": pb.ChangePoliciesRequest(changes=[change]),
        "Why": pb.WhyRequest(job=waiting),
        "JobScript": pb.JobScriptRequest(job=waiting),
        "TopJob": pb.TopJobRequest(job=waiting),
        "StepUsage": pb.StepUsageRequest(job=waiting, steps=[-1]),
        "UpdatePartitions": pb.UpdatePartitionsRequest(names=["main"], state="UP"),
        "Crontab": pb.CrontabRequest(user="adam"),
        "SetCrontab": pb.SetCrontabRequest(user="adam"),
        "UpdateNodes": pb.UpdateNodesRequest(action="resume"),
        "UpdateSatellites": pb.UpdateSatellitesRequest(action="resume"),
        "CreateToken": pb.CreateTokenRequest(user="nobody"),
        "Tokens": pb.TokensRequest(user="nobody"),
        "RevokeTokens": pb.RevokeTokensRequest(user="nobody"),
    }
    return made.get(method) or methods.BY_NAME[method].request()


def verdict(method: Method[Any, Any], answered: Answered) -> bool:
    """Check that a call was let through: its answer, whatever it is, is not that the caller may not."""
    if answered.status in (Status.PERMISSION_DENIED, Status.UNAUTHENTICATED):
        return False
    if answered.status is Status.OK and method.reply is pb.ChangeReply:
        return not any(one.code == "denied" for one in pb.ChangeReply.FromString(answered.reply).problems)
    return True


class Table(Site):
    """The cluster that calls are made of."""

    waiting_job = 0
    is_known_job = True
    _numbers = 0

    async def prepare(self) -> None:
        await self.fill()
        self.waiting_job = await self.submit(ADA, "xylophone", "optics")
        await self.read(ADA, methods.CREATE_STEP, step_in(self.ada_job))
        await self.read(ADA, methods.FINISH_STEP, pb.FinishStepRequest(job_id=self.ada_job, step=0))
        links: Any = self.controller._links
        links._principals = self
        links._has_job = lambda *_asked: self.is_known_job

    async def resolve_relayed(self, uid: int, gid: int) -> Principal:
        """The name service: of those who are known here."""
        [found] = [one for one in IDENTITIES.values() if one.uid == uid]
        return found

    def number(self) -> int:
        self._numbers += 1
        return self._numbers

    async def by_gate(self, method: Method[Any, Any], who: Principal, via: str) -> Answered:
        caller = Caller(replace(who, via=via), self.number().to_bytes(16, "big"), False, 60_000_000, via)
        if via == "cell":
            caller = caller._replace(cell="beta")
        return await self.ask(method, request_of(method.name, self), caller)

    async def by_link(self, method: Method[Any, Any], who: Principal, link: Any, door: str) -> Answered:
        number = self.number()
        named = LINKS[door][2]
        is_relayed = door == "satellite's word for such a node"
        origin = link_pb2.Origin(role="agent", names=named, serial=b"serial") if is_relayed else None
        call = link_pb2.DoorCall(
            process=f"esnoded.{named}.abc" if is_relayed else link.peer.process,
            origin=origin,
            call=number,
            method=method.name,
            request=request_of(method.name, self).SerializeToString(),
            request_id=number.to_bytes(16, "big"),
            deadline_us=60_000_000,
            uid=who.uid,
            gid=0,
            node=self.state.numbers[named] if named else 0,
        )
        link.sent.clear()
        self.controller._links.on_items(link, [link_pb2.Item(door_call=call)])
        await until(lambda: bool(link.sent))
        [reply] = link.sent
        return Answered(status_of(reply.status), reply.text, reply.reply)


@asynccontextmanager
async def table(directory: Path) -> AsyncIterator[Table]:
    config = private()
    config.cluster.administrators = [0, ADMIN.uid]
    config.login.nodes = "login1"
    # What root may do is asked for here, not whether jobs of root run.
    config.agent.allow_root_jobs = True
    term = Table(StoreImage(CLUSTER), config, directory)
    async with term.serving():
        await term.prepare()
        yield term


def every_call() -> Iterator[tuple[Method[Any, Any], str]]:
    for method in METHODS:
        for identity in IDENTITIES:
            yield method, identity


def test_every_method_has_its_row() -> None:
    assert set(RIGHTS) == {one.name for one in METHODS}
    assert set(RIGHTS.values()) <= set(NEEDED)


def test_what_a_method_asks_for_at_the_door_is_what_the_table_says() -> None:
    at_the_door = {"managed": "owner", "owned": "owner", "others' tokens": "owner", "cells": "owner"}
    for method in METHODS:
        right = RIGHTS[method.name]
        assert method.right == at_the_door.get(right, right), method.name


@pytest.mark.parametrize("door", DOORS)
def test_every_method_for_every_identity(tmp_path: Path, door: str) -> None:
    async def main() -> None:
        async with table(tmp_path) as term:
            link: Any = FakeLink(*LINKS[door][:2]) if door in LINKS else None
            if door == "standby":
                term.controller._links.on_up(link)
            term.is_known_job = "without" not in door
            wrong: list[str] = []
            for method, identity in every_call():
                who = IDENTITIES[identity]
                if link is None:
                    answered = await term.by_gate(method, who, door)
                else:
                    answered = await term.by_link(method, who, link, door)
                if verdict(method, answered) != is_allowed(method.name, identity, door):
                    wrong.append(f"{method.name} of {identity}: {answered.status.name} {answered.text}")
            if door == "standby":
                term.controller._links.on_down(link, "the test is over")
            assert not wrong, "\n".join(wrong)

    run(main())


def test_the_same_through_the_controller_s_own_socket(tmp_path: Path, state_dir: Path) -> None:
    """The kernel says one uid: who that is, the name service says."""

    async def main() -> None:
        async with table(tmp_path) as term:
            wrong: list[str] = []
            for identity, who in IDENTITIES.items():
                lookup: Callable[[int, int], Principal] = lambda _uid, _gid, who=who: who  # type: ignore[misc] # noqa: E731
                principals = Principals(lookup=lookup)
                door = UnixServer(state_dir / f"{identity}.sock", await term._serving, principals)
                await door.start()
                try:
                    for method in METHODS:
                        answered = await asyncio.to_thread(through, door.path, method, term)
                        if verdict(method, answered) != is_allowed(method.name, identity, "socket"):
                            wrong.append(
                                f"{method.name} of {identity}: {answered.status.name} {answered.text}"
                            )
                finally:
                    await door.stop()
                    principals.close()
            assert not wrong, "\n".join(wrong)

    run(main())


def through(path: Path, method: Method[Any, Any], term: Table) -> Answered:
    request_id = term.number().to_bytes(16, "big") if method.mutating else None
    with Client(path) as client:
        try:
            reply = client.call(method, request_of(method.name, term), PATIENCE_S, request_id=request_id)
        except ApiRefused as refused:
            return Answered(refused.status, refused.text, b"")
    return Answered(Status.OK, "", reply.SerializeToString())


def test_a_stranger_without_a_token_gets_nothing_from_the_remote_door(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            table(tmp_path) as term,
            grpc.aio.insecure_channel(term.controller._lead.endpoint) as channel,
        ):
            for method in METHODS:
                call = channel.unary_unary(method.path)
                for metadata in ((), (("authorization", "Bearer es1.bm90aGluZw"),)):
                    with pytest.raises(grpc.aio.AioRpcError) as caught:
                        await call(
                            request_of(method.name, term).SerializeToString(), timeout=60, metadata=metadata
                        )
                    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED, method.name

    run(main())
