"""The cluster in a project, as the checks use it: its commands as a user calls them, and the count of its jobs.

Invariant: every job that was acknowledged is in the `Ledger`, and none is counted unless it left exactly one trace in the
users' files and exactly one attempt in the accounting.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.compose.engine import Failed, Project, until

USER = "ada"
TRACES = f"/home/{USER}/traces"
"""Every job adds its number to this file when it runs."""
REQUEUED = "REQUEUED"
LINES_SHOWN = 5
MARK = f'echo "$SLURM_JOB_ID" >>{TRACES}'


class Cluster:
    """The commands of the login container."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.submitted: list[int] = []

    def shell(self, script: str, *, user: str = USER, timeout_s: float = 120.0) -> str:
        """A shell script in the login container, in the user's home."""
        return self.project.execute("login", "sh", "-ec", f"cd ~; {script}", user=user, timeout_s=timeout_s)

    def ask(self, command: str) -> Any:
        """The answer of a command with --json."""
        return json.loads(self.shell(f"{command} --json"))

    def submit(self, count: int, options: str = "", work: str = "true") -> list[int]:
        """Submit jobs one after the other; their numbers. Each one leaves its trace and then does its work."""
        command = f"essubmit --parsable -o /dev/null {options} --wrap '{MARK}; {work}'"
        lines = self.shell(f"for job in $(seq {count}); do {command}; done").split()
        if len(lines) != count:
            raise Failed(f"{count} jobs were submitted, {len(lines)} acknowledged")
        ids = [int(line) for line in lines]
        self.submitted += ids
        return ids

    def settle(self, ids: Sequence[int], timeout_s: float = 90.0) -> None:
        """Wait until these have ended, each one well and exactly once. Raises `Failed`.

        A launch that did not reach all its nodes is tried again: such an attempt is accounted as requeued, and never ran.
        """
        wanted = ",".join(map(str, ids))

        def look() -> dict[int, list[str]] | None:
            attempts = self._attempts(wanted)
            return attempts if all(number in attempts for number in ids) else None

        attempts = until(f"the end of {len(ids)} jobs", look, timeout_s)
        bad = [f"{number}: {', '.join(ends)}" for number, ends in attempts.items() if ends != ["COMPLETED"]]
        traces = Counter(map(int, self.shell(f"cat {TRACES}").split()))
        bad += [f"{number} ran {traces[number]} times" for number in ids if traces[number] != 1]
        if bad:
            raise Failed(f"{len(bad)} of {len(ids)} jobs went wrong: {'; '.join(bad[:LINES_SHOWN])}")

    def repeated(self, ids: Sequence[int]) -> int:
        """Launches of these jobs that the cluster gave up and tried again."""
        said = self.shell(f"esacct -P -h -o state -j {','.join(map(str, ids))}")
        return said.split().count(REQUEUED)

    def _attempts(self, wanted: str) -> dict[int, list[str]]:
        """The end of each job's attempts, without those that the cluster repeats by itself."""
        found: dict[int, list[str]] = {}
        for line in self.shell(f"esacct -P -h -o jobid,state -j {wanted} || true").splitlines():
            number, _, state = line.partition("|")
            if number.isdecimal() and state != REQUEUED:
                found.setdefault(int(number), []).append(state)
        return found

    # ---- what it looks like ----

    def controllers(self) -> dict[str, str]:
        """The role of each controller, by the host in its endpoint: which is its service."""
        found = self.ask("esinfo --controllers")["controllers"]
        return {one["endpoint"].partition(":")[0]: one["role"] for one in found}

    def leader(self) -> str:
        """The service that leads."""
        return until(
            "a leader", lambda: next((k for k, v in self.controllers().items() if v == "leader"), None), 30
        )

    def states(self) -> Counter[str]:
        """Count the nodes in each state."""
        return Counter(node["state"] for node in self.ask("esinfo")["nodes"])

    def nodes_of(self, host: str) -> list[str]:
        """The nodes that a container serves, which is known by its host name."""
        found = self.ask("esinfo")["nodes"]
        return [node["name"] for node in found if node["endpoint"].partition(":")[0] == host]

    def wait_up(self, nodes: int, timeout_s: float = 60.0) -> None:
        """Until so many nodes are up."""
        until(f"{nodes} nodes up", lambda: self.states()["UP"] == nodes, timeout_s)

    def wait_satellites(self, state: str, timeout_s: float = 30.0) -> None:
        """Until all of them are in this state."""

        def look() -> bool:
            return all(one["state"] == state for one in self.ask("esinfo --satellites")["satellites"])

        until(f"all satellites {state}", look, timeout_s)

    def first_job(self) -> float:
        """Submit a job, wait for its end, and read what it printed; the seconds that took."""
        began_s = time.monotonic()
        said = self.shell("essubmit --wait --quiet -o first.txt --wrap 'echo it runs'; cat first.txt")
        if "it runs" not in said:
            raise Failed(f"the first job's output is {said!r}")
        return time.monotonic() - began_s
