"""Privacy: with everything private a user reads nothing of another, by any call; coordinators and operators do."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from google.protobuf.message import Message

from eslurm.api import methods
from eslurm.api.methods import METHODS, Method
from eslurm.config.sections import Config
from eslurm.core.control.privacy import KINDS
from eslurm.core.model.job import Principal
from eslurm.core.model.messages import Reports
from eslurm.core.model.protocol import Registration, Report
from eslurm.lab.sim.store_image import StoreImage
from eslurm.ports.api import Answered, Caller, Status
from eslurm.v1 import controller_pb2 as pb
from tests.kits.leading import CLUSTER
from tests.support.loops import run
from tests.unit.esctld.test_term import Term, configured

ROOT = Principal("root", 0, 0, (0,))
OPERATOR = Principal("op", 5000, 5000, (5000,))
# "ada" could be within a trace id.
ADA = Principal("adam", 5001, 5001, (5001,))
BEN = Principal("ben", 5002, 5002, (5002,))
CARL = Principal("carl", 5003, 5003, (5003,))
"""Coordinates ada's account."""

SECRETS = (b"adam", b"optics", b"xylophone")
"""Words that tell of ada: his name, her account's, and the names of his jobs, limits and reservations."""
SHOWN: dict[str, Callable[[int, int], Message] | None] = {
    "Ping": lambda _ada, _ben: pb.PingRequest(),
    "Jobs": lambda _ada, _ben: pb.JobsRequest(),
    "Nodes": lambda _ada, _ben: pb.NodesRequest(),
    "Satellites": lambda _ada, _ben: pb.SatellitesRequest(),
    "Accounting": lambda _ada, _ben: pb.AccountingRequest(),
    "WaitJobs": lambda ada, ben: pb.WaitJobsRequest(
        jobs=[pb.JobRef(job_id=one) for one in (ada, ben)], timeout_s=1
    ),
    "Config": None,
    "WaitStep": None,
    # Its owner's alone, whatever is private.
    "AttachStep": None,
    "AttendJob": None,
    "Broadcasts": None,
    # The answer is another cell's, under that cell's settings.
    "CallCell": None,
    # No user's call.
    "TellGuest": None,
    "TreeReport": lambda _ada, _ben: pb.TreeReportRequest(),
    "Controllers": lambda _ada, _ben: pb.ControllersRequest(),
    "Policies": lambda _ada, _ben: pb.PoliciesRequest(),
    "Why": lambda _ada, ben: pb.WhyRequest(job=pb.JobRef(job_id=ben)),
    "Steps": lambda _ada, _ben: pb.StepsRequest(),
    "Crontab": lambda _ada, _ben: pb.CrontabRequest(),
    "JobScript": lambda _ada, ben: pb.JobScriptRequest(job=pb.JobRef(job_id=ben)),
    # Its owner's alone, whatever is private.
    "StepUsage": None,
    "Plan": lambda _ada, _ben: pb.PlanRequest(),
    "Shares": lambda _ada, _ben: pb.SharesRequest(),
    "Statistics": lambda _ada, _ben: pb.StatisticsRequest(),
    "Federation": lambda _ada, _ben: pb.FederationRequest(),
    "Tokens": lambda _ada, _ben: pb.TokensRequest(),
}
"""Every call that users read by, and how ben makes it; None: see the tests below."""


def private(*kinds: str) -> Config:
    config = configured()
    config.cluster.operators = [OPERATOR.uid]
    config.privacy.private = list(kinds)
    config.controller.read_share_percent = config.controller.read_share_user_percent = 0.0
    return config


