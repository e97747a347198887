"""`eslurm check`: problems and warnings of files, by exit code, as text and as JSON."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from escli.local.eslurm import main

GOOD = "[cluster]\nname = 'demo'\n"


def written(directory: Path, text: str, name: str = "e.toml") -> str:
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_good_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, GOOD)
    assert main(("check", file)) == 0
    assert capsys.readouterr().out == f"{file}: no problems\n"


def test_all_problems_of_all_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = written(tmp_path, GOOD, "good"), written(tmp_path, GOOD + "nmae = 1\noperators = 2\n", "bad")
    assert main(("check", good, bad, str(tmp_path / "none"))) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{good}: no problems",
        f"{bad}:3:1: cluster.nmae is no key of the configuration: did you mean name?",
        f"{bad}:4:13: cluster.operators: '2' is no list: write a list in brackets: [...]",
        f"{bad}: 2 problems",
        f"{tmp_path}/none: cannot be read: No such file or directory",
    ]


def test_files_that_are_missing_are_warnings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cert.pem").touch()
    file = written(
        tmp_path, GOOD + "[tls]\ncertificate = 'cert.pem'\nkey = 'key.pem'\n[mail]\nprogram = '/no/such'\n"
    )
    warning = (
        f"{file}:7:11: warning: mail.program: '/no/such' is not on this host: name another file, or make it"
    )
    assert main(("check", file)) == 0
    assert capsys.readouterr().out.splitlines() == [warning, f"{file}: no problems"]
    assert main(("check", "--state-dir", str(tmp_path), file)) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{file}:5:7: warning: tls.key: 'key.pem' is not on this host: name another file, or make it",
        warning,
        f"{file}: no problems",
    ]


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, "[cluster]\nname = 'a b'\n")
    assert main(("check", "--json", file)) == 1
    why, way_out = "is no name", "use at most 63 letters, digits, and '-', '_', '.' after the first"
    finding = {
        "line": 2,
        "column": 8,
        "key": "cluster.name",
        "value": "'a b'",
        "why": why,
        "way_out": way_out,
    }
    text = f"{file}:2:8: cluster.name: 'a b' {why}: {way_out}"
    assert json.loads(capsys.readouterr().out) == {
        "ok": False,
        "files": [
            {
                "file": file,
                "ok": False,
                "problems": [finding | {"text": text}],
                "warnings": [],
                "problems_left_out": 0,
                "unreadable": "",
            }
        ],
    }


def test_a_strangers_file_cannot_hold_it_up_or_move_the_cursor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pipe that nobody writes to, and names and values with control characters."""
    os.mkfifo(tmp_path / "pipe")
    file = written(tmp_path, '"\\u001b[2J" = 1\n[cluster]\nname = "\\u001b]0;x\\u0007"\n', "a\x1b[31m.toml")
    assert main(("check", str(tmp_path / "pipe"), file)) == 1
    said = capsys.readouterr().out
    assert "pipe: is not a regular file" in said and "'\\x1b]0;x\\x07' is no name" in said
    assert all(line.isprintable() for line in said.splitlines())
