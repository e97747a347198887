"""The audit log's files: bounded, the writer's own, never waited for, and honest about what is missing."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from eslurm.ports.audit import AuditLine
from eslurm.telemetry import audit
from eslurm.telemetry.audit import AuditLog, read_back, timestamp


def opened(path: Path, **changes: Any) -> AuditLog:
    return AuditLog(path, **{"size_bytes": 1 << 20, "keep": 2, "now_us": lambda: 0, **changes})


def line(number: int, **fields: Any) -> AuditLine:
    return AuditLine(timestamp(number * 1_000_000), count=number, **fields)


def written(path: Path) -> list[dict[str, Any]]:
    return [json.loads(one) for one in path.read_text().splitlines()]


def test_lines_are_json_of_what_is_not_empty_and_for_the_writer_s_eyes(tmp_path: Path) -> None:
    log = opened(tmp_path / "audit.log")
    log.write(AuditLine("t", user="ada\x1b[2J\r\n", uid=7, what="\x9b1m\u202e"))
    log.close()
    text = (tmp_path / "audit.log").read_text()
    assert text.isascii() and text.count("\n") == 1 and text[:-1].isprintable()
    assert json.loads(text) == {"time": "t", "user": "ada\x1b[2J\r\n", "uid": 7, "what": "\x9b1m\u202e"}
    assert stat.S_IMODE((tmp_path / "audit.log").stat().st_mode) == 0o600


def test_a_timestamp_is_utc_to_the_microsecond_and_sorts_as_text() -> None:
    assert timestamp(1_000_000) == "1970-01-01T00:00:01.000000Z" < timestamp(1_000_001)


def test_files_are_rotated_and_the_oldest_goes(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    for number in range(40):
        log = opened(path, size_bytes=1000)
        log.write(line(number, reason="x" * 100))
        log.close()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["audit.log", "audit.log.1", "audit.log.2"]
    assert all(one.stat().st_size <= 1000 for one in tmp_path.iterdir())
    kept = [
        one["count"]
        for name in ("audit.log.2", "audit.log.1", "audit.log")
        for one in written(tmp_path / name)
    ]
    assert kept == list(range(kept[0], 40)) and len(kept) > 10


def test_a_line_is_ascii_and_loses_nothing(tmp_path: Path) -> None:
    """Neither a control character nor one that turns the direction of text reaches a terminal."""
    log = opened(tmp_path / "audit.log", size_bytes=10_000)
    words = ["plain", "bell \a and escape \x1b[2J", "turned \u202e text", "ümlaut"]
    for word in words:
        log.write(AuditLine("2026-01-01T00:00:00.000000Z", what=word))
    log.close()
    raw = (tmp_path / "audit.log").read_bytes()
    assert raw.isascii() and not any(byte < 0x20 for byte in raw.replace(b"\n", b""))
    assert [one["what"] for one in written(tmp_path / "audit.log")] == words


def test_without_old_files_only_the_newest_stays(tmp_path: Path) -> None:
    log = opened(tmp_path / "audit.log", size_bytes=200, keep=0)
    for number in range(20):
        log.write(line(number))
    log.close()
    assert [one.name for one in tmp_path.iterdir()] == ["audit.log"]


def test_what_finds_no_room_is_counted_and_the_count_is_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop never waits: the writer stands still here."""
    monkeypatch.setattr(audit, "LINES_WAITING_MAX", 3)
    writes, may_write, lost = threading.Event(), threading.Event(), []
    log = opened(tmp_path / "audit.log", on_lost=lost.append)
    put = log._put
    monkeypatch.setattr(log, "_put", lambda data: (writes.set(), may_write.wait(30), put(data))[2])
    log.write(line(0))
    assert writes.wait(30)
    for number in range(1, 11):
        log.write(line(number))
    may_write.set()
    log.close()
    found = written(tmp_path / "audit.log")
    assert [one.get("count", 0) for one in found] == [0, 7, 1, 2, 3]
    assert found[1]["result"] == "lost" and sum(lost) == 7


@pytest.mark.parametrize("obstacle", ["link", "pipe", "directory", "second name"])
def test_what_is_not_a_file_of_its_own_is_not_written(
    tmp_path: Path, obstacle: str, caplog: pytest.LogCaptureFixture
) -> None:
    path, other = tmp_path / "audit.log", tmp_path / "other"
    other.write_text("precious")
    match obstacle:
        case "link":
            path.symlink_to(other)
        case "pipe":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
        case _:
            os.link(other, path)
    lost: list[int] = []
    log = opened(path, on_lost=lost.append)
    log.write(line(1))
    log.close()
    assert other.read_text() == "precious" and sum(lost) == 1
    assert "cannot be written" in caplog.text


def test_a_full_disk_loses_lines_and_says_so_when_there_is_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, is_full = tmp_path / "audit.log", True
    real, reached = os.write, threading.Event()

    def write(file: int, data: bytes) -> int:
        if is_full:
            # A part of it still fits.
            real(file, bytes(data[:10]))
            reached.set()
            raise OSError(28, "No space left on device")
        return real(file, data)

    lost: list[int] = []
    log = opened(path, on_lost=lost.append)
    monkeypatch.setattr(audit.os, "write", write)
    log.write(line(1))
    assert reached.wait(30)
    while not lost:
        pass
    is_full = False
    log.write(line(2))
    log.close()
    torn, *rest = path.read_text().splitlines()
    assert len(torn) == 10 and [json.loads(one).get("count") for one in rest] == [1, 2]
    assert [
        one.count for one in map(audit._decoder.decode, read_back([path], lambda _line: True, "", 10))
    ] == [1, 2]


def test_it_is_read_back_from_the_newest_on(tmp_path: Path) -> None:
    log = opened(tmp_path / "audit.log", size_bytes=600, keep=9)
    for number in range(30):
        log.write(line(number, user="ada" if number % 2 else "ben"))
        while log._waiting.qsize():
            pass
    log.close()
    files = log.files()
    assert sum(one.exists() for one in files) > 2

    def counts(user: str, since_s: int, limit: int) -> list[int]:
        since = timestamp(since_s * 1_000_000) if since_s else ""
        found = read_back(files, lambda one: user in ("", one.user), since, limit)
        return [json.loads(one).get("count", 0) for one in found]

    assert counts("", 0, 100) == list(range(30))
    assert counts("", 0, 4) == [26, 27, 28, 29]
    assert counts("ada", 0, 3) == [25, 27, 29]
    assert counts("", 20, 100) == list(range(20, 30))
    assert counts("nobody", 0, 100) == []
