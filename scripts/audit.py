"""Looks for known holes: dangerous calls in the sources (bandit), advisories for what is locked (pip-audit).

A finding ends it with 1. Advisories come from a service that not every machine reaches, and a package index without them
answers as if there were none: what could not be looked up is said loudly, in the list of stages, too, and ends nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
SOURCES = ("eslurm", "daemons", "cli", "scripts", "deploy")
LOCKED = ("requirements/run.txt", "requirements/dev.txt", "requirements/image.txt", "requirements/build.txt")
SERVICES = ("pypi", "osv")
"""Sources of advisories, asked one after the other until one knows the packages."""
TIMEOUT_S = 300.0

Run = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]


class Audited(NamedTuple):
    """Answer of one service: advisories (`name version: ids, fixed in`), how many packages it looked up and did not know."""

    advisories: tuple[str, ...]
    known: int
    unknown: int


def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a tool of the environment. Raises OSError and subprocess.TimeoutExpired."""
    words = [sys.executable, "-P", "-m", *command]
    return subprocess.run(  # nosec B603 # fixed words and the files of this repository
        words, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


def check_sources(tool: Run = run) -> bool:
    """Check whether bandit finds nothing; prints what it finds."""
    done = tool(["bandit", "--quiet", "--recursive", "--configfile", "pyproject.toml", *SOURCES])
    if done.returncode != 0:
        sys.stdout.write(done.stdout + done.stderr)
    return done.returncode == 0


def ask(service: str, tool: Run = run) -> Audited | str:
    """The service's answer for all locked packages; a text says why it gives none."""
    files = [word for name in LOCKED for word in ("--requirement", name)]
    options = [
        "--disable-pip",
        "--no-deps",
        "--progress-spinner",
        "off",
        "--timeout",
        "20",
        "--format",
        "json",
    ]
    try:
        done = tool(["pip_audit", "--vulnerability-service", service, *options, *files])
    except subprocess.TimeoutExpired:
        return f"no answer within {TIMEOUT_S:g} s"
    try:
        packages: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        lines = done.stderr.strip().splitlines()
        return lines[-1][:200] if lines else f"pip-audit ended with {done.returncode}"
    looked_up = [one for one in packages if "vulns" in one]
    return Audited(
        tuple(sorted({_advice(one) for one in looked_up if one["vulns"]})),
        len(looked_up),
        len(packages) - len(looked_up),
    )


def _advice(package: Mapping[str, Any]) -> str:
    found = [
        f"{one['id']} (fixed in {', '.join(one['fix_versions']) or 'no release'})" for one in package["vulns"]
    ]
    return f"{package['name']} {package['version']}: {'; '.join(found)}"


def check_packages(tool: Run = run) -> tuple[bool, str]:
    """Check whether no service knows an advisory; with it what could not be looked up (empty: everything was)."""
    reasons = []
    for service in SERVICES:
        said = ask(service, tool)
        if isinstance(said, str):
            reasons.append(f"{service}: {said}")
            continue
        if said.advisories:
            _say("\n".join(("packages with known holes:", *said.advisories)))
            return False, ""
        if not said.unknown:
            _say(f"no advisory for any of {said.known} packages ({service})")
            return True, ""
        reasons.append(f"{service}: knows {said.known} of {said.known + said.unknown} packages")
    return True, "; ".join(reasons)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def main() -> int:
    """Returns 1 when something was found."""
    sources = check_sources()
    packages, unverified = check_packages()
    if unverified:
        _say(f"NOT VERIFIED: advisories for the locked packages: {unverified}")
        if log := os.environ.get("STAGE_LOG"):
            with open(log, "a") as file:
                file.write("     - s  audit      NOT VERIFIED, no service with advisories answers\n")
    return 0 if sources and packages else 1


if __name__ == "__main__":
    sys.exit(main())
