"""The job's socket: which lines are answered, in whose name, and what one user can make of it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eslurm import job
from eslurm.core.agent.attempt import Stage
from eslurm.ports.api import Answered, Caller, Status
from eslurm.transport.counters import ApiCounters
from eslurm.v1 import controller_pb2 as pb
from esnoded.job_lines import LINE_BYTES_MAX, LineError, answer, read_line, refusal
from esnoded.job_socket import JobSocket, JobSocketSettings
from tests.support.loops import run

ME = os.geteuid()


class Controller:
    """Answers calls as a controller would, and remembers them."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any, Caller]] = []
        self.absences = {"FinishPart": 0}
        self.launching = 0
        self.waits_for = "afterok:16(unfulfilled)"

    async def answer(self, method: Any, payload: bytes, caller: Caller) -> Answered:
        request = method.request.FromString(payload)
        self.calls.append((method.name, request, caller))
        if self.absences.get(method.name):
            self.absences[method.name] -= 1
            return Answered(Status.UNAVAILABLE, "no leader", b"", 0.001)
        made: Any = getattr(self, method.name.lower())(request)
        return made if isinstance(made, Answered) else Answered(Status.OK, "", made.SerializeToString())

    def jobs(self, request: Any) -> pb.JobsReply:
        (ref,) = request.jobs
        info = pb.JobInfo(
            job_id=ref.job_id,
            state="LAUNCHING" if self.launching else "RUNNING",
            name="a=b%",
            time_limit_s=600,
            node_names="cn[0-3]",
        )
        info.dependencies = self.waits_for
        self.launching = max(0, self.launching - 1)
        return pb.JobsReply(jobs=[info])

    def updatejob(self, request: Any) -> pb.ChangeReply:
        if request.job.job_id == 43:
            problem = pb.Problem(what="43", code="conflict", text="job 43 runs")
            return pb.ChangeReply(problems=[problem])
        if not request.dry_run:
            self.waits_for = "afterany:17(unfulfilled)"
        return pb.ChangeReply(count=1)

    def extendjob(self, request: Any) -> Any:
        if request.by_s > 8_000:
            return Answered(Status.FAILED_PRECONDITION, "too long:\nask an operator", b"")
        return pb.ExtendJobReply(
            job_id=request.job.job_id,
            before_s=600,
            after_s=660,
            until_before_us=1_600_000_000,
            until_after_us=1_660_000_000,
            text="granted",
        )

    def resizejob(self, request: Any) -> Any:
        if request.by_nodes > 8:
            return Answered(Status.FAILED_PRECONDITION, "job 17 cannot get 9 more", b"")
        grows = request.by_nodes > 0 or request.nodes
        reply = pb.ResizeJobReply(
            job_id=request.job.job_id,
            before=pb.Amounts(nodes=4, node_names="cn[0-3]", cpus=16),
            after=pb.Amounts(nodes=4 if grows else 2, node_names="cn[0-1]", cpus=8),
        )
        if grows:
            reply.growth_id, reply.more, reply.state, reply.planned_start_us = 57, 2, "PENDING", 2_000_000
            reply.reason = "waits"
        else:
            reply.leaving = "cn[2-3]"
            reply.steps.extend([1, 2])
        return reply

    def movepack(self, request: Any) -> pb.MovePackReply:
        starts = [
            pb.MovedStart(job_id=at, before_us=us, after_us=us - 60_000_000)
            for at, us in ((18, 2_000_000_000), (19, 3_000_000_000))
        ]
        return pb.MovePackReply(pack_id=17, open=True, starts=starts, earlier_us=60_000_000)

    def finishpart(self, request: Any) -> Any:
        if request.job.part == 3:
            return Answered(Status.FAILED_PRECONDITION, "part 3 was given back already", b"")
        return pb.FinishPartReply(
            job_id=request.job.job_id,
            part=request.job.part,
            before=pb.Amounts(nodes=4, node_names="cn[0-3]", cpus=9),
            after=pb.Amounts(nodes=1, node_names="cn0", cpus=2),
            leaving="cn[1-3]",
            steps=[3, 4] if request.kill else [],
        )


