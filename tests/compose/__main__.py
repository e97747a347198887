"""`make verify-compose`: builds the image, brings the cluster up, breaks it in every way that it must bear, takes it down.

Exit codes: 0 all checks held; 1 one of them did not; 2 there is no engine to run containers with.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.compose import bad_input, faults, federation, figures
from tests.compose.cluster import Cluster
from tests.compose.engine import Failed, Project, find_missing, run

ROOT = Path(__file__).parents[2]
NODES = 2_050
FIRST_JOB_MAX_S = 60.0
HEALTHY_S = 180
CHECKS: tuple[tuple[str, Callable[[Cluster], str]], ...] = (
    ("one job on both kinds of agents", faults.both_kinds),
    ("a satellite killed in the middle of a broadcast", faults.satellite_killed),
    ("an agent container paused", faults.agent_paused),
    ("an agent container cut off", faults.agent_cut_off),
    ("the leader killed", faults.leader_killed),
    ("the database restarted", faults.database_restarted),
    ("all jobs counted", faults.counted),
)


def main() -> int:
    """Run everything; the exit code."""
    parser = argparse.ArgumentParser(
        prog="verify-compose", description="Proves that the cluster in containers works."
    )
    parser.add_argument("--keep", action="store_true", help="leave the cluster up at the end")
    parser.add_argument("--no-build", action="store_true", help="use the image that is there")
    arguments = parser.parse_args()
    if missing := find_missing():
        say(f"error: {missing}")
        return 2
    with tempfile.TemporaryDirectory(prefix="eslurm-compose-") as directory:
        place = Path(directory)
        run(["sh", str(ROOT / "scripts" / "secrets.sh"), str(place / "secrets")])
        (place / "bad").mkdir()
        os.environ.update(bad_input.prepare(place / "bad", ROOT / "deploy" / "containers" / "eslurm.toml"))
        project = Project(ROOT, f"eslurm-verify-{os.getpid()}", place / "secrets")
        code = 1
        try:
            code = _verify(project, build=not arguments.no_build)
        except Failed as failure:
            say(f"FAILED: {failure}")
        except KeyboardInterrupt:
            say("interrupted")
        finally:
            if code:
                _show(project)
            if arguments.keep:
                say(f"left up: docker compose --project-name {project.name} ps")
            elif left := project.down():
                say(f"FAILED: `down -v` leaves {', '.join(left)}")
                code = 1
    return code


def _verify(project: Project, *, build: bool) -> int:
    if build:
        began_s = time.monotonic()
        project.compose("build", "--quiet", timeout_s=900)
        say(f"image built in {time.monotonic() - began_s:.0f} s; {figures.image_size()}")
    began_s = time.monotonic()
    project.compose("up", "--detach", "--wait", "--wait-timeout", str(HEALTHY_S), "--no-build")
    healthy_s = time.monotonic() - began_s
    cluster = Cluster(project)
    cluster.first_job()
    first_s = time.monotonic() - began_s
    say(
        f"all {len(project.containers())} containers healthy after {healthy_s:.1f} s, first job done after {first_s:.1f} s"
    )
    if first_s > FIRST_JOB_MAX_S:
        raise Failed(
            f"the first job had finished only {first_s:.0f} s after `up`: {FIRST_JOB_MAX_S:.0f} s are allowed"
        )
    cluster.wait_up(NODES)
    say(figures.idle_cpu(project))
    failures = 0
    for name, check in CHECKS:
        failures += _check(name, partial(check, cluster))
    project.add(bad_input.SERVICES)
    failures += _check("bad input", partial(bad_input.bad_input, cluster))
    failures += _check("no root where none is needed", partial(figures.unprivileged, project))
    failures += _check("scraped by Prometheus", partial(figures.scraped, project))
    failures += _check("two cells of a federation", partial(federation.federation, project))
    say(f"FAILED: {failures} checks" if failures else "all checks held")
    return 1 if failures else 0


def _check(name: str, check: Callable[[], str | list[str]]) -> int:
    began_s = time.monotonic()
    try:
        said = check()
    except Failed as failure:
        say(f"FAILED {name}: {failure}")
        return 1
    text = said if isinstance(said, str) else "\n    ".join(["", *said])
    say(f"ok ({time.monotonic() - began_s:4.1f} s) {name}: {text}")
    return 0


def _show(project: Project) -> None:
    """Show the containers' states, and the last lines of those that are not well."""
    for container in project.containers():
        say(f"--- {container}")
        if container.state != "running" or container.health != "healthy":
            say("\n".join(project.log(container.name)[-12:]))


def say(text: str) -> None:
    """A line for the person who waits."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
