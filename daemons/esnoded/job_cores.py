"""Reports of applications about their cores (R-01, R-03, R-07): from a line of the job's socket into the agent's core.

Invariants: a process speaks for jobs of its own user on nodes of this agent, and for no others; nothing is sent to it but
the answer to its own line, and a line that waits for cores is answered within its own bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from eslurm.core.agent.attempt import MAY_START_STEPS, Attempt
from eslurm.core.agent.cooperation import CoresView
from eslurm.core.agent.node import LocalNode
from eslurm.core.model.lending import REMAINING_MAX_S, WORKERS_MAX
from esnoded.job_lines import Line, LineError, number_of
from esnoded.shell import Shell

CORES_MAX = 1_000_000
WAIT_MAX_S = 600
WAITING_MAX = 256
"""Lines that wait for cores at a time; the others are answered at once."""


class JobCores:
    """Serves `report` for the nodes of one process."""

    def __init__(self, shell: Shell, nodes: Callable[[], Collection[LocalNode]]) -> None:
        self._shell = shell
        self._nodes = nodes
        self._waiting: dict[int, set[asyncio.Event]] = {}
        self._waiting_count = 0
        shell.on_exclusion = self._on_exclusion

    async def report(self, uid: int, job_id: int, line: Line) -> list[tuple[str, object]]:
        """The answer to one report. Raises `LineError`."""
        node, attempt = self._attempt(uid, job_id, line.values.get("node", ""))
        idle = number_of(line, "idle", CORES_MAX, least=0) if "idle" in line.values else None
        remaining_s = (
            number_of(line, "remaining", REMAINING_MAX_S, least=0) if "remaining" in line.values else -1
        )
        worker = number_of(line, "worker", WORKERS_MAX - 1, least=0) if "worker" in line.values else 0
        wait_s = number_of(line, "wait", WAIT_MAX_S, least=0) if "wait" in line.values else 0
        view = self._told(attempt, worker, idle, remaining_s, rejects="reject" in line.flags)
        if wait_s and view.excluded > view.idle:
            view = await self._wait(uid, job_id, node, attempt, worker, wait_s) or view
        return [
            ("job", job_id),
            ("node", node.offer.name),
            ("level", view.level),
            ("cores", view.cores),
            ("idle", view.idle),
            ("excluded", view.excluded),
            ("asked", view.asked),
        ]

    def _attempt(self, uid: int, job_id: int, name: str) -> tuple[LocalNode, Attempt]:
        found = [
            (node, attempt)
            for node in self._nodes()
            for attempt in node.attempts.values()
            if attempt.job_id == job_id
            and attempt.stage in MAY_START_STEPS
            and attempt.launch is not None
            and attempt.launch.spec.user.uid == uid
            and name in ("", node.offer.name)
        ]
        if not found:
            where = f" on node {name[:64]}" if name else ""
            raise LineError("NOT_FOUND", f"job {job_id} of this user does not run here{where}")
        if len(found) > 1:
            raise LineError(
                "INVALID", f"job {job_id} runs on several nodes of this agent: say which, node=cn001"
            )
        return found[0]

    def _told(
        self, attempt: Attempt, worker: int, idle: int | None, remaining_s: int, *, rejects: bool
    ) -> CoresView:
        try:
            actions, view = self._shell.agent.on_cores(
                attempt, worker, idle, remaining_s, self._shell.now_us(), rejects=rejects
            )
        except ValueError as error:
            raise LineError("INVALID", str(error)) from None
        self._shell.perform(actions)
        return view

    async def _wait(
        self, uid: int, job_id: int, node: LocalNode, attempt: Attempt, worker: int, wait_s: int
    ) -> CoresView | None:
        """Wait until the cores that the application wants are its own again; None when the attempt has gone."""
        if self._waiting_count >= WAITING_MAX:
            return None
        event = asyncio.Event()
        self._waiting.setdefault(job_id, set()).add(event)
        self._waiting_count += 1
        view: CoresView | None = None
        try:
            async with asyncio.timeout(wait_s):
                while True:
                    await event.wait()
                    event.clear()
                    if self._attempt(uid, job_id, node.offer.name)[1] is not attempt:
                        return None
                    view = self._told(attempt, worker, None, -1, rejects=False)
                    if view.excluded <= view.idle:
                        return view
        except TimeoutError:
            return view
        finally:
            self._waiting_count -= 1
            waiting = self._waiting[job_id]
            waiting.discard(event)
            if not waiting:
                del self._waiting[job_id]

    def _on_exclusion(self, job_id: int) -> None:
        for event in self._waiting.get(job_id, ()):
            event.set()