def attempt(job_id: int, uid: int = ME, stage: Stage = Stage.RUNNING) -> Any:
    launch = SimpleNamespace(spec=SimpleNamespace(user=SimpleNamespace(uid=uid)))
    return SimpleNamespace(job_id=job_id, stage=stage, launch=launch)


def serving(
    directory: Path,
    scenario: Callable[[Controller, Path], Coroutine[Any, Any, None]],
    *attempts: Any,
    **bounds: Any,
) -> None:
    async def main() -> None:
        controller = Controller()
        node = SimpleNamespace(attempts=dict(enumerate(attempts)))
        settings = JobSocketSettings(**{"requests_per_s": 1e6, "burst": 1_000} | bounds)
        one = JobSocket(directory / "job.sock", controller, lambda: [node], ApiCounters(), settings)  # type: ignore[list-item]
        await one.start()
        try:
            await scenario(controller, one.path)
        finally:
            await one.stop()

    run(main())


async def ask(path: Path, *lines: str | bytes) -> list[str]:
    """The lines that come back for these, up to the last `ok` or `error`."""
    reader, writer = await asyncio.open_unix_connection(str(path))
    found: list[str] = []
    try:
        for line in lines:
            writer.write(line if isinstance(line, bytes) else line.encode() + b"\n")
            while answered := (await reader.readline()).decode():
                found.append(answered.removesuffix("\n"))
                if found[-1] == "ok" or found[-1].startswith("error "):
                    break
    finally:
        writer.close()
        await writer.wait_closed()
    return found


def test_a_job_is_named_or_is_the_only_one(state_dir: Path) -> None:
    async def scenario(controller: Controller, path: Path) -> None:
        assert await ask(path, "hello") == ["protocol=1", "jobs=17", "ok"]
        assert (await ask(path, "show"))[:3] == ["job=17", "name=a=b%25", "state=RUNNING"]
        assert await ask(path, "show job=18") == ["error NOT_FOUND job 18 of this user does not run here"]
        (_, request, caller) = controller.calls[0]
        assert request.jobs[0].job_id == 17
        assert (caller.principal.uid, caller.principal.gid) == (ME, os.getegid())

    serving(
        state_dir, scenario, attempt(17), attempt(18, ME + 1), attempt(19, stage=Stage.ENDING), attempt(17)
    )


def test_several_jobs_have_to_be_told_apart(state_dir: Path) -> None:
    async def scenario(controller: Controller, path: Path) -> None:
        text = "error INVALID several jobs of this user run here: say which, job=17"
        assert await ask(path, "extend by=5") == [text]
        assert (await ask(path, "extend by=60 job=18"))[-1] == "ok"
        assert controller.calls[-1][1].job.job_id == 18

    serving(state_dir, scenario, attempt(17), attempt(18))


def test_a_user_without_a_job_here_can_do_nothing(state_dir: Path) -> None:
    """Goal: a foreign uid on the host names a job that is not its own, and reaches no controller."""

    async def scenario(controller: Controller, path: Path) -> None:
        for line in ("show job=17", "finish-part job=17 part=1 kill", "extend job=17 by=9", "show"):
            (text,) = await ask(path, line)
            assert text.startswith("error NOT_FOUND")
        assert (await ask(path, "set-dependency job=99 on="))[0].startswith("error NOT_FOUND")
        assert not controller.calls

    serving(state_dir, scenario, attempt(17, ME + 1))


def test_finish_part_says_before_and_after(state_dir: Path) -> None:
    async def scenario(controller: Controller, path: Path) -> None:
        found = await ask(path, "finish-part part=1 kill dry-run", "finish-part part=3")
        assert found[:5] == [
            "job=17",
            "part=1",
            "before-nodes=4",
            "before-node-names=cn[0-3]",
            "before-cpus=9",
        ]
        assert found[-5:] == [
            "leaving=cn[1-3]",
            "busy=",
            "steps=3,4",
            "ok",
            "error CONFLICT part 3 was given back already",
        ]
        _, (name, request, caller), *_ = controller.calls
        assert (name, request.kill, request.dry_run) == ("FinishPart", True, True)
        assert len(caller.request_id) == 16 and caller.deadline_us

    serving(state_dir, scenario, attempt(17))


