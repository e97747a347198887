"""The spool on disk: what was appended is read again, whatever became of the last write."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from eslurm.core.agent.records import (
    Booted,
    Buried,
    EpochSeen,
    FloorRaised,
    Folded,
    Identity,
    NumberGiven,
    Prepared,
    Record,
    Signalled,
    StartIntended,
    fold,
    unfold,
)
from esnoded import spool as spool_module
from esnoded.spool import MAGIC, Spool, SpoolError
from tests.unit.agent.world import launch

RECORDS: list[Record] = [
    Booted("test", "boot-1"),
    Identity("cn0", "uid"),
    NumberGiven("cn0", 0),
    EpochSeen("main", 3),
    Prepared(0, "main", 5, launch()),
    StartIntended(0, 7, 1),
    Prepared(0, "main", 6, launch(job_id=8)),
    Buried(0, 9, 1, "main", 7, True),
    Buried(0, 6, 1, "main", 2),
    Signalled(0, "main", 8, 0),
    FloorRaised("main", 4),
]


@pytest.fixture
def path(state_dir: Path) -> Iterator[Path]:
    yield state_dir / "agent.spool"


def read(path: Path) -> Folded:
    spool = Spool(path)
    spool.close()
    return spool.state


def test_records_fold_to_what_a_restart_needs() -> None:
    state = fold(RECORDS)
    assert state.numbers == {"cn0": 0} and state.epochs == {"main": 3} and state.floors == {"main": 4}
    assert [(key, record.start) for key, record in state.prepared.items()] == [
        ((0, 7, 1), True),
        ((0, 8, 1), False),
    ]
    assert set(state.buried) == {(0, 9, 1)}, "the other tombstone is below the floor"
    assert fold(unfold(state)) == state


def test_a_tombstone_beats_a_preparation_in_whatever_order() -> None:
    prepared, buried = Prepared(0, "main", 5, launch()), Buried(0, 7, 1, "main", 6)
    assert not fold([prepared, buried]).prepared
    assert not fold([buried, prepared]).prepared


def test_a_reboot_buries_what_had_started_and_forgets_what_was_prepared() -> None:
    state = fold([*RECORDS, Booted("test", "boot-2")])
    assert not state.prepared
    assert state.buried[0, 7, 1].started and (0, 8, 1) not in state.buried


def test_what_was_appended_is_read_again(path: Path) -> None:
    assert read(path) == Folded()
    spool = Spool(path)
    spool.append(RECORDS[:4], durable=True)
    spool.append(RECORDS[4:])
    spool.close()
    assert read(path) == fold(RECORDS)


def test_every_torn_tail_leaves_the_records_before_it(path: Path) -> None:
    spool = Spool(path)
    ends = [path.stat().st_size]
    for record in RECORDS:
        spool.append([record])
        ends.append(path.stat().st_size)
    spool.close()
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        count = sum(end <= size for end in ends) - 1
        assert read(path) == fold(RECORDS[: max(0, count)]), f"cut at {size}"
        spool = Spool(path)
        spool.append([Identity("after", "x")])
        spool.close()
        assert read(path).identities["after"] == "x", f"cut at {size}"


def test_a_damaged_byte_cuts_off_what_follows(path: Path) -> None:
    spool = Spool(path)
    spool.append(RECORDS[:2])
    good = path.stat().st_size
    spool.append(RECORDS[2:])
    spool.close()
    data = bytearray(path.read_bytes())
    data[good + 9] ^= 0xFF
    path.write_bytes(data)
    assert read(path) == fold(RECORDS[:2])
    assert path.stat().st_size == good


def test_a_compacted_spool_says_the_same_and_goes_on(path: Path) -> None:
    spool = Spool(path)
    for _ in range(50):
        spool.append(RECORDS)
    before = path.stat().st_size
    spool.compact(fold(RECORDS))
    assert path.stat().st_size < before / 10
    spool.append([Identity("after", "x")])
    with pytest.raises(SpoolError):
        Spool(path)
    spool.close()
    expected = fold([*RECORDS, Identity("after", "x")])
    assert read(path) == expected


def test_it_asks_for_compaction_only_when_it_has_grown(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "COMPACT_BYTES_MIN", 5_000)
    spool = Spool(path)
    assert not spool.wants_compaction
    while not spool.wants_compaction:
        spool.append(RECORDS)
    spool.compact(fold(RECORDS))
    assert not spool.wants_compaction
    spool.close()


def test_a_write_that_fails_half_way_leaves_nothing_behind(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(path)
    spool.append(RECORDS[:2])
    real = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: real(fd, data[: len(data) // 2]))
        with pytest.raises(OSError, match="bytes were written"):
            spool.append(RECORDS[2:])
    spool.append([Identity("after", "x")])
    spool.close()
    assert read(path) == fold([*RECORDS[:2], Identity("after", "x")])


def test_a_second_process_and_foreign_files_are_turned_away(path: Path) -> None:
    spool = Spool(path)
    with pytest.raises(SpoolError, match="another agent"):
        Spool(path)
    spool.close()
    path.write_bytes(b"something else altogether")
    with pytest.raises(SpoolError, match="not a spool"):
        Spool(path)
    path.write_bytes(MAGIC + spool_module._frame(Booted("test", "b"))[:8] + b"")
    assert read(path) == Folded()
