"""Clients that submit one job after another and try again, whatever happens to the daemons, until told to stop.

Invariant: each job has a name that no other has; `acknowledged` holds exactly those whose acceptance reached a client.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import msgspec

from benchmarks.cluster import Cluster
from eslurm.api.methods import SUBMIT
from eslurm.v1 import controller_pb2 as pb

CALL_S = 120.0


class Acknowledged(msgspec.Struct, frozen=True):
    """One accepted job, and when the client knew (monotonic)."""

    name: str
    job_id: int
    at_s: float


class Submitters:
    """`clients` threads; each starts a call every `period_s`, and makes up for what an unanswered one has held up."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        clients: int,
        period_s: float,
        request: Callable[[int], pb.JobRequest],
        most: int = 0,
    ) -> None:
        self.acknowledged: list[Acknowledged] = []
        self._cluster = cluster
        self._period_s = period_s
        self._request = request
        self._most = most
        self._stopping = threading.Event()
        self._errors: list[Exception] = []
        self._threads = [
            threading.Thread(target=self._submit, args=(number, clients)) for number in range(clients)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def done(self) -> bool:
        """Check whether all `most` jobs have been submitted."""
        return not any(thread.is_alive() for thread in self._threads)

    def stop(self) -> list[Acknowledged]:
        """Let each client end its last call. Raises what ended one of them."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]
        return self.acknowledged

    def _submit(self, client_number: int, clients: int) -> None:
        try:
            with self._cluster.client() as client:
                number = client_number
                due_s = time.monotonic()
                while not self._stopping.is_set() and not 0 < self._most <= number:
                    job = self._request(number)
                    job.name = f"job-{number}"
                    reply = client.call(SUBMIT, pb.SubmitRequest(jobs=[job]), CALL_S)
                    self.acknowledged.append(Acknowledged(job.name, reply.job_ids[0], time.monotonic()))
                    number += clients
                    due_s += self._period_s
                    self._stopping.wait(max(0.0, due_s - time.monotonic()))
        except Exception as error:
            self._errors.append(error)
