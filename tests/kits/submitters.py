"""Users who submit all the time while others break or replace daemons, and the count of what became of their jobs.

Invariant: a job is counted when its submission was acknowledged, never earlier; what ran is read from what the jobs'
own scripts have written, not from what the cluster says of them.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from eslurm.api.methods import SUBMIT
from eslurm.api.unix_client import Client
from eslurm.v1 import controller_pb2 as pb

CALL_TIMEOUT_S = 60.0
RAN = "ran"


class Submitters:
    """`threads` users, each with one job every `pause_s`. Leave the `with` to let the last ones finish."""

    def __init__(
        self, sockets: str | Path | Sequence[str], work: Path, *, threads: int = 2, pause_s: float = 0.05
    ) -> None:
        self._sockets = sockets
        self._work = work
        self._pause_s = pause_s
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._submit, args=(at,), name=f"user {at}") for at in range(threads)
        ]
        self.acknowledged: list[int] = []
        self.took_s: list[float] = []
        self.failures: list[str] = []

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    @property
    def longest_s(self) -> float:
        """The longest that a submission had to wait for its acknowledgement, all its tries together."""
        return max(self.took_s)

    def ran(self) -> Counter[int]:
        """Count the runs of each job's script to its end."""
        path = self._work / RAN
        return Counter(int(line) for line in path.read_text().split()) if path.exists() else Counter()

    def _submit(self, user: int) -> None:
        # A job in four is still running when the daemon that looks after it is replaced.
        pauses = ("0", "0", "0", "1.5")
        with Client(self._sockets, CALL_TIMEOUT_S) as client:
            at = user
            while not self._over.is_set():
                began_s = time.monotonic()
                try:
                    reply = client.call(SUBMIT, self._request(pauses[at % len(pauses)]), CALL_TIMEOUT_S)
                except Exception as error:
                    self.failures.append(f"{type(error).__name__}: {error}")
                    return
                self.took_s.append(time.monotonic() - began_s)
                self.acknowledged.extend(reply.job_ids)
                at += 1
                self._over.wait(self._pause_s)

    def _request(self, pause: str) -> pb.SubmitRequest:
        script = f"#!/bin/sh\nsleep {pause}\necho $SLURM_JOB_ID >>{self._work / RAN}\n"
        need = pb.ResourceRequest(tasks=1, cpus_per_task=1)
        job = pb.JobRequest(
            name="steady",
            components=[need],
            script=script.encode(),
            work_dir=str(self._work),
            output="/dev/null",
        )
        return pb.SubmitRequest(jobs=[job])
