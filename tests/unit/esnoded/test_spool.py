"""The spool on disk: what was appended is read again, whatever became of the last write."""

from __future__ import annotations

import errno
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
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
from esnoded.record_log import RecordLog
from esnoded.spool import MAGIC, Spool, SpoolError
from tests.kits.agent import launch

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
        room = [200]

        def write(fd: int, data: memoryview) -> int:
            if not room[0]:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            count = real(fd, data[: room[0]])
            room[0] -= count
            return count

        patch.setattr(os, "write", write)
        with pytest.raises(OSError, match="No space left"):
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


def test_zeros_at_the_end_are_torn_off(path: Path) -> None:
    """Some file systems leave them where the host lost its power between growing a file and filling it."""
    spool = Spool(path)
    spool.append(RECORDS)
    spool.close()
    good = path.stat().st_size
    for zeros in (1, 8, 4_096):
        with path.open("ab") as file:
            file.write(bytes(zeros))
        assert read(path) == fold(RECORDS)
        assert path.stat().st_size == good


def test_what_is_torn_off_is_reported(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    read(path)
    with path.open("ab") as file:
        file.write(b"\0\0\0\x09torn")
    read(path)
    assert "the last 8 bytes are torn and were cut off" in caplog.text


def test_nothing_is_appended_behind_a_torn_write(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would never be read again."""
    spool = Spool(path)
    spool.append(RECORDS[:2])
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", raises(errno.EIO))
        patch.setattr(os, "ftruncate", raises(errno.EIO))
        with pytest.raises(OSError, match="Input/output error"):
            spool.append(RECORDS[2:4], durable=True)
        with pytest.raises(OSError, match="cut back"):
            spool.append(RECORDS[2:4])
        with pytest.raises(OSError, match="cut back"):
            spool.probe()
    spool.append([Identity("after", "x")])
    spool.close()
    assert read(path) == fold([*RECORDS[:2], Identity("after", "x")])


def test_looking_for_room_leaves_nothing_behind(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(path)
    spool.append(RECORDS)
    size = path.stat().st_size
    spool.probe()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", raises(errno.ENOSPC))
        with pytest.raises(OSError, match="No space left"):
            spool.probe()
    assert path.stat().st_size == size
    spool.close()
    assert read(path) == fold(RECORDS)


def test_a_compaction_without_room_leaves_the_old_file_alone(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "COMPACT_BYTES_MIN", 5_000)
    spool = Spool(path)
    while not spool.wants_compaction:
        spool.append(RECORDS)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", raises(errno.ENOSPC))
        with pytest.raises(OSError, match="No space left"):
            spool.compact(fold(RECORDS))
    assert not spool.wants_compaction, "not again with every record"
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    spool.append([Identity("after", "x")])
    spool.close()
    assert read(path) == fold([*RECORDS, Identity("after", "x")])


def test_a_compaction_whose_directory_cannot_be_synced_goes_on_in_the_new_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(path)
    spool.append(RECORDS)
    with monkeypatch.context() as patch:
        patch.setattr(RecordLog, "sync_name", raises(errno.EIO))
        with pytest.raises(OSError, match="Input/output error"):
            spool.compact(fold(RECORDS))
    spool.append([Identity("after", "x")])
    spool.close()
    assert read(path) == fold([*RECORDS, Identity("after", "x")])


def test_a_spool_from_before_sessions_were_counted_is_read_and_counted_from_then_on(path: Path) -> None:
    old = msgspec.msgpack.encode([1, "test", "boot-1"])
    path.write_bytes(MAGIC + struct.pack(">II", len(old), zlib.crc32(old)) + old)
    assert read(path) == Folded("test", "boot-1")
    spool = Spool(path)
    spool.append([Booted("test", "boot-1", 1), Booted("test", "boot-1", 2)])
    spool.compact(fold([Booted("test", "boot-1", 2)]))
    spool.close()
    assert read(path).starts == 2


def raises(number: int) -> Callable[..., None]:
    def fail(*_arguments: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail
