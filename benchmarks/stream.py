"""Clients that submit one job after another and try again, whatever happens to the controller, until told to stop.

A process of its own. Each job has a name that no other has; the result says which id each name was given.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Mapping

import msgspec

from benchmarks import jobs
from benchmarks.processes import module
from eslurm.api.methods import SUBMIT
from eslurm.api.unix_client import Client
from eslurm.ports.api import ApiUnreachable
from eslurm.v1 import controller_pb2 as pb

CLIENTS = 4
CALL_S = 120.0
PATIENCE_S = 60.0


class Stream:
    """The other end: starts the clients, stops them, takes what they were told."""

    def __init__(self, socket: str, work_dir: str) -> None:
        command = module("benchmarks.stream", socket, work_dir)
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def finish(self) -> Mapping[str, int]:
        """Let every client end its last call; the job id that each name was acknowledged with."""
        words, _ = self._process.communicate()
        if self._process.returncode:
            raise RuntimeError(f"the clients ended with status {self._process.returncode}")
        return msgspec.json.decode(words, type=dict[str, int])


def _submit_until(
    stop: threading.Event, number: int, socket: str, work_dir: str, acknowledged: dict[str, int]
) -> None:
    count = 0
    with Client(socket, patience_s=PATIENCE_S) as client:
        while not stop.is_set():
            job = jobs.request(number * 1_000_000 + count, work_dir, held=True)
            job.name = f"client{number}-{count}"
            request = pb.SubmitRequest(jobs=[job])
            try:
                reply = client.call(SUBMIT, request, CALL_S)
            except ApiUnreachable as error:
                sys.stderr.write(f"{job.name}: {error}\n")
                raise
            acknowledged[job.name] = reply.job_ids[0]
            count += 1


def main() -> None:
    """Submit until standard input ends."""
    stop = threading.Event()
    acknowledged: dict[str, int] = {}
    threads = [
        threading.Thread(target=_submit_until, args=(stop, number, *sys.argv[1:3], acknowledged))
        for number in range(CLIENTS)
    ]
    for thread in threads:
        thread.start()
    sys.stdin.buffer.read()
    stop.set()
    for thread in threads:
        thread.join()
    sys.stdout.write(msgspec.json.encode(acknowledged).decode() + "\n")


if __name__ == "__main__":
    main()
