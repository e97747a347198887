"""The container engine and one Compose project on it.

Owns the words of the engine's command line and nothing of what the cluster does. Invariant: a project that was taken down
leaves no container, network or volume.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

Found = TypeVar("Found")

COMMAND_S = 300.0
POLL_S = 0.3


class Failed(Exception):
    """A check did not hold, or the engine did not do its part. The text says what was seen."""


class Container(NamedTuple):
    """As `docker compose ps -a` shows it."""

    name: str
    service: str
    state: str
    health: str
    exit_code: int

    def __str__(self) -> str:
        health = f", {self.health}" if self.health else ""
        return f"{self.name} {self.state}{health}" + (
            f" ({self.exit_code})" if self.state == "exited" else ""
        )


def find_missing() -> str:
    """Name the program that this machine lacks to run containers, with the way out; empty: it has all."""
    if shutil.which("docker") is None:
        return "no container engine: install Docker Engine 25 or newer with its Compose plugin"
    if problem := _complaint("docker", "version", "--format", "{{.Server.Version}}"):
        return f"no container engine is running, or you may not use it (docker version: {problem})"
    if problem := _complaint("docker", "compose", "version"):
        return f"Docker's Compose plugin is missing (docker compose version: {problem})"
    if problem := _complaint("docker", "buildx", "version"):
        return f"Docker's buildx plugin is missing, which the image is built with (docker buildx version: {problem})"
    return ""


def _complaint(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    lines = (done.stderr or done.stdout).strip().splitlines()
    return (lines[-1] if lines else f"status {done.returncode}") if done.returncode else ""


def run(argv: Sequence[str], env: Mapping[str, str] | None = None, timeout_s: float = COMMAND_S) -> str:
    """A command's standard output. Raises `Failed` with its last words."""
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, env=None if env is None else dict(env), timeout=timeout_s
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{' '.join(argv)}: not done within {timeout_s:g} s") from None
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines()[-8:]
        raise Failed(f"{' '.join(argv)}: status {done.returncode}: " + "\n  ".join(words))
    return done.stdout


def until(what: str, look: Callable[[], Found | None], timeout_s: float) -> Found:
    """Wait until `look` finds something, and return it. Raises `Failed`."""
    deadline_s = time.monotonic() + timeout_s
    while not (found := look()):
        if time.monotonic() > deadline_s:
            raise Failed(f"{what}: not within {timeout_s:g} s")
        time.sleep(POLL_S)
    return found


class Project:
    """One Compose project: the repository's file, and perhaps others that add to it."""

    def __init__(self, root: Path, name: str, secrets: Path) -> None:
        self._root = root
        self.name = name
        self._files = [root / "docker-compose.yml"]
        ports = dict.fromkeys(("PROMETHEUS_PORT", "ALERTMANAGER_PORT", "GRAFANA_PORT"), "0")
        self._env = {**os.environ, **ports, "ESLURM_SECRETS": str(secrets)}

    def add(self, file: Path) -> None:
        """Services of another file belong to the project, too."""
        self._files.append(file)

    def compose(self, *words: str, timeout_s: float = COMMAND_S) -> str:
        """`docker compose` for this project."""
        files = [word for file in self._files for word in ("--file", str(file))]
        argv = [
            *("docker", "compose", "--ansi=never", "--project-name", self.name),
            *("--project-directory", str(self._root), *files, *words),
        ]
        return run(argv, self._env, timeout_s)

    def containers(self, service: str = "") -> list[Container]:
        """All of them, those that ended too, or those of one service; by name."""
        text = self.compose("ps", "--all", "--format", "json").strip()
        # A list or lines, as the release of Compose has it.
        found: list[dict[str, Any]] = (
            json.loads(text) if text.startswith("[") else [json.loads(line) for line in text.splitlines()]
        )
        listed = [
            Container(one["Name"], one["Service"], one["State"], one.get("Health") or "", one["ExitCode"])
            for one in found
        ]
        return sorted(one for one in listed if service in ("", one.service))

    def execute(self, service: str, *argv: str, user: str = "root", timeout_s: float = COMMAND_S) -> str:
        """Run something in a service's first container; its output."""
        return self.compose("exec", "-T", "--user", user, service, *argv, timeout_s=timeout_s)

    def log(self, container: str) -> list[str]:
        """The lines that a container has written."""
        done = subprocess.run(["docker", "logs", container], capture_output=True, text=True, timeout=60)
        return (done.stdout + done.stderr).splitlines()

    def network(self, name: str) -> str:
        """The engine's name of one of the project's networks."""
        return f"{self.name}_{name}"

    def wait_healthy(self, service: str, timeout_s: float = 90.0) -> None:
        """Until all containers of a service run and are healthy."""

        def look() -> bool:
            found = self.containers(service)
            return bool(found) and all(one.state == "running" and one.health == "healthy" for one in found)

        until(f"{service} healthy", look, timeout_s)

    def down(self) -> list[str]:
        """Take it down; the names of what is left all the same."""
        self.compose("--profile", "*", "down", "--volumes", "--remove-orphans", "--timeout", "5")
        label = f"label=com.docker.compose.project={self.name}"
        left = []
        for kind in (("ps", "--all"), ("network", "ls"), ("volume", "ls")):
            left += run(["docker", *kind, "--quiet", "--filter", label]).split()
        return left
