"""The units for systemd: one for each daemon, with options that it has, and with no more rights than it needs."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from esctld.__main__ import build_parser as controller
from esestd.__main__ import build_parser as estimator
from esnoded.__main__ import build_parser as agent
from essatd.__main__ import build_parser as satellite
from tests.support.groups import lacks

UNITS = sorted((Path(__file__).parents[3] / "deploy" / "systemd").glob("*.service"))
EXPOSURE_MAX = 3.0
"""By systemd's own measure, from 0 to 10, of daemons without root."""
CLOSED = {
    "NoNewPrivileges": "yes",
    "CapabilityBoundingSet": "",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "RestrictSUIDSGID": "yes",
}


def service(path: Path) -> dict[str, str]:
    """The section [Service]; of a key that comes twice, the last value."""
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(path)
    return dict(unit["Service"])


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_its_daemon_has_the_options(path: Path) -> None:
    env, program, *words = shlex.split(service(path)["ExecStart"])
    assert env == "/usr/bin/env"
    {"esctld": controller, "essatd": satellite, "esnoded": agent, "esestd": estimator}[program]().parse_args(
        words
    )


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_only_what_starts_jobs_is_root(path: Path) -> None:
    keys = service(path)
    if path.stem == "esnoded":
        assert keys["User"] == "root" and keys["KillMode"] == "process"
        rights = set(keys["CapabilityBoundingSet"].split())
        assert not rights & {
            "CAP_SYS_ADMIN",
            "CAP_SYS_MODULE",
            "CAP_SYS_RAWIO",
            "CAP_NET_ADMIN",
            "CAP_SETPCAP",
        }
        assert keys["StateDirectory"] == "esnoded", "a directory of another user is refused"
    else:
        assert keys["User"] == "eslurm"
        assert keys.items() >= CLOSED.items()


def test_every_daemon_has_one() -> None:
    started = {shlex.split(service(path)["ExecStart"])[1] for path in UNITS}
    assert started == {"esctld", "essatd", "esnoded", "esestd"}


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_systemd_hears_of_each(path: Path) -> None:
    keys = service(path)
    assert keys["Type"] == "notify" and keys["WatchdogSec"]


def analyze(*words: str) -> str:
    """What `systemd-analyze` says of a unit that it takes."""
    if not shutil.which("systemd-analyze"):
        lacks("systemd-analyze")
    run = subprocess.run(
        ["systemd-analyze", "--no-pager", *words],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"NO_COLOR": "1"},
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout + run.stderr


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_systemd_takes_it(path: Path) -> None:
    said = analyze("verify", "--man=no", str(path))
    # Of systemd 254.
    others = [line for line in said.splitlines() if "DelegateSubgroup" not in line]
    assert not [line for line in others if path.name in line]


@pytest.mark.parametrize("path", [one for one in UNITS if one.stem != "esnoded"], ids=lambda path: path.stem)
def test_it_is_hemmed_in_where_no_job_inherits_it(path: Path) -> None:
    found = re.search(r"exposure level for \S+: ([\d.]+)", analyze("security", "--offline=true", str(path)))
    assert found and float(found[1]) < EXPOSURE_MAX
