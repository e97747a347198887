"""The doctor of a live controller: rows changed behind its back, a wrong head, an old build; and that it disturbs nobody."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from esctld.lead import doctor as doctor_module
from esctld.lead.clock import Clock
from esctld.lead.dispatcher import Dispatcher
from esctld.lead.doctor import Doctor, DoctorInputs
from esctld.lead.site import Member, SiteSigner
from eslurm import __version__
from eslurm.core.control.reactor import Batch, Reactor
from eslurm.core.model.accounts import Account, Qos, kind_of
from eslurm.core.model.config import ClusterConfig, NodeConfig, Partition
from eslurm.core.model.job import JobSpec, Principal
from eslurm.core.model.messages import (
    ChangePolicies,
    ConfigLoaded,
    EpochStarted,
    HoldJobs,
    JobRef,
    PolicyChange,
    Reports,
    SubmitJobs,
)
from eslurm.core.model.protocol import HeldAttempt, Registration, Report
from eslurm.core.model.request import Request
from eslurm.core.state import rows
from eslurm.core.state.cluster import State
from eslurm.ports.api import Caller
from eslurm.ports.link import PeerInfo
from eslurm.ports.store import Batch as StoredBatch
from eslurm.ports.store import Claim, Leader, StoreUnavailable
from eslurm.security.enrolment import new_membership
from eslurm.security.files import write_public
from eslurm.security.site_keys import new_site, write_site_keys
from eslurm.store.sql import SqlStore
from eslurm.telemetry.clocks import wall_us
from eslurm.telemetry.metrics import ControllerMetrics
from eslurm.v1 import controller_pb2 as pb
from tests.support.loops import run

ROOT = Principal("root", 0, 0)
CALLER = Caller(ROOT, b"", False, None, "socket")
NODES = 8
NAMES = tuple(f"cn{number}" for number in range(NODES))
CONFIG = ClusterConfig(
    "test",
    tuple(NodeConfig(name, (4, 1000)) for name in NAMES),
    (Partition("main", NAMES, default=True),),
    pending_jobs_max=10**6,
)


class Peered:
    """A link, as far as the doctor looks at it."""

    def __init__(self, role: str, process: str, build: str, skew_us: int | None = None) -> None:
        self.peer = PeerInfo("test", role, process, "h:1", frozenset(), 1, 0, "", build, skew_us)


class Bench:
    """A leading dispatcher on a real SQLite file, eight registered nodes, and its doctor."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "db"
        self.store = SqlStore(f"sqlite:///{self.path}", "test")
        self.state = State("main")
        self.dispatcher = Dispatcher(
            Reactor(self.state),
            self.store,
            ControllerMetrics(),
            inbox_max=1000,
            on_committed=self._on_committed,
            clock=Clock(),
        )
        write_site_keys(directory, new_site("test", wall_us()))
        self.member = Member(directory, directory, "main", SiteSigner(directory), is_first=True)
        self.links: list[Any] = []
        self.problems: dict[int, Sequence[str]] = {}
        self.doctor = Doctor(self.state, self.dispatcher.view, self.store, self._around(1))
        self._seq = 0

    def _around(self, epoch: int) -> DoctorInputs:
        return DoctorInputs(
            name="c1",
            epoch=epoch,
            owner="main",
            disks=(self.path.parent,),
            keys=self.member.files.look,
            satellites=lambda: (),
            links=lambda: self.links,
            problems=lambda: self.problems,
        )

    def _on_committed(self, messages: Sequence[Any], batch: Batch) -> None:
        self.doctor.watch.on_committed(messages, batch.facts, batch.revision_first, batch.now_us)

    async def __aenter__(self) -> Bench:
        epoch = await self.store.open("main", Claim("c1", "h:1", Leader()))
        self.task = asyncio.create_task(self.dispatcher.run())
        await self.dispatcher.request(ConfigLoaded(CONFIG))
        await self.dispatcher.request(EpochStarted(epoch))
        for number in range(NODES):
            await self.register(number, "s1")
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.doctor.close()
        self.dispatcher.stop()
        await self.task
        await self.store.close()

    async def register(self, number: int, session: str, *held: HeldAttempt) -> None:
        self._seq += 1
        body = Registration(f"cn{number}", f"uid-{number}", "b1", session, 1, "h:1", (4, 1000), held)
        await self.dispatcher.decided(Reports((Report("agent", self._seq, body),)))

    async def submit(self, count: int = 1) -> None:
        spec = JobSpec("job", ROOT, "", (Request(),), b"s" * 32, b"e" * 32, "/tmp")
        await self.dispatcher.request(SubmitJobs((spec,) * count))

    async def set_policies(self) -> None:
        policies = (Qos("high", 10), Account("physics"))
        changes = tuple(PolicyChange("add", kind_of(one), one.name, one) for one in policies)
        await self.dispatcher.request(ChangePolicies(ROOT, changes))

    async def examine(self) -> list[pb.Finding]:
        return list((await self.doctor.call(pb.DoctorRequest(), CALLER)).findings)

    def by_hand(self, statement: str, *values: object) -> None:
        """Somebody changes the database."""
        with sqlite3.connect(self.path) as connection:
            changed = connection.execute(statement, values).rowcount
        connection.close()
        assert changed > 0, "nothing was changed"


