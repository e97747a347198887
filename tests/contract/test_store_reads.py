"""The contract of a store about reading: restart, streams, accounting."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from eslurm.ports.store import (
    PAGE_ROWS_MAX,
    QUERY_VALUES_MAX,
    AccountingQuery,
    AttemptRow,
    Head,
    JobRow,
    NodeRow,
    RecordRow,
    RowChange,
    SettingRow,
    SnapshotRow,
    StepRow,
)
from tests.kits.store import (
    BACKENDS,
    OWNER,
    Backend,
    attempt,
    batch,
    collect,
    job,
    snapshot,
    step,
)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    return BACKENDS[request.param](tmp_path)


def test_a_restart_loads_what_is_unfinished_in_order_and_in_chunks(backend: Backend) -> None:
    async def test() -> None:
        store = backend.store()
        await store.open(OWNER)
        rows: list[RowChange] = [job(number, finished=number % 2 == 0) for number in range(300, 0, -1)]
        rows += [
            attempt(1),
            attempt(2),
            attempt(1, 2),
            step(1, 2, "batch"),
            step(2, 1, "batch"),
            step(1, 2, "0"),
        ]
        rows += [
            NodeRow(2, "b", "IDLE", b""),
            NodeRow(1, "a", "DOWN", b""),
            SettingRow("x", b""),
            SettingRow("c", b""),
            RecordRow("user", "ada", 1, b"a"),
            RecordRow("qos", "low", 1, b"l"),
            RecordRow("qos", "high", 1, b"h"),
        ]
        await store.commit(batch(1, rows=rows))
        chunks = [chunk async for chunk in store.load_unfinished(OWNER, chunk_rows=40)]
        assert max(len(chunk) for chunk in chunks) == 40
        loaded = [row for chunk in chunks for row in chunk]
        assert loaded[:8] == [
            Head(1, 1, 1_000),
            SettingRow("c", b""),
            SettingRow("x", b""),
            RecordRow("qos", "high", 1, b"h"),
            RecordRow("qos", "low", 1, b"l"),
            RecordRow("user", "ada", 1, b"a"),
            NodeRow(1, "a", "DOWN", b""),
            NodeRow(2, "b", "IDLE", b""),
        ]
        assert loaded[8:158] == [job(number) for number in range(1, 300, 2)]
        assert loaded[158:] == [attempt(1), attempt(1, 2), step(1, 2, "0"), step(1, 2, "batch")]
        assert isinstance(loaded[8], JobRow) and loaded[8].finished is False

    backend.run(test())


def test_a_job_that_finishes_is_no_longer_loaded_but_still_found(backend: Backend) -> None:
    async def test() -> None:
        store = backend.store()
        await store.open(OWNER)
        await store.commit(batch(1, rows=[job(1), job(2)]))
        await store.commit(batch(2, rows=[job(1, finished=True)]))
        assert (await snapshot(store))[1:] == [job(2)]
        assert await store.find_jobs(OWNER, [2, 9, 1, 1]) == [job(1, finished=True), job(2)]
        assert await store.find_jobs(OWNER, []) == []
        with pytest.raises(ValueError, match="job ids"):
            await store.find_jobs(OWNER, range(QUERY_VALUES_MAX + 1))

    backend.run(test())


def test_a_stream_sees_one_state_while_commits_go_on(backend: Backend) -> None:
    async def test() -> None:
        store = backend.store()
        await store.open(OWNER)
        await store.commit(batch(1, facts=20, rows=[job(number) for number in range(1, 101)]))
        rows, facts = store.load_unfinished(OWNER, chunk_rows=10), store.load_facts(OWNER, 1, chunk_rows=5)
        seen: list[SnapshotRow] = list(await anext(rows))
        logged = list(await anext(facts))
        for revision in range(21, 31):
            await store.commit(batch(revision, rows=[job(revision, finished=True), job(1_000 + revision)]))
            seen += await anext(rows)
        seen += await collect(rows)
        logged += await collect(facts)
        assert seen == [Head(1, 20, 1_000), *(job(number) for number in range(1, 101))]
        assert [fact.revision for fact in logged] == list(range(1, 21))

    backend.run(test())


def test_a_stream_may_be_left_early(backend: Backend) -> None:
    async def test() -> None:
        store = backend.store()
        await store.open(OWNER)
        await store.commit(batch(1, rows=[job(number) for number in range(1, 101)]))
        for _ in range(20):
            stream = store.load_unfinished(OWNER, chunk_rows=10)
            await anext(stream)
            await anext(stream)
            await stream.aclose()
        assert len(await snapshot(store)) == 101

    backend.run(test())


ATTEMPTS = [
    attempt(1, user="ann", state="COMPLETED", submitted=10, started=20, ended=30),
    attempt(2, 1, user="bob", state="NODE_FAIL", submitted=15, started=20, ended=25),
    attempt(2, 2, user="bob", state="RUNNING", submitted=15, started=40),
    attempt(3, user="ann", state="PENDING", submitted=50),
    attempt(4, 0, user="ann", state="CANCELLED", submitted=60, ended=61),
]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (AccountingQuery(), [0, 1, 2, 3, 4]),
        (AccountingQuery(user="bob"), [1, 2]),
        (AccountingQuery(user="eve"), []),
        (AccountingQuery(job_ids=(1, 4, 99)), [0, 4]),
        (AccountingQuery(partition="batch"), [0, 1, 2, 3, 4]),
        (AccountingQuery(partition="other"), []),
        (AccountingQuery(name="n"), [0, 1, 2, 3, 4]),
        (AccountingQuery(name="m"), []),
        (AccountingQuery(states=("RUNNING", "PENDING")), [2, 3]),
        (AccountingQuery(since_us=30), [0, 2, 3, 4]),
        (AccountingQuery(since_us=31), [2, 3, 4]),
        (AccountingQuery(until_us=50), [0, 1, 2]),
        (AccountingQuery(until_us=51), [0, 1, 2, 3]),
        (AccountingQuery(since_us=26, until_us=51, user="ann", states=("COMPLETED",)), [0]),
        (AccountingQuery(after=(2, 1)), [2, 3, 4]),
        (AccountingQuery(after=(2, 9), user="ann"), [3, 4]),
        (AccountingQuery(latest_first=True), [4, 3, 2, 1, 0]),
        (AccountingQuery(latest_first=True, after=(2, 2)), [1, 0]),
        (AccountingQuery(latest_first=True, after=(4, 0), user="ann"), [3, 0]),
    ],
    ids=lambda value: str(value) if isinstance(value, list) else None,
)
def test_accounting_filters(backend: Backend, query: AccountingQuery, expected: list[int]) -> None:
    async def test() -> None:
        store = backend.store()
        await store.open(OWNER)
        await store.commit(batch(1, rows=ATTEMPTS[::-1]))
        page = await store.accounting(OWNER, query)
        assert list(page.attempts) == [ATTEMPTS[index] for index in expected]
        assert list(page.steps) == []
        assert page.next is None

    backend.run(test())


def test_accounting_of_an_array_is_that_of_its_tasks(backend: Backend) -> None:
    async def test() -> None:
        store = backend.store()
        await store.open(OWNER)
        tasks = [msgspec.structs.replace(job(number), array_job_id=2) for number in (3, 4)]
        await store.commit(batch(1, rows=[job(1), job(2), *tasks, job(5), *ATTEMPTS]))
        page = await store.accounting(OWNER, AccountingQuery(job_ids=(2,)))
        assert [row.key for row in page.attempts] == [(2, 1), (2, 2), (3, 1), (4, 0)]
        page = await store.accounting(OWNER, AccountingQuery(job_ids=(3, 5)))
        assert [row.key for row in page.attempts] == [(3, 1)]

    backend.run(test())


@pytest.mark.parametrize("latest_first", [False, True])
def test_accounting_pages_cover_everything_once_with_their_steps(
    backend: Backend, latest_first: bool
) -> None:
    async def test() -> None:
        store = backend.store()
        await store.open(OWNER)
        steps = [step(1, 1, "batch"), step(2, 1, "batch"), step(2, 2, "0"), step(2, 2, "batch")]
        await store.commit(batch(1, rows=[*ATTEMPTS, *steps]))
        seen: list[AttemptRow] = []
        seen_steps: list[StepRow] = []
        query = AccountingQuery(limit=2, steps=True, latest_first=latest_first)
        while True:
            page = await store.accounting(OWNER, query)
            seen += page.attempts
            seen_steps += page.steps
            if page.next is None:
                break
            assert len(page.attempts) == 2
            query = msgspec.structs.replace(query, after=page.next)
        assert seen == (ATTEMPTS[::-1] if latest_first else ATTEMPTS)
        assert sorted(seen_steps, key=lambda one: one.key) == steps

    backend.run(test())


def test_queries_are_bounded() -> None:
    for wrong in ({"limit": 0}, {"limit": PAGE_ROWS_MAX + 1}, {"job_ids": range(QUERY_VALUES_MAX + 1)}):
        with pytest.raises(ValueError, match=r"limit|job ids"):
            AccountingQuery(**wrong)


def test_a_new_view_sees_what_another_committed(backend: Backend) -> None:
    async def test() -> None:
        writer = backend.store()
        await writer.open(OWNER)
        reader = backend.store()
        await writer.commit(batch(1, rows=[job(1)]))
        assert await snapshot(reader) == [Head(1, 1, 1_000), job(1)]
        await writer.commit(batch(2, rows=[job(2)]))
        assert await snapshot(reader) == [Head(1, 2, 1_000), job(1), job(2)]
        assert await collect(reader.load_unfinished("nobody")) == [Head()]

    backend.run(test())
