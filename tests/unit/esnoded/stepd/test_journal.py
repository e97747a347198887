"""The journal keeps what was committed, whatever a crash or a disk does to the file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eslurm.ports.step_runner import StepEndCause, StepOutcome
from esnoded.stepd.journal import (
    Acknowledged,
    Begun,
    Finished,
    Intent,
    Journal,
    Unfinished,
    live_records,
    read_contents,
)
from tests.kits.stepd import key


def ended(job_id: int) -> StepOutcome:
    return StepOutcome(key(job_id), job_id, 0, StepEndCause.EXITED)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "journal")


def filled(path: str) -> bytes:
    journal = Journal(path, "boot-1")
    journal.add(Intent(key(1), 10))
    journal.add(Begun(key(1), ((100, 7),)))
    journal.add(Intent(key(2), 20))
    journal.add(Begun(key(2), ((200, 8), (201, 9))))
    journal.add(Finished(ended(1)))
    journal.add(Intent(key(3), 30))
    journal.add(Finished(ended(3)))
    journal.add(Acknowledged((key(3),)))
    journal.commit()
    journal.close()
    return Path(path).read_bytes()


def test_replay_tells_live_steps_from_outcomes(path: str) -> None:
    contents = read_contents(filled(path))
    assert contents.outcomes == {key(1): ended(1)}
    assert contents.unfinished == {key(2): Unfinished(key(2), "boot-1", 20, ((200, 8), (201, 9)))}


def test_a_tail_torn_at_any_byte_costs_only_the_records_it_tears(path: str) -> None:
    data = filled(path)
    whole = {read_contents(data[:cut]).good_bytes for cut in range(len(data) + 1)}
    for cut in range(len(data) + 1):
        Path(path).write_bytes(data[:cut])
        journal = Journal(path, "boot-2")
        expected = read_contents(data[: max(good for good in whole if good <= cut)])
        assert journal.contents.outcomes == expected.outcomes
        journal.add(Finished(ended(9)))
        journal.commit()
        journal.close()
        # What is appended behind the cut is found again.
        assert key(9) in read_contents(Path(path).read_bytes()).outcomes


def test_a_flipped_bit_costs_one_record(path: str) -> None:
    data = bytearray(filled(path))
    intact = read_contents(bytes(data))
    lengths = []
    offset = 0
    while offset < len(data):
        lengths.append(offset)
        offset += 8 + int.from_bytes(data[offset : offset + 4], "big")
    for start in lengths[:-1]:
        damaged = bytearray(data)
        damaged[start + 8] ^= 0x40
        contents = read_contents(bytes(damaged))
        assert contents.skipped == 1
        assert contents.good_bytes == intact.good_bytes


def test_a_step_begun_without_an_intent_is_still_owed_an_ending(path: str) -> None:
    journal = Journal(path, "boot-1")
    journal.add(Begun(key(1), ((100, 7),)))
    journal.close()
    assert read_contents(Path(path).read_bytes()).unfinished[key(1)].tasks == ((100, 7),)


def test_compaction_keeps_what_lives_and_bounds_the_file(path: str) -> None:
    journal = Journal(path, "boot-1", compact_bytes_min=2000)
    largest = 0
    for number in range(1, 500):
        journal.add(Intent(key(number), number))
        journal.add(Finished(ended(number)))
        journal.add(Acknowledged((key(number),)))
        journal.commit()
        if journal.wants_compaction:
            journal.compact(live_records([ended(9999)], [(key(5), 5), (key(6), 6)]))
        largest = max(largest, os.path.getsize(path))
    journal.add(Finished(ended(10_000)))
    journal.close()
    assert largest < 3000
    contents = read_contents(Path(path).read_bytes())
    assert {key(9999), key(10_000)} <= contents.outcomes.keys()
    assert contents.unfinished == {
        key(5): Unfinished(key(5), "boot-1", 5),
        key(6): Unfinished(key(6), "boot-1", 6),
    }


def test_a_write_that_fails_half_way_hides_nothing(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(path, "boot-1")
    journal.add(Finished(ended(1)))
    journal.commit()
    real_write = os.write
    calls = iter([5])

    def full_disk(fd: int, data: bytes) -> int:
        for count in calls:
            return real_write(fd, bytes(data)[:count])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full_disk)
        journal.add(Finished(ended(2)))
        with pytest.raises(OSError, match="No space"):
            journal.commit()
    journal.commit()
    journal.close()
    assert read_contents(Path(path).read_bytes()).outcomes == {key(1): ended(1), key(2): ended(2)}


def test_dropped_records_are_not_written(path: str) -> None:
    journal = Journal(path, "boot-1")
    journal.flush()
    journal.add(Finished(ended(1)))
    journal.drop_queued()
    journal.close()
    assert read_contents(Path(path).read_bytes()).outcomes == {}