def test_a_job_grows_and_shrinks(state_dir: Path) -> None:
    async def scenario(controller: Controller, path: Path) -> None:
        grown = await ask(path, "grow by=2")
        assert grown[-9:] == [
            *("leaving=", "steps=", "growth=57", "more=2", "withdrawn=0", "growth-state=PENDING"),
            *("planned-start-us=2000000", "text=waits", "ok"),
        ]
        shrunk = await ask(path, "shrink nodes=cn[2-3] dry-run")
        assert "leaving=cn[2-3]" in shrunk and "steps=1,2" in shrunk and "after-nodes=2" in shrunk
        await ask(path, "shrink by=1", "shrink to=1", "grow to=5", "grow nodes=cn[0-4]")
        assert await ask(path, "grow by=9") == ["error CONFLICT job 17 cannot get 9 more"]
        for line in (
            "grow",
            "grow by=1 to=2",
            "shrink by=0",
            "shrink by=-1",
            "grow nodes=cn[",
            "grow without=x",
        ):
            assert (await ask(path, line))[0].startswith("error INVALID"), line
        ref = pb.JobRef(job_id=17)
        assert [request for name, request, _ in controller.calls if name == "ResizeJob"][:6] == [
            pb.ResizeJobRequest(job=ref, by_nodes=2),
            pb.ResizeJobRequest(job=ref, without=["cn2", "cn3"], dry_run=True),
            pb.ResizeJobRequest(job=ref, by_nodes=-1),
            pb.ResizeJobRequest(job=ref, to_nodes=1),
            pb.ResizeJobRequest(job=ref, to_nodes=5),
            pb.ResizeJobRequest(job=ref, nodes=[f"cn{number}" for number in range(5)]),
        ]

    serving(state_dir, scenario, attempt(17))


def test_extend_tells_both_limits(state_dir: Path) -> None:
    async def scenario(controller: Controller, path: Path) -> None:
        rest = ["until-before-us=1600000000", "until-after-us=1660000000", "decided=yes", "text=granted"]
        answers = ["job=17", "before-s=600", "after-s=660", *rest, "ok"]
        assert await ask(path, "extend by=60 dry-run") == answers
        assert await ask(path, "extend to=660") == answers
        assert await ask(path, "extend by=9000") == ["error CONFLICT too long:%0Aask an operator"]
        for line in ("extend", "extend by=1 to=2", "extend by=0", "extend by=1e3"):
            assert (await ask(path, line))[0].startswith("error INVALID")
        first, second, _ = [request for name, request, _ in controller.calls if name == "ExtendJob"]
        assert first == pb.ExtendJobRequest(job=pb.JobRef(job_id=17), by_s=60, dry_run=True)
        assert second == pb.ExtendJobRequest(job=pb.JobRef(job_id=17), to_s=660)

    serving(state_dir, scenario, attempt(17))


def test_the_starts_of_a_pack_are_moved(state_dir: Path) -> None:
    async def scenario(controller: Controller, path: Path) -> None:
        assert await ask(path, "move-starts earlier=60") == [
            "pack=17",
            "earlier-us=60000000",
            "jobs=18,19",
            "job-18-before-us=2000000000",
            "job-18-after-us=1940000000",
            "job-19-before-us=3000000000",
            "job-19-after-us=2940000000",
            "decided=no",
            "text=",
            "ok",
        ]
        for line in ("move-starts asap dry-run", "move-starts to=1790000000"):
            assert (await ask(path, line))[-1] == "ok"
        for line in ("move-starts", "move-starts asap earlier=1", "move-starts to=-1", "move-starts later=5"):
            assert (await ask(path, line))[0].startswith("error INVALID")
        asked = [request for name, request, _ in controller.calls if name == "MovePack"]
        assert [(one.earlier_s, one.to_us, one.dry_run) for one in asked] == [
            (60, 0, False),
            (0, 0, True),
            (0, 1_790_000_000_000_000, False),
        ]

    serving(state_dir, scenario, attempt(17))


def test_another_job_of_the_user_waits_for_something_else(state_dir: Path) -> None:
    async def scenario(controller: Controller, path: Path) -> None:
        before = "before=afterok:16(unfulfilled)"
        line = "set-dependency job=42 on=afterany:17"
        assert await ask(path, f"{line} dry-run") == ["job=42", before, "after=afterany:17", "ok"]
        assert await ask(path, line) == ["job=42", before, "after=afterany:17(unfulfilled)", "ok"]
        request = controller.calls[-2][1]
        assert (request.job.job_id, request.dependencies.all[0].job_id) == (42, 17)
        assert (await ask(path, "set-dependency job=42 on=after%3Anow"))[0].startswith("error INVALID")
        assert await ask(path, "set-dependency job=43 on=") == ["error CONFLICT job 43 runs"]

    serving(state_dir, scenario, attempt(17))


def test_a_call_that_no_leader_takes_is_repeated_under_its_id(state_dir: Path) -> None:
    async def scenario(controller: Controller, path: Path) -> None:
        controller.absences["FinishPart"] = 2
        assert (await ask(path, "finish-part part=1"))[-1] == "ok"
        callers = [caller for name, _, caller in controller.calls if name == "FinishPart"]
        assert len({caller.request_id for caller in callers}) == 1
        assert [caller.retry for caller in callers] == [False, True, True]

    serving(state_dir, scenario, attempt(17))


def test_a_script_may_be_quicker_than_the_news_of_its_start(state_dir: Path) -> None:
    """Goal: its first line is answered as any other, and not by the state of a moment before."""

    async def scenario(controller: Controller, path: Path) -> None:
        controller.launching = 2
        assert (await ask(path, "finish-part part=1"))[-1] == "ok"
        assert [name for name, *_ in controller.calls] == ["Jobs"] * 3 + ["FinishPart"]

    serving(state_dir, scenario, attempt(17))


@pytest.mark.parametrize(
    "line",
    [
        "",
        " show",
        "show  job=17",
        "SHOW",
        "show job",
        "show job=17 job=17",
        "show job=-1",
        "show job=99999999999",
        "show job=%",
        "show job=%0a",
        "show job=%ff",
        "job=17 show",
        "show kill",
        "shut-down",
        "finish-part",
        "finish-part part=one",
        "show " + "a " * 16,
    ],
)
def test_bad_lines_end_nothing(state_dir: Path, line: str) -> None:
    async def scenario(controller: Controller, path: Path) -> None:
        first, *others = await ask(path, line, "hello")
        assert first.startswith("error INVALID ") and others == ["protocol=1", "jobs=17", "ok"]
        assert not controller.calls

    serving(state_dir, scenario, attempt(17))


def test_a_long_line_ends_its_connection_alone(state_dir: Path) -> None:
    async def scenario(_: Controller, path: Path) -> None:
        found = await ask(path, b"x" * (LINE_BYTES_MAX + 10))
        assert found == [f"error INVALID the line is longer than {LINE_BYTES_MAX} bytes"]
        assert (await ask(path, "hello"))[-1] == "ok"

    serving(state_dir, scenario, attempt(17))


def test_connections_of_one_user_are_bounded(state_dir: Path) -> None:
    async def scenario(_: Controller, path: Path) -> None:
        kept = [await asyncio.open_unix_connection(str(path)) for _ in range(3)]
        for reader, writer in kept:
            writer.write(b"hello\n")
            assert await reader.readline() == b"protocol=1\n"
        assert await ask(path, "hello") == ["error EXHAUSTED too many connections of this user: close one"]
        kept[0][1].close()
        await kept[0][1].wait_closed()
        while (await ask(path, "hello"))[-1] != "ok":
            pass
        for _, writer in kept[1:]:
            writer.close()
            await writer.wait_closed()

    serving(state_dir, scenario, attempt(17), connections_per_uid_max=3)


def test_a_flood_waits_and_a_silent_connection_ends(state_dir: Path) -> None:
    async def scenario(_: Controller, path: Path) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        assert (await ask(path, *["hello"] * 8)).count("ok") == 8
        assert loop.time() - began_s >= 0.2, "two at once, then fifty a second"
        reader, writer = await asyncio.open_unix_connection(str(path))
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()

    serving(state_dir, scenario, attempt(17), requests_per_s=25, burst=2, idle_s=0.2)


