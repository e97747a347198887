"""`eslurm convert`: clusters whose daemons shared one key, those of `eslurm up` and those run by hand."""

from __future__ import annotations

import json
import os
import shlex
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from escli.local import convert
from escli.local.eslurm import main
from eslurm.config.file import read_config
from eslurm.security.credentials import check_own, read_credentials
from eslurm.security.site_keys import read_ring, read_site_keys
from tests.unit.cli.local.fakes import Fakes

SHARED = "secret of the older release, 32 bytes or more"
CONFIG = """\
[cluster]
name = "old"
key_file = "keys/shared.key"

[[satellite]]
name = "sat-a"
listen = "127.0.0.1:7401"

[[nodes]]
names = "cn[1-3]"
cores = 4
memory_mib = 4000

[[partition]]
name = "main"
default = true

[login]
nodes = "login1"
"""


def age(fakes: Fakes) -> None:
    """Make the directory one of the release whose daemons shared a key."""
    directory = fakes.layout.directory
    trusted = ("site.key", "site.pub", "identity.key", "membership", "members")
    for name in trusted:
        for path in directory.rglob(name):
            path.unlink()
    (directory / "cluster.key").write_text(SHARED)
    fakes.edit_record(format=1)


@pytest.fixture
def old(fakes: Fakes) -> Fakes:
    fakes.up()
    fakes("down", "--keep-jobs")
    age(fakes)
    return fakes


def test_up_says_what_an_old_cluster_needs_and_changes_nothing(old: Fakes) -> None:
    before = old.files()
    answer = old.up()
    assert answer.code == 1
    assert "`eslurm convert`" in answer.err and len(answer.err.splitlines()) == 1
    assert old.files() == before


def test_an_old_cluster_is_converted_and_comes_up(old: Fakes) -> None:
    answer = old("convert")
    assert answer.code == 0, answer.err
    assert "4 satellites and agents are members" in answer.out
    directory = old.layout.directory
    assert (
        read_site_keys(directory).cluster == read_ring(directory / "site.pub").cluster == old.record().cluster
    )
    for name, role, names in (
        ("sat1", "satellite", "sat1"),
        ("sat2", "satellite", "sat2"),
        ("agent1", "agent", "cn01"),
        ("agent2", "agent", "cn04"),
    ):
        check_own(read_credentials(directory / name), role, [names], 1)  # type: ignore[arg-type]
    retired = directory / "cluster.key.retired"
    assert retired.read_text() == SHARED and stat.S_IMODE(retired.stat().st_mode) == 0o600
    assert not (directory / "cluster.key").exists()
    before = old.files()
    assert "needs no conversion" in old("convert").out
    assert old.files() == before
    assert old.up().code == 0
    assert old("down", "--purge").code == 0


