"""The scripts behind the Makefile: proto generation, stages and the environment's first minutes on odd machines."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import proto

ROOT = Path(__file__).parents[3]

MESSAGE = 'syntax = "proto3";\npackage eslurm.v1;\nmessage Ping { string text = 1; }\n'
SERVICE = """
syntax = "proto3";
package eslurm.v1;
import "eslurm/v1/ping.proto";
service Door { rpc Knock(Ping) returns (Ping); }
"""


def sh(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", *command],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A source tree with one message file and one service file, nothing generated yet."""
    directory = tmp_path / "proto" / "eslurm" / "v1"
    directory.mkdir(parents=True)
    (directory / "ping.proto").write_text(MESSAGE)
    (directory / "door.proto").write_text(SERVICE)
    return tmp_path


def test_proto_makes_messages_hints_and_services_once_and_then_has_nothing_to_do(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert proto.main(["--check"], tree) == 1
    assert "ping_pb2.py is missing" in capsys.readouterr().err
    assert proto.main([], tree) == 0
    made = tree / "eslurm" / "v1"
    assert sorted(path.name for path in made.iterdir()) == [
        "door_pb2.py",
        "door_pb2.pyi",
        "door_pb2_grpc.py",
        "ping_pb2.py",
        "ping_pb2.pyi",
    ]
    assert "from eslurm.v1 import ping_pb2" in (made / "door_pb2.py").read_text()
    stamps = {path: path.stat().st_mtime_ns for path in made.iterdir()}
    assert proto.main([], tree) == 0
    assert {path: path.stat().st_mtime_ns for path in made.iterdir()} == stamps
    assert proto.main(["--check"], tree) == 0


def test_proto_check_finds_stale_and_left_over_modules_and_changes_nothing(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    proto.main([], tree)
    sources = tree / "proto" / "eslurm" / "v1"
    (sources / "door.proto").unlink()
    (sources / "ping.proto").write_text(MESSAGE.replace("text", "words"))
    (tree / "eslurm" / "v1" / "__init__.py").touch()
    before = proto.present(tree)
    capsys.readouterr()
    assert proto.main(["--check"], tree) == 1
    complaints = capsys.readouterr().err
    assert "ping_pb2.py is stale" in complaints
    assert "door_pb2_grpc.py is left over" in complaints
    assert "make proto" in complaints
    assert proto.present(tree) == before

    assert proto.main([], tree) == 0
    assert sorted(path.name for path in (tree / "eslurm" / "v1").iterdir()) == [
        "__init__.py",
        "ping_pb2.py",
        "ping_pb2.pyi",
    ]


def test_proto_passes_on_what_the_compiler_says(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "proto" / "eslurm" / "v1" / "ping.proto").write_text("syntax = nonsense;")
    assert proto.main([], tree) == 1
    assert "ping.proto:1" in capsys.readouterr().err
    assert not (tree / "eslurm").exists()


def test_proto_without_sources_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert proto.main([], tmp_path) == 1
    assert "no .proto files" in capsys.readouterr().err


def test_a_stage_passes_its_outcome_on_and_logs_it(tmp_path: Path) -> None:
    log = tmp_path / "stages"
    good = sh("scripts/stage.sh", "good", "true", STAGE_LOG=str(log))
    bad = sh("scripts/stage.sh", "bad", "sh", "-c", "echo why; exit 3", STAGE_LOG=str(log))
    assert (good.returncode, bad.returncode) == (0, 3)
    assert bad.stdout.splitlines()[:2] == ["== bad", "why"]
    assert [line.split()[2:] for line in log.read_text().splitlines()] == [
        ["good", "ok"],
        ["bad", "FAILED", "(3)"],
    ]


def executable(path: Path, body: str) -> str:
    """A shell script in another program's place."""
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_an_older_python_is_refused_with_the_way_out(tmp_path: Path) -> None:
    old = executable(tmp_path / "old", 'case $1 in -V) echo "Python 3.9.2" ;; *) exit 1 ;; esac')
    done = sh("scripts/venv.sh", str(tmp_path / "venv"), old)
    assert done.returncode == 1
    assert "needs Python 3.11 or newer (found: Python 3.9.2)" in done.stderr
    assert "make PYTHON=" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_a_machine_without_any_python_is_told_so(tmp_path: Path) -> None:
    done = sh("scripts/venv.sh", str(tmp_path / "venv"), str(tmp_path / "nowhere"))
    assert done.returncode == 1
    assert "needs Python 3.11 or newer (found: none)" in done.stderr


def test_a_python_without_ensurepip_is_named_with_the_package_to_install(tmp_path: Path) -> None:
    bare = executable(
        tmp_path / "bare", f'case $2 in *ensurepip*) exit 1 ;; *) exec "{sys.executable}" "$@" ;; esac'
    )
    done = sh("scripts/venv.sh", str(tmp_path / "venv"), bare)
    assert done.returncode == 1
    assert "lacks the modules ensurepip and venv" in done.stderr
    assert "python3-venv" in done.stderr


def test_a_directory_that_is_no_environment_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("data")
    done = sh("scripts/venv.sh", str(tmp_path), sys.executable)
    assert done.returncode == 1
    assert "is no Python environment" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_a_failing_installation_shows_the_log_and_leaves_no_stamp(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "pyvenv.cfg").touch()
    executable(
        venv / "bin" / "python",
        f'case "$*" in *install*) echo "ERROR: no such wheel"; exit 1 ;; *) exec "{sys.executable}" "$@" ;; esac',
    )
    done = sh("scripts/venv.sh", str(venv), sys.executable)
    assert done.returncode == 1
    assert "no such wheel" in done.stderr
    assert "PIP_FIND_LINKS" in done.stderr
    assert not (venv / ".installed").exists()


@pytest.mark.parametrize(("body", "code"), [("exit 0", 0), ('[ "$1" = venv ]', 1)])
def test_ci_ends_as_the_checks_end_and_lists_the_stages(tmp_path: Path, body: str, code: int) -> None:
    executable(tmp_path / "make", body)
    for name in ("prometheus", "prometheus-alertmanager", "postgres", "docker"):
        executable(tmp_path / name, "exit 0")
    done = subprocess.run(
        ["bash", ".ci/run"],
        cwd=ROOT,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "CI": "true"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code
    table = done.stdout.partition("stages:\n")[2].splitlines()
    stages = ["packages", "install", "containers", "contained"] if code == 0 else ["packages", "install"]
    assert [line.split()[2] for line in table] == [*stages, "all,"]


def test_make_alone_lists_every_target_a_person_types() -> None:
    done = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True)
    listed = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("make ")]
    assert {"demo", "test", "check", "proto", "bench", "sim", "lock", "clean"} <= set(listed)


def test_no_script_names_a_registry() -> None:
    files = [
        ROOT / "Makefile",
        ROOT / ".ci" / "run",
        *(ROOT / "scripts").glob("*.*"),
        *ROOT.glob("requirements/*"),
    ]
    assert len(files) >= 8
    for path in files:
        text = path.read_text()
        assert "http://" not in text and "https://" not in text, path
