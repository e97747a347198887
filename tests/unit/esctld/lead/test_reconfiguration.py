"""The configuration file read again by a leader: by a call and by a signal, right and wrong files; and beside a standby."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from esctld.lead import reconfiguration
from esctld.standby.own_file import OLDER, OTHER, OwnFile
from eslurm.api import methods
from eslurm.config.file import parse_config
from eslurm.core.model.job import Principal
from eslurm.core.state.cluster import State
from eslurm.lab.sim.store_image import StoreImage
from eslurm.ports.api import Answered, Caller, Status
from eslurm.v1 import controller_pb2 as pb
from tests.kits.leading import CLUSTER
from tests.support.loops import run
from tests.unit.esctld.test_term import Term

USER = Principal("ann", 1000, 1000)
ROOT = Principal("root", 0, 0)


def text(names: str = "cn1", policy: str = "", cluster: str = CLUSTER) -> str:
    return f"""
        [cluster]
        name = "{cluster}"
        [agent]
        allow_root_jobs = true
        [[nodes]]
        names = "{names}"
        cores = 4
        memory_mib = 1000
        [[partition]]
        name = "main"
        default = true
        [policy]
        {policy}
    """


class Site:
    """A leader with a file of its own."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "eslurm.toml"
        self.write(text())
        self.term = Term(StoreImage(CLUSTER), parse_config(text().encode(), "x"), directory)
        self._calls = 0

    def write(self, content: str) -> None:
        self.file.write_text(content)
        self.file.chmod(0o600)

    async def ask(self, *, dry_run: bool = False, who: Principal = ROOT, number: int = 0) -> Answered:
        self._calls += 1
        caller = Caller(who, (number or self._calls).to_bytes(16, "big"), False, 60_000_000, "socket")
        return await self.term.ask(methods.RECONFIGURE, pb.ReconfigureRequest(dry_run=dry_run), caller)

    async def reply(self, **how: Any) -> pb.ReconfigureReply:
        answered = await self.ask(**how)
        assert answered.status is Status.OK, answered.text
        return pb.ReconfigureReply.FromString(answered.reply)

    @property
    def nodes(self) -> list[str]:
        return list(self.term.state.numbers)


def test_a_file_that_was_changed_comes_into_force_line_by_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        site = Site(tmp_path)
        async with site.term.serving():
            assert await site.reply() == pb.ReconfigureReply()
            site.write(text("cn[1-3]", "scheduler = 'fcfs'\nfinished_jobs_max = 9"))
            trial = await site.reply(dry_run=True)
            assert site.nodes == ["cn1"]
            with caplog.at_level(logging.INFO):
                reply = await site.reply()
            assert list(reply.changed) == [
                "node cn[2-3]: added",
                "partition main: nodes added: cn[2-3]",
                "policy.finished_jobs_max: 2000 -> 9",
            ]
            assert reply == trial and list(reply.needs_restart) == ["policy.scheduler"]
            assert site.nodes == ["cn1", "cn2", "cn3"] and site.term.state.config.policy == "easy"
            assert "configuration (by root): node cn[2-3]: added" in caplog.text
            # What waits is named again, what has come is not.
            again = await site.reply()
            assert not again.changed and list(again.needs_restart) == ["policy.scheduler"]

    run(main())


def test_a_retry_has_the_answer_of_its_first_try(tmp_path: Path) -> None:
    async def main() -> None:
        site = Site(tmp_path)
        async with site.term.serving():
            site.write(text("cn[1-2]"))
            first = await site.reply(number=77)
            assert first.changed and await site.reply(number=77) == first
            assert not (await site.reply()).changed

    run(main())


WRONG = [
    ("[cluster", "is not valid TOML"),
    (text("cn[1-3]", "schedular = 'fcfs'"), "schedular"),
    (text("cn1,cn1"), "named twice"),
    (text("cn[1-3]", "zone = 'Atlantis'"), "policy.zone: 'Atlantis' is no time zone"),
    (text(cluster="other"), "cluster.name: 'other' is another cluster"),
]