def test_an_exception_ends_one_connection(state_dir: Path) -> None:
    async def scenario(controller: Controller, path: Path) -> None:
        controller.jobs = None  # type: ignore[assignment,method-assign]
        assert await ask(path, "show") == []
        assert (await ask(path, "hello"))[-1] == "ok"

    serving(state_dir, scenario, attempt(17))


def test_the_library_speaks_it(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: `eslurm.job` inside a job, from its variables alone."""
    monkeypatch.setenv("ESLURM_JOB_SOCKET", str(state_dir / "job.sock"))
    monkeypatch.setenv("ESLURM_JOB_ID", "17")

    async def scenario(controller: Controller, _: Path) -> None:
        made = await asyncio.to_thread(job.finish_part, 1, kill=True)
        before, after = job.Amounts(4, "cn[0-3]", 9, 0), job.Amounts(1, "cn0", 2, 0)
        assert made == job.PartFinished(17, 1, before, after, "cn[1-3]", "", (3, 4))
        more = job.Extended(17, 600, 660, 1_600.0, 1_660.0, True, "granted")
        assert await asyncio.to_thread(lambda: job.extend(by=60)) == more
        had = job.Amounts(4, "cn[0-3]", 16, 0)
        left = job.Amounts(2, "cn[0-1]", 8, 0)
        grown = await asyncio.to_thread(lambda: job.grow(by=2))
        assert (grown.growth, grown.more, grown.state, grown.planned_start) == (57, 2, "PENDING", 2.0)
        shrunk = await asyncio.to_thread(lambda: job.shrink(nodes="cn[2-3]"))
        assert shrunk == job.Resized(17, had, left, "cn[2-3]", (1, 2), 0, 0, "", 0.0, 0, "")
        with pytest.raises(ValueError, match="one of by, to and nodes"):
            job.grow(by=1, to=2)
        moved = await asyncio.to_thread(lambda: job.move_starts(asap=True, dry_run=True))
        starts = (job.MovedStart(18, 2_000.0, 1_940.0), job.MovedStart(19, 3_000.0, 2_940.0))
        assert moved == job.StartsMoved(17, 60.0, starts, False, "")
        assert await asyncio.to_thread(lambda: job.move_starts(to=1_790_000_000.5)) == moved
        found = await asyncio.to_thread(job.set_dependency, 42, "afterany:17")
        assert found == job.DependencySet(42, "afterok:16(unfulfilled)", "afterany:17(unfulfilled)")
        assert (await asyncio.to_thread(job.show))["name"] == "a=b%"
        with pytest.raises(job.JobError, match="given back already") as refused:
            await asyncio.to_thread(job.finish_part, 3)
        assert refused.value.code == "CONFLICT"
        assert [request.job.job_id for name, request, _ in controller.calls if name == "FinishPart"] == [
            17,
            17,
        ]

    serving(state_dir, scenario, attempt(17), attempt(18))
    monkeypatch.delenv("ESLURM_JOB_SOCKET")
    with pytest.raises(job.JobError, match="ESLURM_JOB_SOCKET is not set"):
        job.show()
    monkeypatch.delenv("ESLURM_JOB_ID")
    with pytest.raises(job.JobError, match="in no job"):
        job.show()
    with pytest.raises(ValueError, match="one of"):
        job.extend()
    with pytest.raises(ValueError, match="one of"):
        job.move_starts(asap=True, earlier_by=5)


@given(st.binary(max_size=200))
def test_no_bytes_are_more_than_a_refusal(line: bytes) -> None:
    try:
        found = read_line(line)
    except LineError as error:
        assert refusal(error.code, str(error)).count(b"\n") == 1
        return
    assert all(value.isprintable() for value in found.values.values())


@given(st.text(max_size=80))
def test_a_value_is_one_line_and_comes_back(text: str) -> None:
    raw = answer([("name", text)])
    assert raw.endswith(b"\nok\n") and raw.count(b"\n") == 2 and len(raw.decode().splitlines()) == 2
    sent = f"show name={job._encoded(text)}".encode("ascii", "strict") if _is_utf8(text) else b""
    if sent and text.isprintable() and len(sent) < LINE_BYTES_MAX:
        assert read_line(sent).values == {"name": text}
    if _is_utf8(text):
        assert job._decoded(raw.decode().splitlines()[0].removeprefix("name=")) == text


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
