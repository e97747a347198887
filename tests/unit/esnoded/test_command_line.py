"""The command line of `esnoded`: which options need, or exclude, each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from eslurm.telemetry.process import EXIT_CANNOT_START
from esnoded.__main__ import main
from tests.support.groups import as_root

USAGE = 2


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("--nodes cn1", USAGE, "the following arguments are required: --cores, --memory-mib"),
        ("--nodes cn1 --cores 4", USAGE, "the following arguments are required: --memory-mib"),
        (
            "--login --nodes login[1-2]",
            EXIT_CANNOT_START,
            "--nodes: 'login[1-2]' means 2 hosts: with --login name the one that this is",
        ),
        (
            "--login --nodes login1 --cores 4",
            EXIT_CANNOT_START,
            "--login: no job runs on a login host: leave out --cores",
        ),
        (
            "--login --nodes login1 --each",
            EXIT_CANNOT_START,
            "--login: no job runs on a login host: leave out --each",
        ),
        (
            "--nodes cn[1-2] --cores 4 --memory-mib 9 --each --socket /tmp/x",
            EXIT_CANNOT_START,
            "--socket: with --each every agent has a socket of its own: leave it out",
        ),
    ],
)
def test_what_does_not_go_together(
    words: str, code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["--cluster", "c", "--state-dir", str(tmp_path / "state")]
    with pytest.raises(SystemExit) as end:
        main([*common, *words.split()])
    assert end.value.code == code
    assert said in capsys.readouterr().err
    assert not (tmp_path / "state").exists()


@as_root
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--private-dirs tmp", "'tmp' is no directory with an absolute path, or all of them"),
        ("--private-dirs /", "'/' is no directory"),
        ("--private-dirs /dev/shm,/no/such", "'/no/such' is no directory"),
        ("--private-dirs /dev/shm,", "'.' is no directory"),
        ("--private-dirs {state}/..", "a private {state}/.. would hide {state}, which jobs need"),
        ("--private-dirs /dev/shm --socket /dev/shm/x.sock", "would hide /dev/shm/x.sock, which jobs need"),
        ("--private-dirs /dev/shm --private-dirs-mib -1", "-1 is less than 0, which is half of the memory"),
    ],
)
def test_directories_that_jobs_cannot_have_to_themselves(
    words: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state"
    common = [
        *("--cluster", "c", "--state-dir", str(state), "--user", "61300"),
        *("--nodes", "cn1", "--cores", "1", "--memory-mib", "9"),
    ]
    with pytest.raises(SystemExit) as end:
        main([*common, *words.format(state=state).split()])
    assert end.value.code == EXIT_CANNOT_START
    assert said.format(state=state) in capsys.readouterr().err