@pytest.mark.parametrize(("content", "said"), WRONG, ids=[said for _, said in WRONG])
def test_a_wrong_file_changes_nothing_and_is_named(tmp_path: Path, content: str, said: str) -> None:
    async def main() -> None:
        site = Site(tmp_path)
        async with site.term.serving():
            revision = site.term.state.config_revision
            site.write(content)
            answered = await site.ask()
            assert answered.status is Status.INVALID_ARGUMENT
            assert said in answered.text and "\n" not in answered.text
            place = "" if "another cluster" in said else r":\d+:\d+"
            assert re.match(f"{re.escape(str(site.file))}{place}: ", answered.text)
            assert site.term.state.config_revision == revision and site.nodes == ["cn1"]

    run(main())


def test_a_file_that_others_could_have_changed_is_not_read(tmp_path: Path) -> None:
    async def main() -> None:
        site = Site(tmp_path)
        async with site.term.serving():
            site.write(text("cn[1-2]"))
            site.file.chmod(0o666)
            answered = await site.ask()
            assert answered.status is Status.INVALID_ARGUMENT and "chmod" in answered.text
            site.file.unlink()
            answered = await site.ask()
            assert answered.status is Status.INVALID_ARGUMENT and "cannot be read" in answered.text
            site.file.symlink_to("/dev/zero")
            assert (await site.ask()).status is Status.INVALID_ARGUMENT
            site.file.unlink()
            os.mkfifo(site.file)
            assert (await site.ask()).status is Status.INVALID_ARGUMENT
            site.file.unlink()
            assert site.nodes == ["cn1"]

    run(main())


def test_a_file_without_end_is_not_read_to_its_end(tmp_path: Path) -> None:
    async def main() -> None:
        site = Site(tmp_path)
        async with site.term.serving():
            with site.file.open("r+b") as sparse:
                sparse.truncate(1 << 34)
            answered = await site.ask()
            assert answered.status is Status.INVALID_ARGUMENT and "bytes" in answered.text
            assert site.nodes == ["cn1"]

    run(main())


def test_users_have_nothing_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        site = Site(tmp_path)
        async with site.term.serving():
            monkeypatch.setattr(reconfiguration, "load", lambda path: pytest.fail(f"{path} was read"))
            answered = await site.ask(who=USER)
            assert answered.status is Status.PERMISSION_DENIED

    run(main())


def test_the_controller_serves_while_a_file_is_read_and_few_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        site = Site(tmp_path)
        async with site.term.serving():
            go, load = threading.Event(), reconfiguration.load

            def slowly(path: Path) -> Any:
                assert go.wait(60)
                return load(path)

            monkeypatch.setattr(reconfiguration, "load", slowly)
            try:
                asked = [asyncio.create_task(site.ask()) for _ in range(reconfiguration.WAITING_MAX)]
                await asyncio.sleep(0)
                assert (await site.term.ask(methods.PING, pb.PingRequest())).status is Status.OK
                assert (await site.ask()).status is Status.RESOURCE_EXHAUSTED
            finally:
                go.set()
            assert {answered.status for answered in await asyncio.gather(*asked)} == {Status.OK}

    run(main())


def test_a_signal_does_the_same_and_tells_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        site = Site(tmp_path)
        async with site.term.serving():
            site.write(text("cn[1-2]", "heartbeat_s = 1.0"))
            with caplog.at_level(logging.INFO):
                await site.term.controller.reconfigure()
                assert site.nodes == ["cn1", "cn2"]
                assert "(by SIGHUP): node cn2: added" in caplog.text
                assert "(by SIGHUP): policy.heartbeat_s: needs a restart" in caplog.text
                await site.term.controller.reconfigure()
                site.write(text("cn[1-"))
                await site.term.controller.reconfigure()
            assert "nothing has changed: " in caplog.text and site.nodes == ["cn1", "cn2"]

    run(main())