class Site(Term):
    """A cluster with a job of ada's that runs, one of ben's that waits for it, and policies of both."""

    ada_job = 0
    ben_job = 0
    _calls = 0

    async def call(self, who: Principal, method: Method[Any, Any], request: Message) -> Answered:
        self._calls += 1
        caller = Caller(who, self._calls.to_bytes(16, "big"), False, 60_000_000, "socket")
        return await self.ask(method, request, caller)

    async def read(self, who: Principal, method: Method[Any, Any], request: Message) -> Any:
        answered = await self.call(who, method, request)
        assert answered.status is Status.OK, (method.name, answered.text)
        return method.reply.FromString(answered.reply)

    async def refusal(self, who: Principal, method: Method[Any, Any], request: Message) -> tuple[Status, str]:
        answered = await self.call(who, method, request)
        return answered.status, answered.text

    async def submit(self, who: Principal, name: str, account: str) -> int:
        need = pb.ResourceRequest(tasks=4, cpus_per_task=1)
        job = pb.JobRequest(
            name=name,
            script=b"#!/bin/sh\n",
            work_dir=f"/home/{who.name}",
            components=[need],
            account=account,
            time_limit_s=600,
            comment=name,
        )
        reply = await self.read(who, methods.SUBMIT, pb.SubmitRequest(jobs=[job]))
        return int(reply.job_ids[0])

    async def fill(self) -> None:
        changes = [
            ("account", "optics", {}),
            ("account", "biology", {}),
            ("user", "adam", {"accounts": "optics"}),
            ("user", "ben", {"accounts": "biology"}),
            ("user", "carl", {"accounts": "optics"}),
            ("account", "optics", {"coordinators": "carl"}),
            ("limit", "xylophone", {"user": "adam", "resource": "cores", "items": "64"}),
            (
                "reservation",
                "xylophone-r",
                {"users": "adam", "nodes": "cn1", "start": "now+1days", "duration": "1h"},
            ),
            ("reservation", "bens", {"users": "ben", "nodes": "cn1", "start": "now+3days", "duration": "1h"}),
        ]
        for kind, name, given in changes:
            settings = [pb.Setting(key=key, value=value) for key, value in given.items()]
            change = pb.PolicyChange(action="set", kind=kind, name=name, settings=settings)
            await self.read(ROOT, methods.CHANGE_POLICIES, pb.ChangePoliciesRequest(changes=[change]))
        body = Registration("cn1", "uid", "boot", "s1", self.state.epoch, "127.0.0.1:1", (4, 1000))
        await self.controller._dispatcher.decided(Reports((Report("agent", 1, body),)))
        self.ada_job = await self.submit(ADA, "xylophone", "optics")
        while not self.state.jobs_on:
            await self.controller._dispatcher.moved()
        self.ben_job = await self.submit(BEN, "plain", "biology")


@asynccontextmanager
async def site(directory: Path, *kinds: str) -> AsyncIterator[Site]:
    term = Site(StoreImage(CLUSTER), private(*kinds), directory)
    async with term.serving():
        await term.fill()
        yield term


def test_every_call_that_users_read_by_is_looked_at_here() -> None:
    assert set(SHOWN) == {one.name for one in METHODS if not one.mutating and not one.is_privileged}


def test_with_everything_private_no_answer_tells_of_another_user(tmp_path: Path) -> None:
    async def main() -> None:
        async with site(tmp_path, *KINDS) as term:
            for name, request in SHOWN.items():
                if request is None:
                    continue
                method = methods.BY_NAME[name]
                asked = request(term.ada_job, term.ben_job)
                found = (await term.call(BEN, method, asked)).reply
                assert not [one for one in SECRETS if one in found], (name, found)
            shown = {
                "Jobs": [one.job_id for one in (await term.read(BEN, methods.JOBS, pb.JobsRequest())).jobs],
                "Plan": [one.job_id for one in (await term.read(BEN, methods.PLAN, pb.PlanRequest())).jobs],
                "Nodes": list((await term.read(BEN, methods.NODES, pb.NodesRequest())).nodes[0].jobs),
            }
            assert shown == {"Jobs": [term.ben_job], "Plan": [term.ben_job], "Nodes": []}
            policies = (await term.read(BEN, methods.POLICIES, pb.PoliciesRequest())).policies
            assert {(one.kind, one.name) for one in policies} == {
                ("account", "biology"),
                ("user", "ben"),
                ("reservation", "bens"),
            }
            why = await term.read(BEN, methods.WHY, pb.WhyRequest(job=pb.JobRef(job_id=term.ben_job)))
            holders = [holder for reason in why.reasons for holder in reason.holders]
            assert not [one for one in holders if one.job_id == term.ada_job]
            assert {one.what for one in holders} <= {"another job", "reservation bens"}
            assert holders

    run(main())


