"""The token of an estimator that calls from elsewhere: read when it changes, never when others could have read it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from esestd.leader_calls import TokenFile
from eslurm.ports.api import ApiUnreachable


def write(path: Path, text: str, mode: int = 0o600) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.chmod(mode)
    os.replace(fresh, path)


def test_it_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "token"
    write(path, "es2.one\n")
    token = TokenFile(path)
    assert token.read() == token.read() == "es2.one"
    write(path, "es2.two")
    assert token.read() == "es2.two"
    path.unlink()
    with pytest.raises(ApiUnreachable, match=r"No such file or directory.*--scope estimator"):
        token.read()
    write(path, "es2.three")
    assert token.read() == "es2.three"


@pytest.mark.parametrize(
    ("text", "mode", "told"),
    [
        ("es2.one", 0o644, "is open to others"),
        ("", 0o600, "holds no token"),
        ("two words", 0o600, "holds no token"),
        ("\u00e4", 0o600, "holds no token"),
    ],
)
def test_files_that_are_not_used(tmp_path: Path, text: str, mode: int, told: str) -> None:
    write(tmp_path / "token", text, mode)
    with pytest.raises(ApiUnreachable, match=told):
        TokenFile(tmp_path / "token").read()
