"""The packages that `make packages` has just built: what is in them, and a cluster that runs on nothing else.

Method: the Debian package is unpacked into a directory, and its programs run there. It is also installed and removed in a
copy of this host's root that goes with its mount namespace, so this host stays as it is. Of the RPM package the header
is read.

NOT VERIFIED here: an RPM system, and what systemd makes of the units.
"""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import struct
import subprocess
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.groups import NOT_RUN, as_root, lacks

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
COMMANDS = sorted(PROJECT["scripts"])
HOME = "usr/lib/eslurm"
TIMEOUT_S = 120


def package(pattern: str) -> Path:
    """The newest package of a kind."""
    found = sorted((ROOT / "dist").glob(pattern), key=lambda path: path.stat().st_mtime)
    assert found, f"dist/{pattern} is missing: make packages"
    return found[-1]


@pytest.fixture(scope="module")
def unpacked() -> Iterator[Path]:
    """The Debian package's files, in a directory with a short path that jobs of all users can enter."""
    if shutil.which("dpkg-deb") is None:
        lacks("dpkg-deb")
    directory = Path(tempfile.mkdtemp(prefix="es-", dir="/tmp"))
    directory.chmod(0o755)
    subprocess.run(["dpkg-deb", "-x", package("*.deb"), directory], check=True, timeout=TIMEOUT_S)
    yield directory
    shutil.rmtree(directory)