def test_a_private_job_is_not_found_by_others_whatever_they_call(tmp_path: Path) -> None:
    """In the words of a job that does not exist."""

    async def main() -> None:
        async with site(tmp_path, "jobs") as term:
            there, nowhere = pb.JobRef(job_id=term.ada_job), pb.JobRef(job_id=9_999_999)
            for make in (
                lambda ref: (methods.WHY, pb.WhyRequest(job=ref)),
                lambda ref: (methods.WAIT_STEP, pb.WaitStepRequest(job_id=ref.job_id, step=0)),
                lambda ref: (methods.CREATE_STEP, step_in(ref.job_id)),
                lambda ref: (methods.FINISH_PART, pb.FinishPartRequest(job=ref)),
                lambda ref: (methods.MOVE_PACK, pb.MovePackRequest(job=ref)),
                lambda ref: (methods.EXTEND_JOB, pb.ExtendJobRequest(job=ref, by_s=60)),
                lambda ref: (methods.RESIZE_JOB, pb.ResizeJobRequest(job=ref, by_nodes=-1)),
                lambda ref: (methods.JOB_SCRIPT, pb.JobScriptRequest(job=ref)),
                lambda ref: (methods.TOP_JOB, pb.TopJobRequest(job=ref)),
                lambda ref: (methods.STEP_USAGE, pb.StepUsageRequest(job=ref, steps=[-1])),
            ):
                (status, text), (status_of_none, text_of_none) = [
                    await term.refusal(BEN, *make(ref)) for ref in (there, nowhere)
                ]
                assert status is status_of_none is Status.NOT_FOUND
                assert text.replace(str(there.job_id), "N") == text_of_none.replace(str(nowhere.job_id), "N")
            for change in (
                lambda ref: (methods.CANCEL, pb.CancelRequest(jobs=[ref])),
                lambda ref: (methods.HOLD, pb.HoldRequest(jobs=[ref])),
                lambda ref: (methods.REQUEUE, pb.RequeueRequest(jobs=[ref])),
                lambda ref: (methods.UPDATE_JOB, pb.UpdateJobRequest(job=ref, comment="x")),
                lambda ref: (methods.CANCEL, pb.CancelRequest(jobs=[pb.JobRef(job_id=ref.job_id, task=3)])),
            ):
                replies = [await term.read(BEN, *change(ref)) for ref in (there, nowhere)]
                codes = {problem.code for reply in replies for problem in reply.problems}
                assert codes == {"not_found"} and not any(reply.count for reply in replies)
            for ref in (there, nowhere):
                job = pb.JobRequest(script=b"#!/bin/sh\n", work_dir="/tmp", account="biology")
                job.dependencies.add(kind="afterany", job_id=ref.job_id)
                status, text = await term.refusal(BEN, methods.SUBMIT, pb.SubmitRequest(jobs=[job]))
                assert (status, text) == (
                    Status.INVALID_ARGUMENT,
                    f"--dependency: job {ref.job_id} does not exist",
                )
            finished = await term.read(BEN, methods.FINISH_STEP, pb.FinishStepRequest(job_id=term.ada_job))
            assert finished.count == 0

    run(main())


