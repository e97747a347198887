"""Several files at once: after a failure at any step everything is as before."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from escli.local.new_files import NewFile, write_all

STEPS = ("open", "link", "rename", "fsync", "fchmod", "makedirs")


def tree(directory: Path) -> dict[str, bytes | None]:
    """All paths, and the content of files."""
    return {
        str(path.relative_to(directory)): path.read_bytes() if path.is_file() else None
        for path in directory.rglob("*")
    }


def files(directory: Path) -> list[NewFile]:
    return [
        NewFile(directory / "old/a", b"new a", 0o600),
        NewFile(directory / "new/b", b"new b", 0o644),
        NewFile(directory / "new/deep/c", b"new c", 0o640, os.getgid()),
    ]


def test_all_are_written_with_their_modes(state_dir: Path) -> None:
    write_all(files(state_dir))
    assert tree(state_dir) == {
        "old": None,
        "old/a": b"new a",
        "new": None,
        "new/b": b"new b",
        "new/deep": None,
        "new/deep/c": b"new c",
    }
    modes = [stat.S_IMODE((state_dir / name).stat().st_mode) for name in ("old/a", "new/b", "new/deep/c")]
    assert modes == [0o600, 0o644, 0o640]


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("step", STEPS)
def test_a_failure_leaves_everything_as_it_was(
    state_dir: Path, step: str, replace: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: all or nothing. Method: each call of a step fails once, as on a full disk, until none is left to fail."""
    (state_dir / "old").mkdir()
    if replace:
        (state_dir / "old/a").write_bytes(b"old a")
    before = tree(state_dir)
    real = getattr(os, step)
    for failing in range(20):
        calls = 0

        def fails(*given: Any, failing: int = failing, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == failing + 1:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(*given, **named)

        with monkeypatch.context() as patched:
            patched.setattr(os, step, fails)
            try:
                write_all(files(state_dir), replace=replace)
            except OSError as error:
                assert error.errno == errno.ENOSPC
            else:
                break
        assert tree(state_dir) == before
    assert calls == failing and (failing or step == "rename")
    assert tree(state_dir)["old/a"] == b"new a"


def test_a_file_that_another_process_makes_meanwhile_stays(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.link

    def late(new: str, place: str, **named: Any) -> None:
        if place.endswith("/b"):
            Path(place).write_bytes(b"theirs")
        real(new, place, **named)

    monkeypatch.setattr(os, "link", late)
    with pytest.raises(FileExistsError) as refused:
        write_all(files(state_dir))
    assert refused.value.filename2.endswith("new/b")
    assert tree(state_dir) == {"new": None, "new/b": b"theirs"}
