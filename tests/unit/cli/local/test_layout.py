"""Which directories may be used, and what is said about the others. Nothing in a refused one is touched."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from escli.errors import ClusterError
from escli.local.layout import Layout, check, choose, is_supervised, locked, make, supervising


def refusal(layout: Layout) -> str:
    with pytest.raises(ClusterError) as caught:
        check(layout)
    assert caught.value.code == 2
    return caught.value.text


def test_the_option_wins_over_the_environment_and_that_over_the_default() -> None:
    environ = {"ESLURM_STATE_DIR": "/tmp/b"}
    assert choose("/tmp/a", environ).directory == Path("/tmp/a")
    assert choose(None, environ).directory == Path("/tmp/b")
    own = Path.home() / ".local/state/eslurm"
    assert choose(None, {}).directory == (own if os.geteuid() != 0 else Path("/var/lib/eslurm"))
    assert choose("~/x", {}).directory == Path.home() / "x"


def test_a_path_too_long_for_sockets_is_refused_with_a_way_out() -> None:
    with pytest.raises(ClusterError) as caught:
        choose("/tmp/" + "x" * 100, {})
    assert "bytes too long for the sockets" in caught.value.text
    assert "--state-dir /tmp/eslurm-" in caught.value.text
    longest = "/tmp/" + "x" * (107 - len("/tmp/") - len("/agent999/stepd/esstepd.socket"))
    choose(longest, {})
    with pytest.raises(ClusterError):
        choose(longest + "x", {})


@pytest.mark.parametrize("text", ["", "/tmp/a\0b"])
def test_no_path_at_all(text: str) -> None:
    with pytest.raises(ClusterError):
        choose(text, {})


def test_a_missing_or_empty_directory_is_free(state_dir: Path) -> None:
    assert check(Layout(state_dir)) is None
    assert check(Layout(state_dir / "new")) is None
    assert not (state_dir / "new").exists()


def test_a_file_is_no_directory(state_dir: Path) -> None:
    path = state_dir / "file"
    path.write_text("mine")
    assert "is not a directory" in refusal(Layout(path))
    assert f"{path} is not a directory" in refusal(Layout(path / "below"))
    assert path.read_text() == "mine"


def test_a_directory_with_something_else_in_it(state_dir: Path) -> None:
    (state_dir / "photo.jpg").write_bytes(b"x")
    assert "photo.jpg is there" in refusal(Layout(state_dir))
    assert os.listdir(state_dir) == ["photo.jpg"]


def test_a_directory_that_others_may_write_to(state_dir: Path) -> None:
    state_dir.chmod(0o770)
    assert "others may write to it" in refusal(Layout(state_dir))


def test_a_directory_of_somebody_else(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uid = os.getuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    assert f"belongs to user id {uid}" in refusal(Layout(state_dir))


def test_a_directory_that_cannot_be_written(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "you cannot write to it" in refusal(Layout(state_dir))


def test_a_directory_that_cannot_be_made() -> None:
    with pytest.raises(ClusterError, match="cannot be made"):
        make(Layout(Path("/proc/eslurm/x")))


def test_the_lock_is_waited_for_and_then_given_up(state_dir: Path) -> None:
    layout = Layout(state_dir)
    with (
        locked(layout),
        pytest.raises(ClusterError, match="another eslurm command"),
        locked(layout, timeout_s=0.1),
    ):
        raise AssertionError("locked twice")
    with locked(layout, timeout_s=0.1):
        assert check(layout) is None


def test_a_lock_of_a_removed_directory_is_worth_nothing(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout(state_dir / "gone")
    with pytest.raises(ClusterError), locked(layout):
        raise AssertionError("locked a directory that does not exist")
    layout.directory.mkdir()
    monkeypatch.setattr("escli.local.layout._is_same", lambda _fd, _path: False)
    with pytest.raises(ClusterError, match="was removed meanwhile"), locked(layout):
        raise AssertionError("locked a file that is gone")


def test_one_supervisor_at_a_time(state_dir: Path) -> None:
    layout = Layout(state_dir)
    assert not is_supervised(layout)
    with supervising(layout) as first, supervising(layout) as second:
        assert first
        assert not second
        assert is_supervised(layout)
    assert not is_supervised(layout)
