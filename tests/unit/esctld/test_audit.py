"""The leader's audit log through its real gate: what is written, who may read it, and where it lies."""

from __future__ import annotations

import asyncio
import json
import stat
from pathlib import Path
from typing import Any

import pytest

from eslurm.api import methods
from eslurm.core.model.job import Principal
from eslurm.lab.sim.store_image import StoreImage
from eslurm.ports.api import Caller, Status
from eslurm.v1 import controller_pb2 as pb
from tests.kits.leading import CLUSTER
from tests.support.loops import run
from tests.unit.esctld.test_term import ROOT, Term, configured

MALLORY = Caller(Principal("mal\x1b[2Jlory", 65534, 65534), bytes(range(1, 17)), False, 60_000_000, "socket")
OPERATOR = Caller(Principal("op", 5000, 5000), bytes(range(2, 18)), False, 60_000_000, "socket")


async def lines(term: Term, wanted: int, **fields: Any) -> list[dict[str, Any]]:
    """Read the audit as root, once it has so many lines: they are written beside the calls."""
    async with asyncio.timeout(60):
        while True:
            answered = await term.ask(methods.AUDIT, pb.AuditRequest(**fields))
            assert answered.status is Status.OK, answered.text
            found = [json.loads(line) for line in pb.AuditReply.FromString(answered.reply).lines]
            if len(found) >= wanted:
                return found
            await asyncio.sleep(0.001)


def term_in(directory: Path, **audit: Any) -> Term:
    config = configured()
    config.cluster.operators = [OPERATOR.principal.uid]
    for name, value in audit.items():
        setattr(config.audit, name, value)
    return Term(StoreImage(CLUSTER), config, directory)


def test_changes_and_refusals_are_written_and_administrators_read_them(tmp_path: Path) -> None:
    async def main() -> None:
        term = term_in(tmp_path)
        async with term.serving():
            job = pb.JobRequest(name="job", script=b"#!/bin/sh\n#hunter2\n", work_dir="/tmp", held=True)
            await term.ask(methods.SUBMIT, pb.SubmitRequest(jobs=[job]))
            await term.ask(methods.CANCEL, pb.CancelRequest(jobs=[pb.JobRef(job_id=1)]), MALLORY)
            await term.ask(methods.UPDATE_NODES, pb.UpdateNodesRequest(names=["cn1"], action="lost"), MALLORY)
            await term.ask(methods.JOBS, pb.JobsRequest(), MALLORY)
            found = await lines(term, 3)
            assert [(one["user"], one["method"], one["result"]) for one in found] == [
                ("root", "Submit", "ok"),
                ("mal\x1b[2Jlory", "Cancel", "refused"),
                ("mal\x1b[2Jlory", "UpdateNodes", "refused"),
            ]
            assert found[1]["what"] == "jobs=1" and "belongs to root" in found[1]["reason"]
            assert found[2]["status"] == "PERMISSION_DENIED" and found[2]["what"] == "names=cn1 action=lost"
            assert found[1]["request_id"] == MALLORY.request_id.hex()
            for who in (MALLORY, OPERATOR):
                denied = await term.ask(methods.AUDIT, pb.AuditRequest(), who)
                assert denied.status is Status.PERMISSION_DENIED and "administrators" in denied.text
            assert len(await lines(term, 4, refused=True)) == 4
            assert [one["uid"] for one in await lines(term, 1, user="op")] == [5000]
            assert {one["uid"] for one in await lines(term, 3, user="65534")} == {65534}
            assert len(await lines(term, 1, limit=1)) == 1
        path = tmp_path / "audit-c1.log"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        text = path.read_text()
        assert "hunter2" not in text and "\x1b" not in text and len(text.splitlines()) == 5

    run(main())


@pytest.mark.parametrize("name", ["", "sub/audit.log"])
def test_a_controller_without_an_audit_log_works_and_says_so(tmp_path: Path, name: str) -> None:
    """None is asked for; or it cannot be written."""

    async def main() -> None:
        term = term_in(tmp_path, file=name)
        async with term.serving():
            hold = await term.ask(methods.HOLD, pb.HoldRequest(jobs=[pb.JobRef(job_id=1)]), ROOT)
            assert hold.status is Status.OK
            answered = await term.ask(methods.AUDIT, pb.AuditRequest())
            if name:
                assert not pb.AuditReply.FromString(answered.reply).lines
            else:
                assert answered.status is Status.FAILED_PRECONDITION and "audit.file" in answered.text
        assert not list(tmp_path.glob("**/*.log"))

    run(main())