@pytest.mark.parametrize("uid", [0, 700, 1000])
@pytest.mark.parametrize("is_allowed", [False, True])
def test_the_owner_s_jobs_still_run(
    old: Fakes, uid: int, is_allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = old.layout.config_file.read_text()
    monkeypatch.setattr("os.getuid", lambda: uid)
    old.edit_record(owner_uid=uid)
    answer = old("convert", *(["--allow-root-jobs"] if is_allowed else []))
    assert answer.code == 0, answer.err
    assert ("jobs of root do not start" in answer.out) == (uid == 0 and not is_allowed)
    agent = read_config(old.layout.config_file).agent
    assert agent.min_uid == (700 if uid == 700 else 1000)
    assert agent.allow_root_jobs == (uid == 0 and is_allowed)
    assert old.layout.config_file.read_text().startswith(text.rstrip())


@pytest.mark.parametrize("is_watched", [False, True])
def test_nothing_is_converted_while_daemons_run(
    fakes: Fakes, is_watched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fakes.up()
    if is_watched:
        fakes("down", "--keep-jobs")
        monkeypatch.setattr(convert, "is_supervised", lambda _layout: True)
    age(fakes)
    before = fakes.files()
    answer = fakes("convert")
    assert answer.code == 1
    assert "eslurm down --keep-jobs" in answer.err and len(answer.err.splitlines()) == 1
    assert fakes.files() == before
    assert fakes("down", "--keep-jobs").code == 0


@pytest.mark.parametrize(
    "crash",
    [
        "escli.local.settings.site_keys.write_site_keys",
        "eslurm.security.site_keys.write_ring",
        "escli.local.convert.enrol",
        "eslurm.security.enrolment.write_ring",
        "escli.local.convert._retire",
        "escli.local.layout.write_record",
    ],
)
def test_a_conversion_that_a_crash_cut_short_is_repeated(
    old: Fakes, crash: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def power_cut(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(crash, power_cut)
        with pytest.raises(KeyboardInterrupt):
            convert.convert(old.layout)
    assert old.up().code == 1, "half a conversion is none"
    answer = old("convert")
    assert answer.code == 0, answer.err
    assert (old.layout.directory / "cluster.key.retired").read_text() == SHARED
    assert old.up().code == 0


def test_keys_of_another_cluster_are_not_taken_for_this_one_s(old: Fakes) -> None:
    assert main(["keys", "init", "--cluster", "foreign", "--state-dir", str(old.layout.directory)]) == 0
    answer = old("convert")
    assert answer.code == 1
    assert "site.key is of cluster foreign" in answer.err and len(answer.err.splitlines()) == 1
    assert old.up().code == 1


def test_a_directory_without_a_cluster_is_told_of(fakes: Fakes) -> None:
    answer = fakes("convert")
    assert answer.code == 2
    assert "no cluster in" in answer.err and not fakes.layout.directory.exists()


Run = Callable[..., tuple[int, str]]


@pytest.fixture
def by_hand(state_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """A controller's directory of the older release; runs `eslurm` commands beside it: exit code, all that is said."""
    state_dir = state_dir / "ctl"
    (state_dir / "keys").mkdir(parents=True, mode=0o700)
    (state_dir / "eslurm.toml").write_text(CONFIG)
    (state_dir / "keys" / "shared.key").write_text(SHARED)
    monkeypatch.chdir(state_dir.parent)

    def run(*words: str) -> tuple[int, str]:
        code = main(words)
        said = capsys.readouterr()
        return code, said.out + said.err

    return run


def test_a_controller_that_was_started_by_hand(by_hand: Run, state_dir: Path) -> None:
    directory = state_dir / "ctl"
    code, said = by_hand("convert", "--state-dir", str(directory))
    assert code == 0, said
    assert read_site_keys(directory).cluster == "old"
    assert (directory / "keys" / "shared.key.retired").read_text() == SHARED
    commands = [shlex.split(line) for line in said.splitlines() if "eslurm keys issue" in line]
    assert len(commands) == 3
    for command in commands:
        assert by_hand(*command[1:])[0] == 0
    for name, role in (("sat-a", "satellite"), ("cn2", "agent"), ("login1", "login")):
        check_own(read_credentials(Path("memberships") / name), role, [name], 1)  # type: ignore[arg-type]
    key = (directory / "site.key").read_bytes()
    again = json.loads(by_hand("convert", "--state-dir", str(directory), "--json")[1])
    assert again["retired"] == str(directory / "keys" / "shared.key.retired")
    assert (directory / "site.key").read_bytes() == key


def test_a_controller_that_runs_is_not_converted(by_hand: Run, state_dir: Path) -> None:
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(state_dir / "ctl" / "esctld-c2.sock"))
        door.listen()
        code, said = by_hand("convert", "--state-dir", str(state_dir / "ctl"))
    assert code == 1 and "a controller runs here (esctld-c2.sock)" in said and "SIGTERM" in said
    assert not (state_dir / "ctl" / "site.key").exists()
    # What a controller left behind is no controller.
    assert by_hand("convert", "--state-dir", str(state_dir / "ctl"))[0] == 0


def test_what_cannot_be_read_or_is_another_s_is_refused(by_hand: Run, state_dir: Path) -> None:
    directory = state_dir / "ctl"
    code, said = by_hand("convert", "--state-dir", str(directory), "--config", "nowhere.toml")
    assert code == 2 and "nowhere.toml" in said
    directory.chmod(0o777)
    code, said = by_hand("convert", "--state-dir", str(directory))
    assert code == 2 and "others may write to it" in said
    if os.getuid() == 0:
        directory.chmod(0o700)
        os.chown(directory, 65534, 65534)
        code, said = by_hand("convert", "--state-dir", str(directory))
        assert code == 2 and "as the user that esctld runs as" in said
        os.chown(directory, 0, 0)
    assert not (directory / "site.key").exists()


def test_names_that_are_no_directories_are_not_issued_each(by_hand: Run, state_dir: Path) -> None:
    directory = str(state_dir / "ctl")
    assert by_hand("convert", "--state-dir", directory)[0] == 0
    words = (
        "keys",
        "issue",
        "--state-dir",
        directory,
        "--role",
        "agent",
        "--each",
        "--out",
        "out",
        "--names",
    )
    code, said = by_hand(*words, "cn1,../../etc")
    assert code == 2 and "is no name for a directory" in said
    assert not Path("out").exists()