def told(findings: Sequence[pb.Finding]) -> list[tuple[str, str, str, str]]:
    return [(one.check, one.severity, one.what, one.text) for one in findings]


def test_a_cluster_in_order_is_healthy(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Bench(tmp_path) as bench:
            await bench.submit(20)
            await bench.set_policies()
            reply = await bench.doctor.call(pb.DoctorRequest(), CALLER)
            assert told(reply.findings) == []
            assert reply.revision == bench.state.revision
            assert len(set(reply.checks)) == len(reply.checks) >= 15

    run(scenario())


def test_an_empty_cluster_is_healthy(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Bench(tmp_path) as bench:
            assert told(await bench.examine()) == []

    run(scenario())


def change_a_node(bench: Bench) -> None:
    blob = rows.encode(msgspec.structs.replace(bench.state.nodes[3], incarnation=99))
    bench.by_hand("UPDATE nodes SET blob = ? WHERE number = 3", blob)


def change_a_qos(bench: Bench) -> None:
    bench.by_hand("UPDATE records SET blob = ? WHERE kind = 'qos'", rows.encode(Qos("high", 99)))


def change_a_job(bench: Bench) -> None:
    blob = rows.encode(msgspec.structs.replace(bench.state.jobs[5], priority=-1, attempts=3))
    bench.by_hand("UPDATE jobs SET blob = ? WHERE job_id = 5", blob)


@pytest.mark.parametrize(
    ("corrupt", "what", "text"),
    [
        (change_a_job, "job 5", "its row differs from memory in priority, attempts"),
        (change_a_node, "node #3", "its row differs from memory in incarnation"),
        (
            lambda bench: bench.by_hand("DELETE FROM jobs WHERE job_id = 5"),
            "job 5",
            "is in memory, the store has no row of it",
        ),
        (
            lambda bench: bench.by_hand("UPDATE jobs SET finished = 1 WHERE job_id = 5"),
            "job 5",
            "is in memory, the store has no row of it",
        ),
        (
            lambda bench: bench.by_hand("UPDATE jobs SET state = 'RUNNING' WHERE job_id = 5"),
            "job 5",
            "its row says RUNNING, memory PENDING",
        ),
        (
            lambda bench: bench.by_hand("UPDATE jobs SET user = 'mallory' WHERE job_id = 5"),
            "job 5",
            "its row says mallory main job",
        ),
        (
            lambda bench: bench.by_hand("UPDATE jobs SET blob = x'00ff' WHERE job_id = 5"),
            "job 5",
            "its row cannot be decoded",
        ),
        (
            lambda bench: bench.by_hand("UPDATE jobs SET job_id = 4711 WHERE job_id = 5"),
            "job 4711",
            "its row says PENDING, memory nothing",
        ),
        (
            lambda bench: bench.by_hand("UPDATE nodes SET state = 'LOST' WHERE number = 3"),
            "node #3",
            "its row says cn3 LOST, memory UP",
        ),
        (
            lambda bench: bench.by_hand("UPDATE settings SET blob = x'90' WHERE name = 'state'"),
            "settings",
            "the row of the cluster's scalars differs",
        ),
        (change_a_qos, "qos high", "its row differs from memory in priority"),
        (
            lambda bench: bench.by_hand("DELETE FROM records WHERE name = 'physics'"),
            "account physics",
            "is in memory, the store has no row of it",
        ),
        (
            lambda bench: bench.by_hand("UPDATE records SET name = 'chem' WHERE name = 'physics'"),
            "account chem",
            "has a row, memory does not know it",
        ),
    ],
)
def test_a_row_changed_by_hand_is_found(
    tmp_path: Path, corrupt: Callable[[Bench], None], what: str, text: str
) -> None:
    async def scenario() -> None:
        async with Bench(tmp_path) as bench:
            await bench.submit(10)
            await bench.set_policies()
            corrupt(bench)
            findings = await bench.examine()
            assert any(
                (one.check, one.severity, one.what) == ("store", "error", what) and text in one.text
                for one in findings
            ), told(findings)
            assert all(one.advice for one in findings)

    run(scenario())


@pytest.mark.parametrize(
    ("statement", "check", "text"),
    [
        ("UPDATE leader SET revision = revision - 2", "log", "its head is at revision 18, the state at 20"),
        ("UPDATE leader SET revision = revision + 2", "log", "its last fact is 20, its head says 22"),
        ("DELETE FROM facts WHERE revision = 20", "log", "its last fact is 19, its head says 20"),
        ("DELETE FROM facts WHERE revision = 12", "log", "revision 12 is missing"),
        ("UPDATE facts SET blob = x'93' WHERE revision = 12", "log", "revision 12 cannot be decoded"),
        ("DELETE FROM facts WHERE revision < 5", "log", "its beginning is gone, and no base state"),
        (
            "UPDATE leader SET epoch = 9, holder = 'c2'",
            "controllers",
            "is led by c2 under epoch 9, this is c1",
        ),
    ],
)
def test_a_log_changed_by_hand_is_found(tmp_path: Path, statement: str, check: str, text: str) -> None:
    async def scenario() -> None:
        async with Bench(tmp_path) as bench:
            await bench.submit(8)
            await bench.dispatcher.request(HoldJobs(ROOT, (JobRef(1),)))
            assert bench.state.revision == 20
            bench.by_hand(statement)
            findings = await bench.examine()
            assert any(one.check == check and text in one.text for one in findings), told(findings)
            bench.by_hand("UPDATE leader SET epoch = 1, holder = 'c1', revision = 20")

    run(scenario())


def test_what_moves_is_no_drift(tmp_path: Path) -> None:
    """Commits go on all the while: every record is replaced again and again."""

    async def scenario() -> None:
        async with Bench(tmp_path) as bench:
            await bench.submit(300)
            going = True

            async def churn() -> int:
                count = 0
                while going:
                    refs = tuple(JobRef(job) for job in range(1 + count % 2, 301, 2))
                    await bench.dispatcher.request(HoldJobs(ROOT, refs, count % 4 >= 2))
                    await bench.submit(5)
                    count += 1
                return count

            task = asyncio.create_task(churn())
            for _ in range(5):
                assert told(await bench.examine()) == []
            going = False
            assert await task > 5

    run(scenario())


def test_a_slow_commit_is_no_drift(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state is ahead of the store until the store has the batch."""

    async def scenario() -> None:
        async with Bench(tmp_path) as bench:
            commit, begun, may_go_on = bench.store.commit, asyncio.Event(), asyncio.Event()

            async def slow(batch: StoredBatch) -> None:
                begun.set()
                await may_go_on.wait()
                await commit(batch)

            monkeypatch.setattr(bench.store, "commit", slow)
            submitted = asyncio.create_task(bench.submit())
            await begun.wait()
            try:
                assert bench.state.jobs and not bench.dispatcher.view.jobs
                assert told(await bench.examine()) == []
            finally:
                may_go_on.set()
                await submitted
            assert told(await bench.examine()) == []

    run(scenario())


def test_drift_is_found_beside_movement(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Bench(tmp_path) as bench:
            await bench.submit(50)
            change_a_job(bench)
            going = True

            async def churn() -> None:
                while going:
                    await bench.submit(1)

            task = asyncio.create_task(churn())
            findings = await bench.examine()
            going = False
            await task
            assert [(one.check, one.what) for one in findings] == [("store", "job 5")]

    run(scenario())


def test_what_was_planted_in_memory_is_found(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Bench(tmp_path) as bench:
            bench.state.ledger.hold(3, (2, 0), 10**18)
            assert [one.what for one in await bench.examine()] == ["node cn3"]

    run(scenario())


def test_an_orphan_is_found(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Bench(tmp_path) as bench:
            await bench.register(2, "s2", HeldAttempt(77, 1, "running"))
            [finding] = await bench.examine()
            assert (finding.check, finding.severity, finding.what) == ("orphans", "warning", "node cn2")

    run(scenario())


def test_peers_and_their_health_are_looked_at(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Bench(tmp_path) as bench:
            bench.links = [
                Peered("satellite", "sat1.abc", "0.0.1"),
                Peered("controller", "c2.def", __version__, -40_000_000),
            ]
            bench.problems = {4: ("disk",)}
            assert told(await bench.examine()) == [
                ("health", "warning", "node cn4", "reports a problem with its disk"),
                ("clocks", "error", "controller c2", "its clock is 40.0 s behind the controller's"),
                ("versions", "warning", "satellite sat1", f"build 0.0.1, the controller has {__version__}"),
            ]

    run(scenario())


def test_the_files_of_keys_are_looked_at(tmp_path: Path) -> None:
    def told(findings: Sequence[pb.Finding]) -> list[tuple[str, str, str]]:
        assert {one.check for one in findings} == {"key"}
        return [(Path(one.what).name, one.severity, one.text) for one in findings]

    async def scenario() -> None:
        async with Bench(tmp_path) as bench:
            assert await bench.examine() == []
            (tmp_path / "site.key").chmod(0o644)
            (tmp_path / "site.pub").chmod(0o666)
            (tmp_path / "identity.key").write_bytes(b"short")
            (tmp_path / "membership").unlink()
            findings = told(await bench.examine())
            assert [one[:2] for one in findings] == [
                ("site.key", "error"),
                ("site.pub", "error"),
                ("identity.key", "error"),
                ("membership", "error"),
            ]
            assert [one[2].split(":")[0] for one in findings] == [
                "is open to others (mode 0644)",
                "is open to others (mode 0666)",
                "is of no use",
                "is of no use",
            ]
            assert "holds 5 bytes" in findings[2][2]
            for path in tmp_path.glob("*.key"):
                path.unlink()
            assert [one[0] for one in told(await bench.examine())][:2] == ["site.key", "site.pub"]

    run(scenario())


def test_how_long_keys_and_membership_are_good_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Bench(tmp_path) as bench:
            now_us, day_us = wall_us(), 86_400_000_000
            old = new_site("test", now_us - 1_100 * day_us)
            write_site_keys(tmp_path, old)
            public = bench.member.credentials.identity.public
            for until_us, severity, text in (
                (now_us + 30 * day_us, "", ""),
                (now_us + day_us, "warning", "is valid for 23 hours"),
                (now_us - 1, "error", "has ended"),
            ):
                sealed = new_membership(old, public, "controller", "main", now_us, until_us)
                write_public(tmp_path / "membership", sealed)
                [aged, *ending] = await bench.examine()
                assert (aged.severity, aged.text) == ("warning", "signs since 1100 days")
                assert [(one.severity, one.text) for one in ending] == ([(severity, text)] if text else [])
            write_public(
                tmp_path / "membership", new_membership(new_site("test", 1), public, "controller", "main", 1)
            )
            assert "is not of this cluster" in (await bench.examine())[1].text

    run(scenario())


def test_a_disk_that_does_not_answer_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hangs(_path: object) -> None:
        raise TimeoutError

    async def scenario() -> None:
        async with Bench(tmp_path) as bench:
            monkeypatch.setattr("esctld.lead.doctor.os.statvfs", hangs)
            [finding] = await bench.examine()
            assert (finding.check, finding.severity, finding.text) == ("disk", "error", "does not answer")

    run(scenario())


def test_a_store_that_is_away_is_an_error_and_the_rest_is_examined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with Bench(tmp_path) as bench:
            bench.state.ledger.hold(3, (2, 0), 10**18)

            async def away(owner: str) -> Leader:
                raise StoreUnavailable("the server is gone")

            monkeypatch.setattr(bench.store, "leader", away)
            findings = await bench.examine()
            assert ("log", "error", "store", "this check could not be made: the server is gone") in told(
                findings
            )
            assert any(one.what == "node cn3" for one in findings)

    run(scenario())


def test_a_check_that_breaks_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("planted")

    async def scenario() -> None:
        async with Bench(tmp_path) as bench:
            monkeypatch.setattr(doctor_module.places, "check_nodes", broken)
            [finding] = await bench.examine()
            assert finding.text == "this check broke off: ZeroDivisionError: planted"

    run(scenario())


def test_findings_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_module, "FINDINGS_PER_CHECK_MAX", 3)

    async def scenario() -> None:
        async with Bench(tmp_path) as bench:
            for number in range(NODES):
                bench.state.ledger.hold(number, (2, 0), 10**18)
            findings = await bench.examine()
            assert len(findings) == 4 and findings[-1].text == "5 more findings of this kind"

    run(scenario())


def test_who_asks_meanwhile_gets_the_same_answer_and_who_leaves_ends_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Bench(tmp_path) as bench:
            await bench.submit(50)
            first = asyncio.create_task(bench.doctor.call(pb.DoctorRequest(), CALLER))
            second = asyncio.create_task(bench.doctor.call(pb.DoctorRequest(), CALLER))
            await asyncio.sleep(0)
            first.cancel()
            third = await bench.doctor.call(pb.DoctorRequest(), CALLER)
            assert third is await second
            with pytest.raises(asyncio.CancelledError):
                await first

    run(scenario())
