"""The contract of a store about writing: fence, sequence, retries, rows, answers, blobs, retention."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from eslurm.ports.store import (
    QUERY_VALUES_MAX,
    AnswerRow,
    Batch,
    BlobMissing,
    BlobRow,
    FactRow,
    FenceLost,
    ForeignStore,
    Head,
    JobRow,
    LoggedFact,
    LogPruned,
    NodeRow,
    Prune,
    Pruned,
    RecordRow,
    RowChange,
    RowDelete,
    SettingRow,
    StoreFailed,
    content_hash,
)
from eslurm.store.statements import ARRAY_ROWS_MAX, ARRAY_ROWS_MIN, ROWS_PER_STATEMENT
from tests.kits.store import BACKENDS, OWNER, Backend, batch, collect, job, snapshot


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    return BACKENDS[request.param](tmp_path)


def test_epochs_rise_at_every_open(backend: Backend) -> None:
    async def test() -> None:
        assert await backend.store().open(OWNER) == 1
        second = backend.store()
        assert await second.open(OWNER) == 2
        assert await second.open(OWNER) == 3
        assert await snapshot(second) == [Head(epoch=3)]

    backend.run(test())


def test_facts_get_contiguous_revisions_and_are_read_back(backend: Backend) -> None:
    async def test() -> None:
        store = backend.store()
        await store.open(OWNER)
        await store.commit(batch(1, facts=3))
        await store.commit(batch(4, facts=200, at_us=2_000))
        facts = await collect(store.load_facts(OWNER, 1))
        assert [fact.revision for fact in facts] == list(range(1, 204))
        assert facts[0] == LoggedFact(1, 1_000, "job_submitted", 1, b"fact1", 1)
        assert facts[3] == LoggedFact(4, 2_000, "job_submitted", 1, b"fact4", 1)
        assert await collect(store.load_facts(OWNER, 203)) == facts[202:]
        assert await collect(store.load_facts(OWNER, 204)) == []
        assert await snapshot(store) == [Head(1, 203, 2_000)]

    backend.run(test())


@pytest.mark.parametrize("revision", [0, 1, 2, 4, 9])
def test_a_batch_out_of_sequence_loses_the_fence_and_writes_nothing(backend: Backend, revision: int) -> None:
    async def test() -> None:
        store = backend.store()
        await store.open(OWNER)
        await store.commit(batch(1, facts=2))
        before = await collect(store.load_facts(OWNER, 1))
        wrong = Batch(revision, 1_000, [FactRow("other", 1, b"")] * 2, [job(7)])
        with pytest.raises(FenceLost):
            await store.commit(wrong)
        with pytest.raises(FenceLost):
            await store.committed(wrong)
        assert await collect(store.load_facts(OWNER, 1)) == before
        assert await snapshot(store) == [Head(1, 2, 1_000)]

    backend.run(test())


def test_a_successor_fences_the_writer_before_it(backend: Backend) -> None:
    async def test() -> None:
        old, new = backend.store(), backend.store()
        await old.open(OWNER)
        await old.commit(batch(1))
        await new.open(OWNER)
        for refused in (
            old.commit(batch(2)),
            old.commit(batch(1)),
            old.committed(batch(2)),
            old.prune(Prune(9)),
        ):
            with pytest.raises(FenceLost):
                await refused
        await new.commit(batch(2, rows=[job(1)]))
        assert await snapshot(old) == [Head(2, 2, 1_000), job(1)]
        assert [fact.epoch for fact in await collect(new.load_facts(OWNER, 1))] == [1, 2]

    backend.run(test())


def test_the_facts_of_an_earlier_epoch_are_not_a_retry(backend: Backend) -> None:
    async def test() -> None:
        old, new = backend.store(), backend.store()
        await old.open(OWNER)
        await old.commit(batch(1))
        await new.open(OWNER)
        with pytest.raises(FenceLost):
            await new.commit(batch(1))

    backend.run(test())


def test_a_retry_changes_nothing(backend: Backend) -> None:
    async def test() -> None:
        store = backend.store()
        await store.open(OWNER)
        first = batch(1, facts=2, rows=[job(1)], answers=[AnswerRow(b"a" * 16, b"one")])
        assert not await store.committed(first)
        await store.commit(first)
        await store.commit(first)
        assert await store.committed(first)
        await store.commit(batch(3, rows=[job(1, state="RUNNING")], at_us=3_000))
        await store.commit(first)
        assert await store.committed(first)
        assert await snapshot(store) == [Head(1, 3, 3_000), job(1, state="RUNNING")]

    backend.run(test())


def test_time_never_goes_back(backend: Backend) -> None:
    async def test() -> None:
        store = backend.store()
        await store.open(OWNER)
        await store.commit(batch(1, at_us=5_000))
        with pytest.raises(StoreFailed):
            await store.commit(batch(2, at_us=4_999))
        await store.commit(batch(2, at_us=5_000))

    backend.run(test())


def test_a_batch_without_facts_takes_no_revision(backend: Backend) -> None:
    async def test() -> None:
        store = backend.store()
        await store.open(OWNER)
        refusal = Batch(1, 1_000, answers=[AnswerRow(b"r" * 16, b"no")])
        await store.commit(refusal)
        await store.commit(refusal)
        assert not await store.committed(refusal)
        await store.commit(batch(1, at_us=2_000))
        assert await store.lookup_request(b"r" * 16) == b"no"
        with pytest.raises(FenceLost):
            await store.commit(refusal)

    backend.run(test())


def test_rows_are_upserted_and_deleted_by_key_and_the_last_change_wins(backend: Backend) -> None:
    async def test() -> None:
        store = backend.store()
        await store.open(OWNER)
        node = NodeRow(1, "cn1", "IDLE", b"n")
        await store.commit(batch(1, rows=[job(1), job(2), job(3), node, SettingRow("ids", b"1")]))
        changes: list[RowChange] = [
            job(1, state="RUNNING"),
            job(1, state="COMPLETING"),
            RowDelete("jobs", (2,)),
            job(4),
            RowDelete("jobs", (4,)),
            RowDelete("jobs", (3,)),
            job(3, state="RUNNING"),
            RowDelete("nodes", (99,)),
            SettingRow("ids", b"2"),
            RecordRow("qos", "high", 2, b"1"),
            RecordRow("qos", "high", 2, b"2"),
            RecordRow("user", "high", 2, b"u"),
            RowDelete("records", ("account", "gone")),
            RecordRow("usage", "a/b", 2, b"x"),
            RowDelete("records", ("usage", "a/b")),
        ]
        await store.commit(batch(2, rows=changes))
        assert await snapshot(store) == [
            Head(1, 2, 1_000),
            SettingRow("ids", b"2"),
            RecordRow("qos", "high", 2, b"2"),
            RecordRow("user", "high", 2, b"u"),
            node,
            job(1, state="COMPLETING"),
            job(3, state="RUNNING"),
        ]

    backend.run(test())


SIZES = {0, 1, ARRAY_ROWS_MIN, ARRAY_ROWS_MAX, 2 * ARRAY_ROWS_MAX, *ROWS_PER_STATEMENT}


@pytest.mark.parametrize("rows", sorted({size + more for size in SIZES for more in (-1, 0, 1)} - {-1}))
def test_any_number_of_rows_arrives(backend: Backend, rows: int) -> None:
    async def test() -> None:
        store = backend.store()
        await store.open(OWNER)
        answers = [AnswerRow(number.to_bytes(16), b"%d" % number) for number in range(rows)]
        blobs = [BlobRow(content_hash(answer.answer), answer.answer) for answer in answers]
        jobs = [job(number) for number in range(rows)]
        await store.commit(batch(1, rows, [job(n, state="X") for n in range(rows)]))
        await store.commit(batch(rows + 1, 0, jobs, answers=answers, blobs=blobs))
        assert await snapshot(store) == [Head(1, rows, 1_000), *jobs]
        facts = await collect(store.load_facts(OWNER, 1))
        assert [fact.blob for fact in facts] == [b"fact%d" % (number + 1) for number in range(rows)]
        for answer, blob in list(zip(answers, blobs, strict=True))[:: max(1, rows // 20)]:
            assert await store.lookup_request(answer.request_id) == answer.answer
            assert await store.get_blob(OWNER, blob.hash) == blob.data
        await store.commit(batch(rows + 1, 0, [RowDelete("jobs", (number,)) for number in range(rows)]))
        assert await snapshot(store) == [Head(1, rows, 1_000)]

    backend.run(test())


@pytest.mark.parametrize("copies", [1, 100])
def test_every_value_comes_back_as_it_was(backend: Backend, copies: int) -> None:
    texts = [
        "",
        "NULL",
        "a,b",
        "{}",
        '{"x"}',
        "'; --",
        "back\\slash",
        "%s %b",
        "n\u00e4chste \u65e5\u672c \U0001f680",
        "\t\n",
    ]
    numbers = [0, -1, 2**15, -(2**31), 2**31, 2**63 - 1, -(2**63)]

    async def test() -> None:
        store = backend.store()
        await store.open(OWNER)
        rows = [
            JobRow(id_, text, text, text, text, number, number, -number - 1, False, number, bytes(range(256)))
            for id_, (text, number) in enumerate(product(texts * copies, numbers))
        ]
        rows.append(JobRow(2**62, "", "", "", "", 0, 0, 0, False, 0, b""))
        await store.commit(batch(1, rows=rows))
        assert (await snapshot(store))[1:] == rows

    backend.run(test())


def test_keys_are_sorted_byte_by_byte(backend: Backend) -> None:
    async def test() -> None:
        store = backend.store()
        await store.open(OWNER)
        names = ["A", "Z", "a", "b", "z", "\u00e4"]
        await store.commit(batch(1, rows=[SettingRow(name, b"") for name in reversed(names)]))
        assert [row.name for row in await snapshot(store) if isinstance(row, SettingRow)] == names

    backend.run(test())


def test_an_unknown_table_fails_before_anything_is_written(backend: Backend) -> None:
    async def test() -> None:
        store = backend.store()
        await store.open(OWNER)
        with pytest.raises(StoreFailed, match="no table 'nonsense'"):
            await store.commit(batch(1, rows=[job(1), RowDelete("nonsense", (1,))]))
        assert await snapshot(store) == [Head(epoch=1)]

    backend.run(test())


def test_the_first_answer_stays(backend: Backend) -> None:
    async def test() -> None:
        store = backend.store()
        await store.open(OWNER)
        assert await store.lookup_request(b"q" * 16) is None
        await store.commit(batch(1, answers=[AnswerRow(b"q" * 16, b"first"), AnswerRow(b"p" * 16, b"")]))
        await store.commit(batch(2, answers=[AnswerRow(b"q" * 16, b"second")]))
        assert await store.lookup_request(b"q" * 16) == b"first"
        assert await store.lookup_request(b"p" * 16) == b""

    backend.run(test())


def test_blobs_are_put_once_and_read_by_hash(backend: Backend) -> None:
    async def test() -> None:
        store = backend.store()
        await store.open(OWNER)
        script, empty = b"#!/bin/sh\n" * 30_000, b""
        both = [BlobRow(content_hash(data), data) for data in (script, empty, script)]
        await store.commit(batch(1, blobs=both))
        await store.commit(batch(2, blobs=both))
        assert await store.get_blob(OWNER, content_hash(script)) == script
        assert await store.get_blob(OWNER, content_hash(empty)) == b""
        with pytest.raises(BlobMissing):
            await store.get_blob(OWNER, content_hash(b"other"))

    backend.run(test())


def test_of_many_blobs_come_those_that_are_there_and_small_enough(backend: Backend) -> None:
    async def test() -> None:
        store, other = backend.store(shared=True), backend.store(shared=True)
        await store.open(OWNER)
        await other.open("ctl1")
        texts = {content_hash(data): data for data in (b"", b"a" * 10, b"b" * 11)}
        await store.commit(batch(1, blobs=[BlobRow(hash_, data) for hash_, data in texts.items()]))
        foreign = BlobRow(content_hash(b"theirs"), b"theirs")
        await other.commit(batch(1, blobs=[foreign]))
        asked = [*texts, foreign.hash, content_hash(b"nobody's")]
        small = {hash_: data for hash_, data in texts.items() if len(data) <= 10}
        assert await store.get_blobs(OWNER, asked, 10) == small
        assert await store.get_blobs(OWNER, asked, 11) == texts
        assert await store.get_blobs("ctl1", asked, 11) == {foreign.hash: foreign.data}
        assert await store.get_blobs(OWNER, [], 11) == {}
        with pytest.raises(ValueError, match="hashes"):
            await store.get_blobs(OWNER, [b""] * (QUERY_VALUES_MAX + 1), 11)

    backend.run(test())


def test_old_answers_go_a_bounded_number_at_a_time(backend: Backend) -> None:
    async def test() -> None:
        store = backend.store()
        await store.open(OWNER)
        ids = [bytes([number]) * 16 for number in range(5)]
        for number, request_id in enumerate(ids):
            await store.commit(batch(number + 1, at_us=100 + number, answers=[AnswerRow(request_id, b"ok")]))
        limits = Prune(now_us=200, answers_before_us=103, rows_max=2)
        assert [(await store.prune(limits)).answers for _ in range(3)] == [2, 1, 0]
        assert [await store.lookup_request(request_id) for request_id in ids] == [None] * 3 + [b"ok"] * 2

    backend.run(test())


def test_old_blobs_go_unless_they_are_referred_to_or_put_again(backend: Backend) -> None:
    async def test() -> None:
        store = backend.store()
        await store.open(OWNER)
        blobs = [BlobRow(content_hash(data), data) for data in (b"used", b"unused", b"again", b"young")]
        used, unused, again, young = (blob.hash for blob in blobs)
        await store.commit(batch(1, at_us=100, blobs=blobs[:3]))
        await store.commit(batch(2, at_us=200, blobs=blobs[2:]))
        limits = Prune(now_us=300, blobs_before_us=150, blobs_kept={used}, rows_max=1)
        assert sum([(await store.prune(limits)).blobs for _ in range(3)]) == 1
        for hash_ in (used, again, young):
            await store.get_blob(OWNER, hash_)
        with pytest.raises(BlobMissing):
            await store.get_blob(OWNER, unused)
        later = Prune(now_us=400, blobs_before_us=300)
        assert await store.prune(later) == Pruned(blobs=2)
        assert await store.get_blob(OWNER, used) == b"used"

    backend.run(test())


def test_the_log_can_lose_its_beginning_and_says_so(backend: Backend) -> None:
    async def test() -> None:
        store = backend.store()
        await store.open(OWNER)
        await store.commit(batch(1, facts=10))
        assert await store.prune(Prune(0)) == Pruned()
        limits = Prune(0, facts_before_revision=6, rows_max=3)
        assert [(await store.prune(limits)).facts for _ in range(3)] == [3, 2, 0]
        with pytest.raises(LogPruned):
            await collect(store.load_facts(OWNER, 5))
        assert [fact.revision for fact in await collect(store.load_facts(OWNER, 6))] == [6, 7, 8, 9, 10]
        assert await store.prune(Prune(0, facts_before_revision=99)) == Pruned(facts=5)
        with pytest.raises(LogPruned):
            await collect(store.load_facts(OWNER, 10))
        await store.commit(batch(11))
        assert [fact.revision for fact in await collect(store.load_facts(OWNER, 11))] == [11]

    backend.run(test())


def test_owners_in_a_shared_database_do_not_meet(backend: Backend) -> None:
    async def test() -> None:
        one, two = backend.store(shared=True), backend.store(shared=True)
        await one.open(OWNER)
        await two.open("ctl1")
        blob = BlobRow(content_hash(b"x"), b"x")
        await one.commit(batch(1, at_us=1, rows=[job(1)], answers=[AnswerRow(b"1" * 16, b"")], blobs=[blob]))
        await two.commit(batch(1, at_us=1, rows=[job(2)], answers=[AnswerRow(b"2" * 16, b"")], blobs=[blob]))
        assert await two.prune(Prune(9, 9, 9, facts_before_revision=9)) == Pruned(1, 1, 1)
        assert await snapshot(one) == [Head(1, 1, 1), job(1)]
        assert await one.get_blob(OWNER, blob.hash) == b"x"
        assert await two.lookup_request(b"1" * 16) == b""
        assert len(await collect(one.load_facts(OWNER, 1))) == 1

    backend.run(test())


def test_another_owner_and_another_cluster_are_refused(backend: Backend) -> None:
    async def test() -> None:
        await backend.store().open(OWNER)
        with pytest.raises(ForeignStore, match="belongs to ctl0, not to ctl1"):
            await backend.store().open("ctl1")
        stranger = backend.store(cluster_id="c2")
        with pytest.raises(ForeignStore, match="belongs to cluster 'c1', not 'c2'"):
            await stranger.open(OWNER)
        with pytest.raises(ForeignStore, match="'c1'"):
            await stranger.lookup_request(b"x" * 16)
        assert await backend.store().open(OWNER) == 2

    backend.run(test())


def test_writing_needs_open_and_nothing_works_after_close(backend: Backend) -> None:
    async def test() -> None:
        store = backend.store()
        for refused in (store.commit(batch(1)), store.committed(batch(1)), store.prune(Prune(0))):
            with pytest.raises(StoreFailed, match="not opened"):
                await refused
        await store.open(OWNER)
        await store.close()
        await store.close()
        with pytest.raises(StoreFailed, match="closed"):
            await store.commit(batch(1))
        with pytest.raises(StoreFailed, match="closed"):
            await store.lookup_request(b"x" * 16)
        with pytest.raises(StoreFailed, match="closed"):
            await snapshot(store)

    backend.run(test())
