"""The script that installs what tests need beside Python: nothing to do, not allowed to, no means. Installs nothing here."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROGRAMS = (
    "prometheus",
    "prometheus-alertmanager",
    "postgres",
    "etcd",
    "etcdctl",
    "mpirun",
    "mpichversion",
    "systemd-analyze",
)
LIBRARIES = ("python3/mpi4py", "python3/otf2", "lib/x86_64/libpmi2.so.0")
PACKAGES = (
    "prometheus prometheus-alertmanager postgresql etcd-server etcd-client openmpi-bin python3-mpi4py mpich libpmi2-0 "
    "python3-otf2 systemd"
)
LINE = f"apt-get install -y --no-install-recommends {PACKAGES}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A PATH with only what the script calls; apt-get stands for one that would fail."""
    for name in ("sh", "mktemp", "tail", "rm", "chmod", "mkdir", "cat"):
        found = next(
            Path(each) / name for each in os.environ["PATH"].split(":") if (Path(each) / name).exists()
        )
        (tmp_path / name).symlink_to(found)
    put(tmp_path, "id", "echo 0")
    put(tmp_path, "apt-get", 'echo "$*" >>"$CALLS"; echo no network; exit 100')
    return tmp_path


def put(path: Path, name: str, script: str) -> None:
    (path / name).write_text(f"#!/bin/sh\n{script}\n")
    (path / name).chmod(0o755)


def put_all(path: Path, *but: str) -> None:
    for name in PROGRAMS:
        if name not in but:
            put(path, name, "")
    for name in LIBRARIES:
        if name not in but:
            (path / name).mkdir(parents=True)


def call(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(path / "sh"), "scripts/system_packages.sh", *arguments],
        cwd=ROOT,
        env={
            "PATH": str(path),
            "CALLS": str(path / "calls"),
            "POLICY_RC_D": str(path / "policy"),
            "POSTGRESQL_LIB": str(path / "lib"),
            "CREATECLUSTER_D": str(path / "clusters"),
            "DIST_PACKAGES": str(path / "python3"),
            "LIBRARIES": str(path / "lib"),
            "TMPDIR": str(path),
        },
        capture_output=True,
        text=True,
        check=False,
    )


def test_with_all_there_nothing_is_done(path: Path) -> None:
    put_all(path)
    found = call(path)
    assert (found.returncode, found.stdout) == (0, f"there already: {PACKAGES}\n")
    assert not (path / "calls").exists()


def test_a_server_that_is_not_on_the_path_is_found(path: Path) -> None:
    put_all(path, "postgres")
    (path / "lib" / "16" / "bin").mkdir(parents=True)
    put(path / "lib" / "16" / "bin", "postgres", "")
    assert call(path).returncode == 0
    (path / "lib" / "16" / "bin" / "postgres").unlink()
    put(path, "id", "echo 1000")
    assert "tests need postgresql" in call(path).stderr


def test_libraries_of_the_systems_python_are_looked_for(path: Path) -> None:
    put_all(path, "python3/otf2")
    put(path, "id", "echo 1000")
    assert "tests need python3-otf2 : run" in call(path).stderr


def test_libraries_of_the_system_are_looked_for(path: Path) -> None:
    put_all(path, "lib/x86_64/libpmi2.so.0")
    put(path, "id", "echo 1000")
    assert "tests need libpmi2-0 : run" in call(path).stderr


def test_the_line_is_printed(path: Path) -> None:
    assert call(path, "--print").stdout == f"{LINE}\n"


def test_without_root_the_line_is_told(path: Path) -> None:
    put(path, "id", "echo 1000")
    found = call(path)
    assert found.returncode == 1
    assert f"run: sudo {LINE}" in found.stderr
    assert not (path / "calls").exists()


def test_sudo_without_a_password_installs(path: Path) -> None:
    """The second call is root's."""
    put(path, "id", 'echo "${ROOT:-1000}"')
    put(path, "sudo", 'shift; [ "$1" = true ] || ROOT=0 exec "$@"')
    found = call(path)
    assert f"tests need {PACKAGES} : installing" in found.stdout
    assert "no network" in found.stderr and "install" in (path / "calls").read_text()


def test_without_apt_the_missing_programs_are_told(path: Path) -> None:
    (path / "apt-get").unlink()
    put(path, "prometheus", "")
    found = call(path)
    assert found.returncode == 1
    assert f"tests need {PACKAGES.removeprefix('prometheus ')} :" in found.stderr


def test_an_installation_that_fails_shows_why_and_takes_the_ban_on_services_back(path: Path) -> None:
    found = call(path)
    assert found.returncode == 1
    assert "no network" in found.stderr
    assert "update" in (path / "calls").read_text()
    assert not (path / "policy").exists()
    assert list((path / "clusters").iterdir()) == []


def test_services_and_clusters_are_banned_while_packages_are_installed(path: Path) -> None:
    made = " && ".join(
        f'printf "#!/bin/sh\\n" >"{path}/{name}" && chmod 755 "{path}/{name}"' for name in PROGRAMS
    )
    made += "".join(f' && mkdir -p "{path}/{name}"' for name in LIBRARIES)
    put(path, "apt-get", f'"$POLICY_RC_D"; echo "$?" >>"$CALLS"; cat "$CREATECLUSTER_D"/* >>"$CALLS"; {made}')
    found = call(path)
    assert (found.returncode, found.stderr) == (0, "")
    assert (path / "calls").read_text() == "101\ncreate_main_cluster = false\n"
    assert not (path / "policy").exists()
    assert list((path / "clusters").iterdir()) == []
