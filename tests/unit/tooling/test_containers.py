"""Checks of the container files without an engine; `make verify-compose` proves the rest."""

from __future__ import annotations

import re
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from eslurm.transport.tls import Tls
from eslurm.transport.tls_options import TlsFiles
from tests.compose import bad_input
from tests.compose.engine import find_missing

ROOT = Path(__file__).parents[3]
CONTAINERS = ROOT / "deploy" / "containers"
COMPOSE = (ROOT / "docker-compose.yml").read_text()


def pinned(name: str) -> dict[str, str]:
    """The versions that a lock file names."""
    text = (ROOT / "requirements" / name).read_text()
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))


def test_the_image_holds_the_versions_that_are_tested() -> None:
    assert pinned("image.txt").items() <= pinned("run.txt").items()
    tools = pinned("dev.txt") | pinned("run.txt")
    assert all(tools.get(name, version) == version for name, version in pinned("build.txt").items())


def test_every_locked_requirement_has_a_hash() -> None:
    for name in ("image.txt", "build.txt"):
        text = (ROOT / "requirements" / name).read_text()
        assert len(re.findall(r"==\S+ \\\n +--hash=sha256:", text)) == len(pinned(name))


def test_the_files_keep_to_what_every_engine_bears() -> None:
    assert "syntax=" not in (ROOT / "Dockerfile").read_text()
    limits = [int(number) for number in re.findall(r"nofile: (\d+)", COMPOSE)]
    assert limits and max(limits) <= 20_000


def test_only_what_the_image_needs_is_sent_to_its_build() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert lines[1] == "*", "everything is left out unless it is named"
    assert not [line for line in lines if "secret" in line]
    assert "deploy/containers/secrets/" in (ROOT / ".gitignore").read_text().splitlines()


@pytest.mark.parametrize(
    "script",
    [
        CONTAINERS / "entry.sh",
        CONTAINERS / "slim.sh",
        CONTAINERS / "trim.sh",
        ROOT / "scripts" / "secrets.sh",
    ],
)
def test_the_scripts_are_plain_shell(script: Path) -> None:
    subprocess.run(["sh", "-n", str(script)], check=True)


def test_secrets_are_drawn_once_and_lie_where_only_the_owner_comes(tmp_path: Path) -> None:
    place = tmp_path / "secrets"
    command = ["sh", str(ROOT / "scripts" / "secrets.sh"), str(place)]
    subprocess.run(command, check=True, capture_output=True)
    first = {path.name: path.read_text() for path in place.iterdir()}
    subprocess.run(command, check=True, capture_output=True)
    assert {path.name: path.read_text() for path in place.iterdir()} == first
    assert set(first) == set(re.findall(r"secrets\}/(\w+)", COMPOSE))
    assert len(set(first.values())) == len(first)
    assert all(len(first[name]) == 64 for name in ("postgres_password", "grafana_password"))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()}
    assert all(mode == 0o600 for name, mode in modes.items() if name.endswith("_key"))
    assert stat.S_IMODE(place.stat().st_mode) == 0o700


def test_the_wrong_configurations_are_wrong_in_one_place_each(tmp_path: Path) -> None:
    right = (CONTAINERS / "eslurm.toml").read_text().splitlines()
    bad_input.prepare(tmp_path, CONTAINERS / "eslurm.toml")
    services = bad_input.SERVICES.read_text()
    for path in tmp_path.glob("*.toml"):
        changed = [line for line in path.read_text().splitlines() if line not in right]
        assert len(changed) == 1, path
        assert path.name in services
    assert all(f"\n  {case.service}:\n" in services for case in bad_input.CASES)


def test_without_an_engine_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "install Docker Engine" in find_missing()
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2\nexit 1\n")
    docker.chmod(0o755)
    assert "no container engine is running" in find_missing() and "Cannot connect" in find_missing()
    docker.write_text(
        '#!/bin/sh\n[ "$1" != compose ] || { echo "unknown command: docker compose"; exit 1; }\n'
    )
    assert "Compose plugin is missing" in find_missing()


def test_each_of_a_federation_has_a_certificate_of_one_authority(tmp_path: Path) -> None:
    command = ["sh", str(ROOT / "scripts" / "secrets.sh"), str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    for name in ("etcd1", "etcd2", "etcd3", "alpha", "beta"):
        Tls(
            TlsFiles(
                tmp_path / "etcd_ca", tmp_path / f"{name}_certificate", tmp_path / f"{name}_key", name=name
            )
        )


def test_certificates_that_cannot_be_drawn_are_drawn_again(tmp_path: Path) -> None:
    place, broken = tmp_path / "secrets", tmp_path / "openssl"
    broken.write_text(
        '#!/bin/sh\ncase "$*" in *alpha_key*) echo no entropy >&2; exit 1;; esac\nexec /usr/bin/openssl "$@"\n'
    )
    broken.chmod(0o755)
    command = ["sh", str(ROOT / "scripts" / "secrets.sh"), str(place)]
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    failed = subprocess.run(command, check=False, capture_output=True, text=True, env=path)
    assert failed.returncode and "no entropy" in failed.stderr
    assert not list(place.glob("*_key")) and not (place / "etcd_ca").exists()
    subprocess.run(command, check=True, capture_output=True)
    assert (place / "alpha_key").exists()


def service(name: str) -> dict[str, Any]:
    """A service of the compose file, its anchors resolved."""
    found: dict[str, Any] = yaml.safe_load(COMPOSE)["services"][name]
    return found


AGENTS = ("agents", "node1", "node2", "alpha-n1", "alpha-n2", "beta-n1", "beta-n2")
LOGINS = ("login", "cells")
BUILT = [
    name
    for name in re.findall(r"^  ([a-z0-9-]+):(?: &[a-z-]+)?\n    <<:", COMPOSE, re.MULTILINE)
    if not name.startswith("etcd")
]
"""Services of the image that is built here."""


def test_the_cells_are_looked_at_too() -> None:
    assert {*AGENTS, *LOGINS, "alpha", "alpha-sat", "beta", "beta-sat", "esctld1"} <= set(BUILT)


@pytest.mark.parametrize("name", (*AGENTS, *LOGINS))
def test_no_secret_is_mounted_where_users_are(name: str) -> None:
    assert not service(name).get("secrets")


@pytest.mark.parametrize("name", BUILT)
def test_a_container_keeps_the_capabilities_that_it_needs(name: str) -> None:
    found = service(name)
    assert found["cap_drop"] == ["ALL"]
    assert set(found["cap_add"]) <= {"CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID"}
    assert found["security_opt"] == ["no-new-privileges:true"]
    assert found.get("read_only") is (None if name in (*AGENTS, *LOGINS) else True)