def test_a_takeover_with_the_file_of_before_keeps_what_is_in_force(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        site = Site(tmp_path)
        async with site.term.serving():
            site.write(text("cn[1-2]"))
            assert (await site.reply()).changed
        (tmp_path / "c2").mkdir()
        old = parse_config(text().encode(), "x")
        successor = Term(site.term.image, old, tmp_path / "c2", must_fit=False)
        with caplog.at_level(logging.ERROR):
            async with successor.serving():
                assert list(successor.state.numbers) == ["cn1", "cn2"]
        assert "stays in force: this controller's file is older" in caplog.text

    run(main())


def test_a_standby_says_when_its_file_is_not_the_one_in_force(tmp_path: Path) -> None:
    async def main() -> None:
        file, state, told = tmp_path / "eslurm.toml", State("main"), list[str]()
        own = OwnFile(file, lambda: state, told.append)
        await own.look()
        assert "cannot be read" in own.problem
        file.write_text(text())
        file.chmod(0o600)
        await own.look()
        assert own.problem == "", "nothing is known to be in force"
        state.config_digests = (own._digest,)
        await own.look()
        assert own.problem == ""
        state.config_digests = (own._digest, b"later")
        await own.look()
        assert own.problem == OLDER
        file.write_text(text("cn[1-9]"))
        await own.look()
        assert own.problem == OTHER
        file.write_text("[cluster")
        await own.look()
        assert "cannot be used" in own.problem
        assert told[1:] == ["", OLDER, OTHER, own.problem] and "cannot be read" in told[0]

    run(main())


def test_a_bug_in_the_check_of_a_file_ends_no_standby(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_path: Path) -> None:
        raise KeyError("a bug")

    async def main() -> None:
        file = tmp_path / "eslurm.toml"
        file.write_text(text())
        file.chmod(0o600)
        own = OwnFile(file, lambda: State("main"), lambda _problem: None)
        with monkeypatch.context() as patch:
            patch.setattr("esctld.standby.own_file.load", fail)
            await own.look()
        assert "could not be checked" in own.problem
        file.write_text(text("cn[1-2]"))
        await own.look()
        assert own.problem == ""

    run(main())


def test_questions_about_the_plan_are_answered_while_nodes_come_and_go(tmp_path: Path) -> None:
    async def main() -> None:
        site = Site(tmp_path)
        async with site.term.serving():
            job = pb.JobRequest(script=b"#!/bin/sh\n", work_dir="/tmp")
            job.components.add(tasks=1, cpus_per_task=4)
            for number in (1, 2, 3):
                caller = Caller(ROOT, number.to_bytes(16), False, 60_000_000, "socket")
                answered = await site.term.ask(methods.SUBMIT, pb.SubmitRequest(jobs=[job]), caller)
                assert answered.status is Status.OK, answered.text
            for names in ("cn[1-3]", "cn[2-3]", "cn3,cn1", "cn1"):
                # No agent serves any of them: they are not UP, and go without being drained.
                site.write(text(names))
                asked = [
                    site.term.ask(methods.WHY, pb.WhyRequest(job=pb.JobRef(job_id=3))),
                    site.term.ask(methods.PLAN, pb.PlanRequest()),
                    site.term.ask(methods.SUBMIT, pb.SubmitRequest(jobs=[job], test_only=True)),
                    site.term.ask(methods.NODES, pb.NodesRequest()),
                ]
                changed, *answers = await asyncio.gather(site.ask(), *asked, *asked_again(site, job))
                assert {one.status for one in (changed, *answers)} == {Status.OK}, answers
                after = [await one for one in asked_again(site, job)]
                assert {one.status for one in after} == {Status.OK}, after
            assert site.nodes == ["cn1"]

    run(main())


def asked_again(site: Site, job: pb.JobRequest) -> list[Any]:
    return [
        site.term.ask(methods.WHY, pb.WhyRequest(job=pb.JobRef(job_id=2))),
        site.term.ask(methods.SUBMIT, pb.SubmitRequest(jobs=[job], test_only=True)),
        site.term.ask(methods.PLAN, pb.PlanRequest()),
    ]
