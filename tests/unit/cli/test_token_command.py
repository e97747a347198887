"""`esctl token`: who gets one, for how long, and where it goes."""

from __future__ import annotations

import json
import os
import pwd
from pathlib import Path

import pytest

from escli import esctl, exits, tokens
from escli.remote import token_in
from eslurm.core.job.model import Principal
from eslurm.rpc.signing import Keyring
from eslurm.rpc.tokens import find_bearer, read_token

KEY = "0123456789abcdef" * 2
NOW_US = 1_790_000_000_000_000
HOUR_US = 3_600_000_000
CONFIG = '[cluster]\nname = "c"\n[[nodes]]\nnames = "cn1"\ncores = 1\nmemory_mib = 1\n[[partition]]\nname = "main"\n'
USER = "nobody"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A controller's directory, with nobody at work there."""
    (tmp_path / "eslurm.toml").write_text(CONFIG)
    (tmp_path / "cluster.key").write_text(KEY + "\n")
    monkeypatch.setenv("ESLURM_STATE_DIR", str(tmp_path))
    monkeypatch.setattr("escli.clock.now_us", lambda: NOW_US)
    return tmp_path


def read(token: str, at_us: int = NOW_US) -> Principal:
    return read_token(Keyring({1: KEY.encode()}), "c", token, at_us)


def test_it_stands_alone_and_is_good_for_eight_hours(
    cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert esctl.main(["token", USER]) == exits.OK
    out, err = capsys.readouterr()
    assert err == "" and out.count("\n") == 1
    entry = pwd.getpwnam(USER)
    who = read(out.strip(), NOW_US + 8 * HOUR_US - 1)
    assert (who.name, who.uid, who.gid, who.via) == (USER, entry.pw_uid, entry.pw_gid, "token")
    assert entry.pw_gid in who.groups
    bearer = find_bearer(out.strip())
    assert bearer is not None and bearer == (USER, "c", NOW_US + 8 * HOUR_US)


def test_for_so_long(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert esctl.main(["token", USER, "--for", "7d", "--json"]) == exits.OK
    found = json.loads(capsys.readouterr().out)
    assert found["expires_us"] == NOW_US + 7 * 24 * HOUR_US
    assert (found["user"], found["cluster"]) == (USER, "c")
    assert read(found["token"]).name == USER


def test_a_file_is_for_its_user_only(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = cluster / "token"
    path.write_text("what was there")
    path.chmod(0o644)
    assert esctl.main(["token", USER, "--out", str(path)]) == exits.OK
    assert capsys.readouterr().out.startswith(f"{path}: {USER} at cluster c until 2026-")
    seen = path.stat()
    assert seen.st_mode & 0o777 == 0o600
    assert seen.st_uid == (pwd.getpwnam(USER).pw_uid if os.geteuid() == 0 else os.geteuid())
    assert read(token_in(path)).name == USER
    assert sorted(one.name for one in cluster.iterdir()) == ["cluster.key", "eslurm.toml", "token"]


def test_a_link_in_its_place_is_replaced_not_followed(cluster: Path) -> None:
    (cluster / "token").symlink_to(cluster / "elsewhere")
    assert esctl.main(["token", USER, "--output", str(cluster / "token")]) == exits.OK
    assert not (cluster / "elsewhere").exists() and not (cluster / "token").is_symlink()


def test_nothing_but_a_file_is_replaced(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipe = cluster / "pipe"
    os.mkfifo(pipe)
    (cluster / "token").symlink_to(pipe)
    for name in ("pipe", "token"):
        assert esctl.main(["token", USER, "--output", str(cluster / name)]) == exits.USAGE
        assert "' is no file: name one" in capsys.readouterr().err
    assert pipe.is_fifo() and (cluster / "token").is_symlink()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "token: '' needs a user: use e.g. esctl token ada"),
        ([USER, "bob"], "argument: 'bob' is not expected here"),
        (["no-such-user"], "USER: 'no-such-user' is not known on this host"),
        (["root"], "USER: 'root' gets no token: whoever holds it would be root on every node"),
        ([USER, "--for", "8d"], "--for: '8d' is not between 1s and 7d, and a token cannot be taken back"),
        ([USER, "--for", "none"], "--for: 'none' is not between"),
        ([USER, "--for", "soon"], "--for: 'soon' is not a length of time"),
        ([USER, "--output", "/nowhere/token"], "--output: '/nowhere/token' cannot be written (No such file"),
        ([USER, "--output", "."], "--output: '.' is no file: name one, or leave it out"),
        (
            [USER, "--config", "/nowhere"],
            "/nowhere: cannot be read: No such file or directory: make tokens on",
        ),
        ([USER, "--key-file", "/nowhere"], "the cluster's key /nowhere cannot be read: No such file"),
        ([USER, "--key-file", "/dev/null"], "/dev/null holds 0 bytes, which is no cluster's key"),
    ],
)
def test_what_cannot_be(
    cluster: Path, words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert esctl.main(["token", *words]) == exits.USAGE
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith(f"esctl: {text}")


def test_an_installed_cluster_has_its_places(
    cluster: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("ESLURM_STATE_DIR")
    monkeypatch.setenv("HOME", str(cluster / "home"))
    monkeypatch.setattr(tokens, "SYSTEM_CONFIG", str(cluster / "eslurm.toml"))
    monkeypatch.setattr(tokens, "SYSTEM_STATE", str(cluster))
    assert esctl.main(["token", USER]) == exits.OK
    assert read(capsys.readouterr().out.strip()).name == USER
