"""The log's beginning goes only behind a base state, and every export is whole: base + facts give the state."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from escli.admin import log_export
from escli.failures import CommandFailed
from escli.option_table import rows_of
from escli.options import Parser
from esctld.lead import housekeeping
from esctld.lead.clock import Clock
from esctld.lead.dispatcher import Dispatcher
from esctld.lead.log_export import DAY_US, LogKeeper, LogPages, pack_rows, stored_bases
from eslurm.core.control.commit_pipeline import NotNow
from eslurm.core.control.log_keeping import BASES
from eslurm.core.control.reactor import Reactor
from eslurm.core.model.config import ClusterConfig, NodeConfig, Partition
from eslurm.core.model.job import JobSpec, Principal
from eslurm.core.model.messages import ConfigLoaded, EpochStarted, SubmitJobs
from eslurm.core.model.request import Request
from eslurm.core.state.cluster import State
from eslurm.lab.sim.memory_store import MemoryStore
from eslurm.lab.sim.store_image import StoreImage
from eslurm.ports.api import ApiError, Caller, Status
from eslurm.ports.store import LogPruned, Prune, SettingRow, StoreUnavailable
from eslurm.replay.base import unpack_base
from eslurm.replay.logfile import LogFile
from eslurm.replay.player import Player
from eslurm.store.rows import load
from eslurm.store.sql import SqlStore
from eslurm.telemetry.metrics import ControllerMetrics
from eslurm.v1 import controller_pb2 as pb
from tests.kits.mirror import unfinished
from tests.support.loops import run

ALICE = Principal("alice", 1000, 1000)
CALLER = Caller(Principal("root", 0, 0), b"", False, None, "socket")
CONFIG = ClusterConfig(
    "test",
    (NodeConfig("cn1", (4, 1000)),),
    (Partition("main", ("cn1",), default=True),),
    pending_jobs_max=10**6,
)
T = Callable[["Bench"], Coroutine[Any, Any, None]]


class Bench:
    """A dispatcher on a store; `store` stays after it."""

    def __init__(self, store: Any, kept_days: float = 8.0) -> None:
        self.store = store
        self.state = State("main")
        self.dispatcher = Dispatcher(
            Reactor(self.state),
            store,
            ControllerMetrics(),
            inbox_max=1000,
            on_committed=lambda messages, batch: None,
            clock=Clock(),
        )
        self.keeper = LogKeeper(store, "main", self.dispatcher, kept_days)
        self.log_pages = LogPages(store, "main", "test")

    async def __aenter__(self) -> Bench:
        epoch = await self.store.open("main")
        self.task = asyncio.create_task(self.dispatcher.run())
        await self.dispatcher.request(ConfigLoaded(CONFIG))
        await self.dispatcher.request(EpochStarted(epoch))
        return self

    async def __aexit__(self, *error: object) -> None:
        self.dispatcher.stop()
        await self.task

    async def submit(self, count: int = 1) -> None:
        spec = JobSpec("job", ALICE, "", (Request(),), b"s" * 32, b"e" * 32, "/tmp")
        await self.dispatcher.request(SubmitJobs((spec,) * count))

    async def prune(self, days: float) -> housekeeping.Pruned:
        """Housekeeping, so many days from now."""
        now_us = self.state.now_us + int(days * DAY_US)
        return await housekeeping.prune_once(self.store, self.keeper, now_us)

    async def first_kept(self) -> int:
        """The first revision of the stored log."""
        for revision in range(1, self.state.revision + 2):
            try:
                async for _ in self.store.load_facts("main", revision, 1):
                    break
                return revision
            except LogPruned:
                continue
        raise AssertionError("no log")


def memory() -> MemoryStore:
    return MemoryStore(StoreImage("test"), "test")


def both(scenario: Callable[[Any], Coroutine[Any, Any, None]], tmp_path: Path) -> None:
    """The scenario on the store in memory and on the real one."""
    run(scenario(memory()))

    async def real() -> None:
        store = SqlStore(f"sqlite:///{tmp_path / 'db'}", "test")
        try:
            await scenario(store)
        finally:
            await store.close()

    run(real())


# ---- retention ----


def test_nothing_is_removed_before_its_time_and_nothing_without_a_base(tmp_path: Path) -> None:
    async def scenario(store: Any) -> None:
        async with Bench(store) as bench:
            await bench.submit(5)
            assert (await bench.prune(0)).facts == 0
            [base] = await stored_bases(store, "main")
            assert base.revision == bench.state.revision
            await bench.submit(5)
            assert (await bench.prune(1.9)).facts == 0
            assert await bench.first_kept() == 1
            pruned = await bench.prune(8.1)
            assert pruned.facts == base.revision
            assert await bench.first_kept() == base.revision + 1
            state = unpack_base("main", await store.get_blob("main", base.hash))
            assert state.revision == base.revision and len(state.jobs) == 5

    both(scenario, tmp_path)


def test_the_log_does_not_grow_without_bound_and_neither_do_its_bases() -> None:
    async def scenario() -> None:
        async with Bench(memory(), kept_days=8.0) as bench:
            for day in range(60):
                await bench.submit(3)
                moved = bench.state.now_us
                await housekeeping.prune_once(bench.store, bench.keeper, moved + day * DAY_US)
            bases = await stored_bases(bench.store, "main")
            assert len(bases) <= 6
            assert bases[0].revision + 1 >= await bench.first_kept() > 1

    run(scenario())


def test_for_ever_means_for_ever() -> None:
    async def scenario() -> None:
        async with Bench(memory(), kept_days=0) as bench:
            await bench.submit(5)
            for day in (0, 100, 10_000):
                assert (await bench.prune(day)).facts == 0
            assert await stored_bases(bench.store, "main") == []

    run(scenario())


def test_many_facts_go_in_one_turn_of_housekeeping() -> None:
    async def scenario() -> None:
        async with Bench(memory()) as bench:
            for _ in range(25):
                await bench.submit(100)
            await bench.prune(0)
            assert (await bench.prune(9)).facts == 25 * 100 + 3

    run(scenario())


def test_a_controller_started_anew_knows_its_bases_and_its_state(tmp_path: Path) -> None:
    async def scenario() -> None:
        url = f"sqlite:///{tmp_path / 'db'}"
        first = SqlStore(url, "test")
        async with Bench(first) as bench:
            await bench.submit(5)
            await bench.prune(0)
            await bench.submit(5)
            expected = unfinished(bench.state)
        await first.close()
        second = SqlStore(url, "test")
        assert unfinished(await load(second, "main")) == expected, "the list of bases is no part of the state"
        assert len(await stored_bases(second, "main")) == 1
        await second.close()

    run(scenario())


def test_while_the_store_is_away_nothing_is_removed() -> None:
    class Away(MemoryStore):
        away = False

        async def prune(self, limits: Prune) -> housekeeping.Pruned:
            if self.away:
                raise StoreUnavailable("away")
            return await super().prune(limits)

    async def scenario() -> None:
        store = Away(StoreImage("test"), "test")
        async with Bench(store) as bench:
            await bench.submit(5)
            await bench.prune(0)
            store.away = True
            with pytest.raises(StoreUnavailable):
                await bench.prune(9)
            assert await bench.first_kept() == 1
            store.away = False
            assert (await bench.prune(9)).facts

    run(scenario())


def test_rows_are_kept_under_the_fence_and_not_after_the_end() -> None:
    async def scenario() -> None:
        store = memory()
        async with Bench(store) as bench:
            revision = bench.state.revision
            row = SettingRow(BASES, b"\x90")
            await asyncio.gather(bench.submit(3), bench.dispatcher.keep([row]), bench.submit(3))
            assert await stored_bases(store, "main") == []
            assert bench.state.revision == revision + 7, "rows of their own take no revision"
        with pytest.raises(NotNow):
            await bench.dispatcher.keep([row])

    run(scenario())


def test_an_unreadable_list_of_bases_is_begun_anew() -> None:
    async def scenario() -> None:
        store = memory()
        async with Bench(store) as bench:
            await bench.dispatcher.keep([SettingRow(BASES, b"nonsense")])
            await bench.submit(3)
            assert (await bench.prune(0)).facts == 0
            assert len(await stored_bases(store, "main")) == 1

    run(scenario())


def test_a_base_of_rows_is_the_state(tmp_path: Path) -> None:
    async def scenario(store: Any) -> None:
        async with Bench(store) as bench:
            await bench.submit(40)
            head, data = await pack_rows(store, "main")
            assert head.revision == bench.state.revision
            assert unfinished(unpack_base("main", data)) == unfinished(bench.state)

    both(scenario, tmp_path)


# ---- pages ----


async def pages(log_pages: LogPages, **request: int) -> list[pb.ExportLogReply]:
    found = [await log_pages.export(pb.ExportLogRequest(**request), CALLER)]
    while found[-1].next_revision:
        following = pb.ExportLogRequest(from_revision=found[-1].next_revision, limit=request.get("limit", 0))
        found.append(await log_pages.export(following, CALLER))
    return found


def test_pages_join_without_a_gap(tmp_path: Path) -> None:
    async def scenario(store: Any) -> None:
        async with Bench(store) as bench:
            await bench.submit(50)
            for limit in (0, 1, 7, 1_000_000):
                found = await pages(bench.log_pages, limit=limit)
                facts = [fact for page in found for fact in page.facts]
                assert [fact.revision for fact in facts] == list(range(1, bench.state.revision + 1))
                assert found[0].head_revision == bench.state.revision
                assert (found[0].cluster, found[0].owner, found[0].base) == ("test", "main", b"")

    both(scenario, tmp_path)


def test_a_page_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with Bench(memory()) as bench:
            await bench.submit(50)
            monkeypatch.setattr("esctld.lead.log_export.PAGE_BYTES_MAX", 2_000)
            found = await pages(bench.log_pages)
            assert len(found) > 3
            assert all(page.ByteSize() < 2_500 for page in found)

    run(scenario())


def test_what_was_removed_is_in_the_base_and_a_page_from_before_is_refused() -> None:
    async def scenario() -> None:
        async with Bench(memory()) as bench:
            await bench.submit(5)
            await bench.prune(0)
            at = bench.state.revision
            await bench.submit(5)
            await bench.prune(9)
            first = (await pages(bench.log_pages))[0]
            assert first.facts[0].revision == at + 1
            assert unpack_base("main", first.base).revision == at
            with pytest.raises(ApiError) as refused:
                await bench.log_pages.export(pb.ExportLogRequest(from_revision=2), CALLER)
            assert refused.value.status is Status.NOT_FOUND

    run(scenario())


def test_since_begins_at_the_latest_base_before_it() -> None:
    async def scenario() -> None:
        async with Bench(memory()) as bench:
            await bench.submit(5)
            await bench.prune(0)
            at = bench.state.revision
            after_us = bench.state.now_us + 1
            await bench.submit(5)
            assert (await pages(bench.log_pages, since_us=after_us))[0].facts[0].revision == at + 1
            assert (await pages(bench.log_pages, since_us=1))[0].facts[0].revision == 1
            assert (await pages(bench.log_pages))[0].facts[0].revision == 1

    run(scenario())


# ---- the command ----


class LogDoor:
    """A door whose controller is a logbook over a store in memory."""

    def __init__(self, log_pages: LogPages) -> None:
        self._log_pages = log_pages
        self.calls = 0

    def call(self, method: str, request: Any, timeout_s: float) -> Any:
        assert method == "ExportLog"
        self.calls += 1
        return asyncio.run(self._log_pages.export(request, CALLER))


def export(bench: Bench, *words: str) -> int:
    given = Parser(rows_of("esctl")).parse(["log", "export", *words])
    return log_export.control(LogDoor(bench.log_pages), given.rest[1:], given)  # type: ignore[arg-type]


def history(store: Any, *, pruned: bool = False) -> Bench:
    """A bench whose dispatcher has ended; its store stays."""
    bench = Bench(store)

    async def scenario() -> None:
        async with bench:
            await bench.submit(30)
            if pruned:
                await bench.prune(0)
                await bench.submit(30)
                await bench.prune(9)

    run(scenario())
    return bench


def played(path: Path) -> Player:
    player = Player(LogFile(path))
    player.play()
    return player


@pytest.mark.parametrize("pruned", [False, True])
def test_an_exported_log_gives_the_state(
    tmp_path: Path, pruned: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = history(memory(), pruned=pruned)
    path = tmp_path / "log.eslog"
    assert export(bench, "--output", str(path)) == 0
    assert unfinished(played(path).state) == unfinished(bench.state)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert f"up to revision {bench.state.revision} (" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [path], "nothing else is left"


def test_since_folds_what_was_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench = history(memory())
    path = tmp_path / "log.eslog"
    assert export(bench, "--output", str(path), "--since", "now+1hour", "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["facts"] == 0 and summary["last_revision"] == bench.state.revision
    assert unfinished(played(path).state) == unfinished(bench.state)


def test_without_names(tmp_path: Path) -> None:
    bench = history(memory(), pruned=True)
    path = tmp_path / "log.eslog"
    assert export(bench, "--output", str(path), "--anonymise") == 0
    player = played(path)
    assert LogFile(path).header.anonymised
    users = {job.spec.user.name for job in player.state.jobs.values()}
    assert len(users) == 1 and users.pop().startswith("user-")
    assert player.state.config.cluster == LogFile(path).header.cluster
    assert {job.state for job in player.state.jobs.values()} == {
        job.state for job in bench.state.jobs.values()
    }


def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = history(memory())
    path = tmp_path / "log.eslog"
    path.write_text("what was there before")

    def breaks(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", breaks)
    with pytest.raises(CommandFailed, match="cannot be written: No space left on device"):
        export(bench, "--output", str(path))
    assert path.read_text() == "what was there before"
    assert list(tmp_path.iterdir()) == [path]
