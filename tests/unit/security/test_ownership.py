"""Paths that another user could change are refused, the others settled. Attacks by a real other user: tests/security."""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path

import pytest

from eslurm.security.ownership import (
    UnsafeFile,
    check_own_directory,
    check_program,
    make_own_directory,
    settle,
)


def test_links_are_followed_where_nobody_else_could_have_put_them(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "absolute").symlink_to(tmp_path / "real")
    (tmp_path / "relative").symlink_to("./real/../absolute/")
    for name in ("real", "absolute", "relative", "relative/../real", "./real//"):
        assert settle(tmp_path / name) == str(tmp_path / "real")
    assert settle(tmp_path / "relative" / "new" / "x") == str(tmp_path / "real" / "new" / "x")
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(UnsafeFile, match="more than 40 symbolic links"):
        settle(tmp_path / "round")


def test_a_relative_path_is_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert settle("x") == str(tmp_path / "x")
    assert settle("../x") == str(tmp_path.parent / "x")


def test_a_directory_in_which_others_could_replace_things_is_no_way(tmp_path: Path) -> None:
    open_to_all = tmp_path / "open"
    (open_to_all / "own").mkdir(parents=True, mode=0o700)
    for mode, is_refused in ((0o777, True), (0o757, True), (0o1777, False), (0o755, False)):
        open_to_all.chmod(mode)
        if is_refused:
            with pytest.raises(
                UnsafeFile, match=f"others may replace what is in it: chmod go-w {open_to_all}"
            ):
                check_own_directory(open_to_all / "own")
        else:
            assert check_own_directory(open_to_all / "own") == str(open_to_all / "own")
    open_to_all.chmod(0o1777)
    with pytest.raises(UnsafeFile, match="others may write to it"):
        check_own_directory(open_to_all)


def test_a_group_of_the_owner_s_alone_is_not_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "shared"
    (shared / "own").mkdir(parents=True, mode=0o700)
    shared.chmod(0o775)
    user = pwd.struct_passwd(("ada", "x", os.geteuid(), os.getegid(), "", "/", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: user)
    for name, members, is_private in (("ada", [], True), ("ada", ["ben"], False), ("staff", [], False)):
        group = grp.struct_group((name, "x", os.getegid(), members))
        monkeypatch.setattr(grp, "getgrgid", lambda _, group=group: group)
        if is_private:
            check_own_directory(shared / "own")
        else:
            with pytest.raises(UnsafeFile, match="others may replace"):
                check_own_directory(shared / "own")


def test_a_directory_is_made_closed(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    assert make_own_directory(path, 0o700) == str(path)
    assert path.stat().st_mode & 0o777 == 0o700
    assert make_own_directory(path, 0o711) == str(path)
    (tmp_path / "file").write_text("x")
    for name in ("file", "file/below"):
        with pytest.raises(UnsafeFile, match=f"{tmp_path}/file is not a directory"):
            make_own_directory(tmp_path / name, 0o700)


def test_a_directory_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    with pytest.raises(UnsafeFile, match=f"belongs to user id {uid}"):
        check_own_directory(tmp_path)


def test_a_program_is_a_file_of_ones_own_that_can_be_executed_and_that_others_cannot_change(
    tmp_path: Path,
) -> None:
    path = tmp_path / "program"
    with pytest.raises(UnsafeFile, match="does not exist"):
        check_program(path)
    path.touch()
    (tmp_path / "link").symlink_to(path)
    for mode, says in (
        (0o755, ""),
        (0o700, ""),
        (0o644, "cannot|can be executed"),
        (0o775, "others may write"),
        (0o757, "others may write"),
    ):
        path.chmod(mode)
        for name in ("program", "link"):
            if says:
                with pytest.raises(UnsafeFile, match=says):
                    check_program(tmp_path / name)
            else:
                assert check_program(tmp_path / name) == str(path)
    path.chmod(0o755)
    for other, says in (("program", "not an absolute path"), (str(tmp_path), "not a file")):
        with pytest.raises(UnsafeFile, match=says):
            check_program(other)
    tmp_path.chmod(0o777)
    with pytest.raises(UnsafeFile, match="others may replace what is in it"):
        check_program(path)
