"""`eslurm import slurm`: the files that it writes, its report, and what it does not read or replace."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from escli.admin.policies import read_file
from escli.local import import_command
from escli.local.eslurm import main
from eslurm.config.file import read_config
from tests.support.golden import Golden

SITE = Path(__file__).parents[3] / "kits" / "slurm_site"
ALL = ("--conf", "slurm.conf", "--topology", "topology.conf", "--gres", "gres.conf", "--assoc", "alpha.cfg")

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command in a copy of the site's directory; its exit code, and what it says on both outputs."""
    shutil.copytree(SITE, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> tuple[int, str, str]:
        code = main(["import", "slurm", *words])
        said = capsys.readouterr()
        return code, *(text.replace(str(tmp_path.resolve()), "/site") for text in (said.out, said.err))

    return call


def test_a_site_is_converted(run: Run, golden: Golden, tmp_path: Path) -> None:
    code, out, err = run(*ALL, "-o", "eslurm.toml")
    assert (code, err) == (0, "")
    golden("slurm/import-report.txt", out)
    golden("slurm/import-eslurm.toml", (tmp_path / "eslurm.toml").read_text())
    golden("slurm/import-policies.toml", (tmp_path / "policies.toml").read_text())
    assert len(read_config(tmp_path / "eslurm.toml").nodes) == 6
    assert {kind for kind, _, _ in read_file("policies.toml")} == {"qos", "account", "user", "limit"}


def test_strict_fails_while_something_is_left(run: Run, tmp_path: Path) -> None:
    assert run(*ALL, "-o", "a.toml", "--policies", "b.toml", "--strict")[0] == 1
    assert (tmp_path / "a.toml").exists() and (tmp_path / "b.toml").exists()
    (tmp_path / "small.conf").write_text(
        "ClusterName=a\nNodeName=n CPUs=4 RealMemory=100\nPartitionName=p Nodes=ALL\n"
    )
    assert run("--conf", "small.conf", "-o", "c.toml", "--strict")[0] == 0


def test_the_configuration_goes_to_standard_output(run: Run) -> None:
    code, out, err = run("--conf", "slurm.conf")
    assert code == 0 and out.startswith("# Made by `eslurm import slurm`") and "No equivalent" in err
    assert "[[switch]]" not in out


def test_json_has_all_findings(run: Run) -> None:
    code, out, err = run(*ALL, "-o", "eslurm.toml", "--json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert (found["configuration"], found["policies"]) == ("eslurm.toml", "policies.toml")
    one = next(one for one in found["findings"] if one["key"] == "MailProg")
    assert one == {
        "file": "slurm.conf",
        "line": 75,
        "key": "MailProg",
        "value": "/usr/bin/s-nail",
        "effect": "left",
        "text": "name a program like sendmail in mail.program, or a server in mail.smtp",
    }
    code, out, _ = run("--conf", "slurm.conf", "--json")
    assert json.loads(out)["configuration"].startswith("# Made by")


def test_files_that_are_there_are_kept(run: Run, tmp_path: Path) -> None:
    (tmp_path / "policies.toml").write_text("mine")
    code, _, err = run(*ALL, "-o", "eslurm.toml")
    assert code == 2 and "policies.toml is there already: choose another name, or add --force" in err
    assert not (tmp_path / "eslurm.toml").exists()
    assert run(*ALL, "-o", "eslurm.toml", "--force")[0] == 0
    assert "[qos.normal]" in (tmp_path / "policies.toml").read_text()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--conf", "none.conf"), "none.conf: cannot be read: No such file or directory: correct the path"),
        (("--conf", "pipe"), "pipe: is not a file: name a text file"),
        (("--conf", "slurm.conf", "--assoc", "alpha.cfg"), "add -o FILE or --policies FILE"),
        (("--conf", "slurm.conf", "--policies", "p.toml"), "are made of --assoc FILE"),
        ((*ALL, "-o", "x.toml", "--policies", "x.toml"), "is the file of -o, too"),
        (("--conf", "slurm.conf", "--assoc", "slurm.conf", "-o", "x"), "is no file of `sacctmgr dump`"),
        (("--conf", "slurm.conf", "-o", "none/x"), "none/x cannot be written"),
        ((), "Missing option '--conf'"),
    ],
)
def test_errors(run: Run, tmp_path: Path, words: tuple[str, ...], text: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    code, out, err = run(*words)
    assert code in (1, 2) and text in err and not out
    assert "Traceback" not in err and not list(tmp_path.glob(".x*"))


def test_only_files_of_named_directories_are_included(
    run: Run, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret").write_text("root:hash:1\n")
    (outside / "more.conf").write_text("KillWait=77\n")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(outside / "secret")
    up = os.path.relpath(outside, tmp_path)
    (tmp_path / "slurm.conf").write_text(
        f"Include {outside}/secret\nInclude {up}/secret\nInclude link\nInclude pipe\nInclude .\nInclude slurm.conf\n"
        f"Include {outside}/more.conf\nInclude \0\n"
    )
    code, out, err = run("--conf", "slurm.conf")
    assert code == 0 and "hash" not in out + err and "kill_grace_s" not in out
    assert err.count("is outside of") == 4 and err.count("is not a file") == 2 and "includes itself" in err
    code, out, _ = run("--conf", "slurm.conf", "--include-dir", str(outside))
    assert code == 0 and "kill_grace_s = 77" in out


def test_sizes_are_bounded(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_command, "FILE_BYTES_MAX", 1000)
    monkeypatch.setattr(import_command, "TOTAL_BYTES_MAX", 1500)
    (tmp_path / "slurm.conf").write_text("#" * 1001)
    assert "is too large" in run("--conf", "slurm.conf")[2]
    (tmp_path / "part").write_text("#" * 700)
    (tmp_path / "slurm.conf").write_text("Include part\nInclude part\nInclude part\n")
    assert run("--conf", "slurm.conf")[2].count("is too large") == 1


def test_texts_from_files_cannot_paint_the_terminal(run: Run, tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_bytes(b"MailProg=\x1b[31mred\xff\r\n\x1b]0;x=\x07 y\n")
    code, _, err = run("--conf", "slurm.conf")
    assert code == 0 and "\x1b" not in err and "\x07" not in err