class Host:
    """A host on which the package is unpacked."""

    def __init__(self, root: Path) -> None:
        self.home = root / HOME
        self.python = self.home / "bin/python"
        if not self.python.exists():
            pytest.skip(f"{NOT_RUN}{os.readlink(self.python)}")
        self.state_dir = root / "state"
        self.work = root / "work"
        self.work.mkdir(exist_ok=True)
        self.work.chmod(0o777)

    def run(self, command: str, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """A command as its first line says, but for the place of the interpreter."""
        script = self.home / "bin" / command
        assert script.read_text().startswith(f"#!/{HOME}/bin/python -I\n")
        env = {"PATH": "/usr/bin:/bin", "HOME": str(self.work), "ESLURM_STATE_DIR": str(self.state_dir)}
        return subprocess.run(
            [self.python, "-I", script, *words],
            **{"env": env, "cwd": "/", "capture_output": True, "text": True, "timeout": TIMEOUT_S} | options,
        )


@pytest.fixture(scope="module")
def host(unpacked: Path) -> Host:
    return Host(unpacked)


def control_of(deb: Path) -> dict[str, str]:
    said = subprocess.run(["dpkg-deb", "-f", deb], capture_output=True, text=True, check=True).stdout
    fields = (line.partition(": ") for line in said.splitlines() if not line.startswith(" "))
    return {key: value for key, _, value in fields}


def test_the_debian_package_says_what_it_needs(host: Host) -> None:
    control = control_of(package("*.deb"))
    assert (control["Package"], control["Version"]) == ("eslurm", PROJECT["version"])
    assert control["Depends"] == Path(os.readlink(host.python)).name


def test_all_is_roots_and_nobody_elses_to_change(unpacked: Path) -> None:
    tar = subprocess.run(["dpkg-deb", "--fsys-tarfile", package("*.deb")], capture_output=True, check=True)
    with tempfile.TemporaryFile() as file:
        file.write(tar.stdout)
        file.seek(0)
        with tarfile.open(fileobj=file) as members:
            for one in members:
                assert (one.uname, one.gname, one.uid, one.gid) == ("root", "root", 0, 0), one.name
                is_safe = one.issym() or not one.mode & (stat.S_IWGRP | stat.S_IWOTH)
                assert is_safe and not one.mode & (stat.S_ISUID | stat.S_ISGID), one.name
                assert one.isfile() or one.isdir() or one.issym(), one.name


def test_units_manual_pages_and_the_daemons_user_are_there(unpacked: Path) -> None:
    units = {path.name: path.read_bytes() for path in (ROOT / "deploy/systemd").iterdir()}
    assert {path.name: path.read_bytes() for path in (unpacked / "usr/lib/systemd/system").iterdir()} == units
    pages = {path.name.partition(".")[0] for path in (unpacked / "usr/share/man").rglob("*.gz")}
    assert pages >= set(COMMANDS)
    assert (unpacked / "usr/lib/sysusers.d/eslurm.conf").read_text().splitlines()[1].startswith("u eslurm -")


def test_nothing_tells_where_it_was_built(unpacked: Path) -> None:
    said = subprocess.run(
        ["grep", "-rlF", str(ROOT), unpacked / HOME], capture_output=True, text=True, check=False
    )
    assert said.stdout == ""


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_starts(host: Host, unpacked: Path, command: str) -> None:
    assert os.readlink(unpacked / "usr/bin" / command) == f"/{HOME}/bin/{command}"
    ran = host.run(command, "--help")
    assert ran.returncode == 0 and command in ran.stdout, ran


def test_the_libraries_that_are_left_out_are_missed_by_nothing(host: Host) -> None:
    """Every daemon is imported, every estimator trained, as in the image."""
    exercise = str(ROOT / "deploy/containers/exercise.py")
    ran = subprocess.run(
        [host.python, "-P", exercise], env={}, cwd="/", capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert ran.returncode == 0, ran


def test_a_job_runs_on_a_cluster_of_it(host: Host) -> None:
    up = host.run("eslurm", "up", "--detach", "--nodes", "2", "--satellites", "1", "--agents", "1")
    assert up.returncode == 0, up
    try:
        as_user = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            as_user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        out = host.work / "out"
        words = ("--wait", "-D", str(host.work), "-o", str(out), "--wrap", "echo ran on $SLURM_JOB_NODELIST")
        ran = host.run("essubmit", *words, **as_user)
        assert ran.returncode == 0, ran
        assert out.read_text().startswith("ran on cn")
    finally:
        down = host.run("eslurm", "down")
    assert down.returncode == 0, down


INSTALL = """
set -eu
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root" || exit 77
mount --bind /proc "$1/root/proc"
mount --bind /dev "$1/root/dev"
cp "$2" "$1/root/eslurm.deb"
exec chroot "$1/root" /bin/sh -euc '
    cd /
    export PATH=/usr/sbin:/usr/bin:/sbin:/bin
    rm -rf /etc/eslurm /var/lib/eslurm
    dpkg -i /eslurm.deb >/dev/null
    getent passwd eslurm
    dpkg --verify eslurm
    eslurm init --cluster demo --controllers ctl1 --nodes cn1 --cores 2 --memory-mib 1000 --host ctl1 >/dev/null
    stat -c "%U %G %a %n" /etc/eslurm/eslurm.toml /var/lib/eslurm/site.key
    eslurm check --state-dir /var/lib/eslurm /etc/eslurm/eslurm.toml
    dpkg -i /eslurm.deb >/dev/null
    dpkg -r eslurm >/dev/null
    ls -d /usr/lib/eslurm /usr/bin/essubmit /etc/eslurm/eslurm.toml 2>/dev/null || true
'
"""


@as_root
def test_a_package_manager_installs_and_removes_it(unpacked: Path, tmp_path: Path) -> None:
    """It makes the daemons' user; `eslurm init` works with it; what is the site's stays."""
    words = [
        "unshare",
        "-m",
        "--propagation",
        "private",
        "sh",
        "-c",
        INSTALL,
        "sh",
        tmp_path,
        package("*.deb"),
    ]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if ran.returncode == 77:
        pytest.skip(f"{NOT_RUN}overlayfs")
    assert ran.returncode == 0, ran
    user, *lines = ran.stdout.splitlines()
    assert user.startswith("eslurm:x:") and user.endswith(":/usr/sbin/nologin")
    assert lines == [
        "root eslurm 640 /etc/eslurm/eslurm.toml",
        "root root 600 /var/lib/eslurm/site.key",
        "/etc/eslurm/eslurm.toml: no problems",
        "/etc/eslurm/eslurm.toml",
    ]


# ---- the RPM package ----

NAME, VERSION, ARCH, MODES, USERS, GROUPS, REQUIRES = 1000, 1001, 1022, 1030, 1039, 1040, 1049
DIR_INDEXES, BASE_NAMES, DIR_NAMES = 1116, 1117, 1118
_INT16, _INT32, _STRING, _STRINGS = 3, 4, 6, 8


def header(data: bytes, at: int) -> tuple[dict[int, Any], int]:
    """The tags of a header structure of the RPM format, and the offset behind it."""
    magic, count, size = struct.unpack_from(">8sII", data, at)
    assert magic == b"\x8e\xad\xe8\x01\0\0\0\0"
    store = at + 16 + 16 * count
    found: dict[int, Any] = {}
    for index in range(count):
        tag, kind, offset, items = struct.unpack_from(">IIII", data, at + 16 + 16 * index)
        if kind in (_INT16, _INT32):
            letter = "H" if kind == _INT16 else "I"
            found[tag] = list(struct.unpack_from(f">{items}{letter}", data, store + offset))
        elif kind in (_STRING, _STRINGS):
            texts = data[store + offset : store + size].split(b"\0", items)[:items]
            found[tag] = [text.decode() for text in texts]
    return found, store + size


def test_the_rpm_package_lists_the_same_files(unpacked: Path) -> None:
    data = package("*.rpm").read_bytes()
    assert data.startswith(b"\xed\xab\xee\xdb")
    _, end = header(data, 96)
    tags, _ = header(data, (end + 7) // 8 * 8)
    assert (tags[NAME], tags[VERSION]) == (["eslurm"], [PROJECT["version"]])
    needed = Path(os.readlink(unpacked / HOME / "bin/python")).name
    assert needed in tags[REQUIRES]
    paths = [
        tags[DIR_NAMES][directory] + name
        for directory, name in zip(tags[DIR_INDEXES], tags[BASE_NAMES], strict=True)
    ]
    files = {path for path, mode in zip(paths, tags[MODES], strict=True) if not stat.S_ISDIR(mode)}
    assert files == {
        f"/{path.relative_to(unpacked)}"
        for path in unpacked.rglob("*")
        if (path.is_symlink() or path.is_file()) and path.relative_to(unpacked).parts[0] == "usr"
    }
    assert set(tags[USERS]) == set(tags[GROUPS]) == {"root"}
    loose = stat.S_IWGRP | stat.S_IWOTH | stat.S_ISUID | stat.S_ISGID
    for path, mode in zip(paths, tags[MODES], strict=True):
        assert stat.S_ISLNK(mode) or not mode & loose, path
