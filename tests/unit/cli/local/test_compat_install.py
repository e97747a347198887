"""`eslurm compat install`: PBS's and LSF's launchers are written on request only, and hide no other system's commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from escli.local.eslurm import main


def test_pbs_is_installed_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    words = ("compat", "install", "--prefix", str(tmp_path), "--socket", "/run/s")
    assert main(words) == 0
    assert (tmp_path / "bin/sbatch").exists() and not (tmp_path / "bin/qsub").exists()
    assert main((*words, "--with", "pbs")) == 0
    assert "of Slurm 25.11.0 and PBS are in" in capsys.readouterr().out
    text = (tmp_path / "bin/qsub").read_text()
    assert "from escli.pbs.launch import main" in text and "main('qsub', socket='/run/s')" in text
    assert not (tmp_path / "bin/bsub").exists()
    assert main((*words, "--with", "pbs", "--with", "lsf")) == 0
    assert "of Slurm 25.11.0 and PBS and LSF are in" in capsys.readouterr().out
    assert "from escli.lsf.launch import main" in (tmp_path / "bin/bsub").read_text()
    assert main((*words, "--with", "sge")) == 2


def test_another_systems_qsub_is_not_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "qsub").write_text("#!/bin/sh\n")
    (other / "qsub").chmod(0o755)
    monkeypatch.setenv("PATH", str(other))
    words = ("compat", "install", "--prefix", str(tmp_path / "ours"))
    assert main((*words, "--with", "pbs")) == 1
    assert f"{other}/qsub is a command of another system" in capsys.readouterr().err
    assert main(words) == 0