def step_in(job_id: int) -> pb.CreateStepRequest:
    return pb.CreateStepRequest(
        job_id=job_id,
        tasks=1,
        nodes=1,
        argv=["true"],
        work_dir="/tmp",
        endpoint="127.0.0.1:9",
        cookie=b"c" * 32,
    )


def test_what_is_private_is_shown_to_its_user_coordinators_and_operators(tmp_path: Path) -> None:
    async def main() -> None:
        async with site(tmp_path, *KINDS) as term:
            for who in (ADA, CARL, OPERATOR, ROOT):
                jobs = (await term.read(who, methods.JOBS, pb.JobsRequest())).jobs
                assert term.ada_job in [one.job_id for one in jobs], who
                policies = (await term.read(who, methods.POLICIES, pb.PoliciesRequest())).policies
                named = {(one.kind, one.name) for one in policies}
                assert {("user", "adam"), ("account", "optics"), ("limit", "xylophone")} <= named, who
                shares = (await term.read(who, methods.SHARES, pb.SharesRequest())).shares
                assert ("optics", "adam") in {(one.account, one.user) for one in shares}, who
            for who in (ADA, CARL):
                assert term.ben_job not in [
                    one.job_id for one in (await term.read(who, methods.JOBS, pb.JobsRequest())).jobs
                ]
                assert (await term.refusal(who, methods.CONFIG, pb.ConfigRequest()))[
                    0
                ] is Status.PERMISSION_DENIED
            config = await term.read(OPERATOR, methods.CONFIG, pb.ConfigRequest())
            assert json.loads(config.json)["private"] == list(KINDS)
            # Nobody's level comes through a node.
            seen = await term.read(
                msgspec.structs.replace(OPERATOR, via="login"), methods.JOBS, pb.JobsRequest()
            )
            assert not seen.jobs

    run(main())


@pytest.mark.parametrize(
    ("method", "request_made", "kind"),
    [
        (methods.CONFIG, pb.ConfigRequest(), "configuration"),
        (methods.BROADCASTS, pb.BroadcastsRequest(), "jobs"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_what_cannot_be_told_apart_is_for_operators(
    tmp_path: Path, method: Method[Any, Any], request_made: Message, kind: str
) -> None:
    async def main() -> None:
        async with site(tmp_path, kind) as term:
            status, text = await term.refusal(BEN, method, request_made)
            assert status is Status.PERMISSION_DENIED and text.startswith(
                f"{kind}: private here (privacy.private)"
            )
            await term.read(OPERATOR, method, request_made)
        async with site(tmp_path) as term:
            await term.read(BEN, method, request_made)

    run(main())


def test_without_private_kinds_everything_is_shown_but_what_a_job_runs(tmp_path: Path) -> None:
    """No answer to a user has a field for scripts, environments or arguments; steps are for those who manage the job."""

    async def main() -> None:
        async with site(tmp_path) as term:
            jobs = (await term.read(BEN, methods.JOBS, pb.JobsRequest())).jobs
            assert {one.name for one in jobs} == {"xylophone", "plain"}
            assert len((await term.read(BEN, methods.POLICIES, pb.PoliciesRequest())).policies) == 8
            fields = {
                field.name
                for message in (pb.JobInfo, pb.AttemptInfo, pb.PlannedJob)
                for field in message.DESCRIPTOR.fields
            }
            assert not fields & {
                "script",
                "script_hash",
                "environment",
                "environment_hash",
                "arguments",
                "argv",
            }
            step = pb.WaitStepRequest(job_id=term.ada_job, step=0, timeout_s=1)
            await term.read(ADA, methods.CREATE_STEP, step_in(term.ada_job))
            status, text = await term.refusal(BEN, methods.WAIT_STEP, step)
            assert status is Status.PERMISSION_DENIED and text.startswith(
                f"job {term.ada_job} belongs to adam"
            )
            for who in (ADA, CARL, OPERATOR):
                await term.read(who, methods.WAIT_STEP, step)

    run(main())
