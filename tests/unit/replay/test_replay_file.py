"""The file of a log: whole or reported as damaged, with the offset and what could be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from eslurm.ports.store import LoggedFact
from eslurm.replay import logfile
from eslurm.replay.base import pack_base
from eslurm.replay.logfile import DamagedLog, End, LogFile
from tests.kits.core import World
from tests.kits.replay import write


@pytest.fixture
def small_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logfile, "FACTS_PER_FRAME", 3)
    monkeypatch.setattr(logfile, "BASE_PIECE_BYTES", 100)


def some_facts(count: int, first: int = 1) -> list[LoggedFact]:
    return [
        LoggedFact(revision, 1_000 + revision, "IdsLeased", 1, b"blob %d" % revision, 1)
        for revision in range(first, first + count)
    ]


@pytest.mark.parametrize("count", [0, 1, 3, 7])
@pytest.mark.usefixtures("small_frames")
def test_what_was_written_is_read(tmp_path: Path, count: int) -> None:
    facts = some_facts(count)
    log = write(tmp_path / "log", facts)
    assert list(log.facts()) == facts
    assert list(log.facts()) == facts, "a second time"
    assert log.find_end() == End(count, count, 1_000 + count if count else 0)
    assert log.header.cluster == "test" and log.base == b""


@pytest.mark.usefixtures("small_frames")
def test_a_base_state_comes_back_in_one_piece(tmp_path: Path) -> None:
    base = pack_base(World().state)
    log = write(tmp_path / "log", some_facts(4, first=50), base)
    assert len(base) > logfile.BASE_PIECE_BYTES
    assert log.base == base and log.header.base_bytes == len(base)
    assert [fact.revision for fact in log.facts()] == [50, 51, 52, 53]


def test_a_gap_is_not_written(tmp_path: Path) -> None:
    facts = some_facts(5)
    with pytest.raises(ValueError, match="revision 4 where 3 comes next"):
        write(tmp_path / "log", [*facts[:2], *facts[3:]])


@pytest.mark.usefixtures("small_frames")
def test_every_cut_is_reported_with_what_could_be_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    facts = some_facts(7)
    write(path, facts)
    whole = path.read_bytes()
    told = set()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        read: list[LoggedFact] = []
        with pytest.raises(DamagedLog, match=r"offset \d+") as damage:
            read.extend(LogFile(path).facts())
        text = str(damage.value)
        assert "\n" not in text and str(path) in text
        told.add(text.rpartition("; ")[2])
    assert "nothing could be read before it" in told
    assert {"facts 1 to 3 could be read before it", "facts 1 to 7 could be read before it"} <= told


@pytest.mark.usefixtures("small_frames")
def test_every_changed_byte_is_found(tmp_path: Path) -> None:
    path = tmp_path / "log"
    facts = some_facts(7)
    write(path, facts)
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        read: list[LoggedFact] = []
        with pytest.raises(DamagedLog):
            read.extend(LogFile(path).facts())
        assert read == facts[: len(read)], "what was read before the damage is right"


def test_damage_in_the_middle_names_its_offset(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write(path, some_facts(2_500))
    whole = bytearray(path.read_bytes())
    second_frame = whole.index(b"\x78", len(whole) // 2)
    whole[second_frame + 5] ^= 0xFF
    path.write_bytes(whole)
    with pytest.raises(
        DamagedLog, match=r"damaged at offset \d+: the checksum of a frame is wrong; facts 1 to \d+000"
    ):
        list(LogFile(path).facts())


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"eslurm-log-2\n", b"\0" * 100])
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "log"
    path.write_bytes(content)
    with pytest.raises(DamagedLog, match=r"offset 0: this is no exported log: `esctl log export"):
        LogFile(path)


def test_a_newer_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "log", some_facts(1))
    monkeypatch.setattr(logfile, "FORMAT_VERSION", 0)
    with pytest.raises(DamagedLog, match="format version 1, this release reads up to 0"):
        LogFile(tmp_path / "log")


def test_a_frame_that_unpacks_to_more_than_any_is_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "log", some_facts(900))
    monkeypatch.setattr(logfile, "FRAME_BYTES_MAX", 9_000)
    with pytest.raises(DamagedLog, match="larger than any"):
        list(LogFile(tmp_path / "log").facts())
