"""An administrator's mistakes: each container ends or waits with one clear line, and `docker compose ps` tells which.

The services are those of bad-input.yml, started beside a healthy cluster that must not notice.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from tests.compose.cluster import Cluster
from tests.compose.engine import Container, Failed, Project, until

SERVICES = Path(__file__).with_name("bad-input.yml")
SETTLE_S = 45.0


class Case(NamedTuple):
    """A service, how its container is found, and what its one line must say."""

    service: str
    state: str
    says: str


CASES = (
    Case("wrong-database", "exited", r"esctld: the job store .*nowhere"),
    Case("wrong-password", "exited", r"esctld: the job store .*password"),
    Case("wrong-host", "unhealthy", r"the job store cannot be read: .*no-such-host"),
    Case("other-cluster", "exited", r"esctld: the job store .*containers"),
    Case("missing-secret", "exited", r"eslurm-container: the secret postgres_password is missing"),
    Case("empty-secret", "exited", r"eslurm-container: the secret postgres_password is empty"),
    Case("no-member", "unhealthy", r"eslurm-container: .*membership is missing: waiting for the controller"),
)
COMPLAINT = re.compile(r"WARNING|ERROR|CRITICAL|Traceback|^es[a-z]+d: |^eslurm-container: ")


def prepare(directory: Path, configuration: Path) -> dict[str, str]:
    """Write the wrong configurations and secrets there; the environment that bad-input.yml wants."""
    right = configuration.read_text(encoding="utf-8")
    changes = {
        "wrong-database": ("@postgres/eslurm", "@postgres/nowhere"),
        "wrong-host": ("@postgres/", "@no-such-host/"),
        "other-cluster": ('name = "containers"', 'name = "other"'),
    }
    for name, (old, new) in changes.items():
        assert old in right, old
        (directory / f"{name}.toml").write_text(right.replace(old, new, 1), encoding="utf-8")
    (directory / "wrong").write_text("0123456789abcdef" * 4, encoding="ascii")
    (directory / "wrong").chmod(0o644)
    (directory / "empty").touch()
    return {"BAD_INPUT": str(directory)}


def bad_input(cluster: Cluster) -> list[str]:
    """One line for each case that went as it should. Raises `Failed` with those that did not."""
    project = cluster.project
    before = cluster.states()
    project.compose("up", "--detach", "--no-build", *(case.service for case in CASES))
    told, wrong = [], []
    for case in CASES:
        try:
            told.append(f"{case.service}: {_as_expected(project, case)}")
        except Failed as failure:
            wrong.append(str(failure))
    project.compose("rm", "--stop", "--force", *(case.service for case in CASES))
    if wrong:
        raise Failed("\n  ".join(wrong))
    if cluster.states() != before:
        raise Failed(f"the cluster noticed: nodes were {dict(before)}, are {dict(cluster.states())}")
    return told


def _as_expected(project: Project, case: Case) -> str:
    def look() -> Container | None:
        return next((one for one in project.containers(case.service) if case.state in one[2:4]), None)

    container = until(f"{case.service} {case.state}", look, SETTLE_S)
    log = project.log(container.name)
    complaints = [line for line in log if COMPLAINT.search(line)]
    if not any(re.search(case.says, line) for line in complaints):
        raise Failed(f"{case.service}: does not say /{case.says}/ but {log[-4:]}")
    # A daemon that waits tells of every place it tried, once each.
    different = {undated(line) for line in complaints}
    if len(different) != len(complaints) or (case.state == "exited" and len(complaints) != 1):
        raise Failed(f"{case.service}: says more than once what is wrong: {complaints}")
    how = f"exited ({container.exit_code})" if container.state == "exited" else container.health
    return f"{how}: {undated(complaints[-1])}"


def undated(line: str) -> str:
    """A log's line without its time."""
    return re.sub(r"^\d\S+ \d\S+ ", "", line)
