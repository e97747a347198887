"""The memory of launches in `procd`: bounded, and whole but for what a crash tore."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from esnoded.procd import launches as module
from esnoded.procd.launches import Launches
from tests.kits.stepd import key


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "launches")


def opened(path: str, boot_id: str = "boot") -> Launches:
    made = Launches(path, boot_id)
    made.rewrite()
    return made


def test_it_forgets_what_has_ended_and_stays_small(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RECORDS_MIN", 100)
    made = opened(path)
    for number in range(5_000):
        made.use(key(number), number + 10, number)
        made.began(100_000 + number, 1)
        made.ended(100_000 + number)
        assert os.path.getsize(path) < 20_000
    os.close(made._fd)
    again = Launches(path, "boot")
    assert again.is_used(key(4_999), 4_999) and again.is_used(key(4_995), 4_999)
    assert not again.is_used(key(4_000), 4_999)
    assert not any(pid < 104_800 for pid in again.leaders)


def test_too_many_are_refused_until_some_have_ended(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LAUNCHES_MAX", 3)
    made = opened(path)
    for number in range(3):
        made.use(key(number), 10, 0)
    with pytest.raises(OSError, match="too many"):
        made.use(key(3), 10, 10)
    made.use(key(3), 20, 11)
    assert made.is_used(key(3), 20) and not made.is_used(key(0), 11)
    os.close(made._fd)


def test_a_torn_record_spoils_no_other(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = opened(path)
    made.use(key(1), 10, 0)
    real = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: real(fd, data[: len(data) // 2]))
        with pytest.raises(OSError, match="disk is full"):
            made.use(key(2), 10, 0)
    assert not made.is_used(key(2), 1), "it was not launched"
    made.use(key(3), 10, 0)
    made.began(7, 8)
    os.close(made._fd)
    again = Launches(path, "boot")
    assert [again.is_used(key(number), 1) for number in (1, 2, 3)] == [True, False, True]
    assert again.leaders == {7: 8}
    assert Launches(path, "another boot").leaders == {}
