"""Grammar fuzz against a live cluster: requests, frames and streams that are nearly right, by another user of the host.

`python -m tests.security.fuzz --seconds 600` (make fuzz), as root. An attack is a function of a random generator; whoever
has more doors to attack appends to the list of attacks (`Fuzz.attacks`). Meanwhile an ordinary user's commands are served.
Judged are: daemons live; the controller's memory stops growing after a while; its loop is not held up.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import socket
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor import FieldDescriptor

from eslurm.api.methods import METHODS, Method
from eslurm.telemetry.vitals import rss_bytes
from eslurm.transport.framing import REQUEST_HEADER, VERSION
from tests.integration.conftest import running
from tests.kits.cluster import LiveCluster
from tests.kits.commands import preload
from tests.security.stranger import finish, spawn

MIB = 1024 * 1024
GROWTH_BYTES_MAX = 50 * MIB
STALL_S_MAX = 0.1
WARM_PART = 0.4
"""Part of the time after which memory counts."""
BESIDE_S = 0.3
_PATIENCE_S = 0.3

Attack = Callable[[random.Random], None]

WORDS = (
    "",
    "main",
    "nobody",
    "PENDING",
    "/tmp",
    "cn[0001-0002]",
    "a\x1b[2J\r\n\0b",
    "\u202e\U0001f4a9",
    "../../etc/passwd",
    "%j%A%a%N%x%u%%",
    "cn0001&(ib|!old",
    "(" * 200,
    "x" * 300,
    "y" * 70_000,
    "1-2147483647:3",
    "127.0.0.1:99999",
)
NUMBERS = (0, 1, -1, 2, 127, 999, 65_536, 2**31 - 1, -(2**31), 2**32 - 1, 2**63 - 1, -(2**63))
_INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}


# ---- what is sent ----


def message(rng: random.Random, kind: Any, depth: int = 0) -> Any:
    """A message whose fields are set at random to what is likely to hurt."""
    made = kind()
    for one in kind.DESCRIPTOR.fields:
        if rng.random() < 0.4:
            continue
        if one.is_repeated:
            count = rng.choice((0, 1, 2, 3, 20)) if depth else rng.choice((0, 1, 2, 30, 200))
            getattr(made, one.name).extend(_value(rng, one, depth) for _ in range(count))
        elif one.message_type is not None:
            getattr(made, one.name).CopyFrom(_value(rng, one, depth))
        else:
            setattr(made, one.name, _value(rng, one, depth))
    return made


def _value(rng: random.Random, one: Any, depth: int) -> Any:
    if one.message_type is not None:
        kind = one.message_type._concrete_class
        return message(rng, kind, depth + 1) if depth < 4 else kind()
    if one.cpp_type in _INTEGERS:
        low, high = _INTEGERS[one.cpp_type]
        number = rng.choice(NUMBERS) if rng.random() < 0.7 else rng.randint(low, high)
        return min(high, max(low, number))
    match one.cpp_type:
        case FieldDescriptor.CPPTYPE_BOOL:
            return rng.random() < 0.5
        case FieldDescriptor.CPPTYPE_STRING if one.type == FieldDescriptor.TYPE_STRING:
            return rng.choice(WORDS)
        case FieldDescriptor.CPPTYPE_STRING:
            return rng.choice((b"", b"#!/bin/sh\ntrue\n", bytes(32), rng.randbytes(40), b"A=b\0" * 2_000))
        case FieldDescriptor.CPPTYPE_ENUM:
            return rng.randint(0, 5)
        case _:
            return rng.choice((0.0, -1.0, 1e308, float("inf"), float("nan")))


def payload(rng: random.Random, method: Method[Any, Any]) -> bytes:
    """An encoded request, whole or damaged, or one that would be large in memory."""
    if rng.random() < 0.03:
        tag = bytes((rng.choice((0x0A, 0x12, 0x1A, 0x22)), 0))
        return tag * rng.choice((1_000, 30_000, 400_000))
    return damaged(rng, bytes(message(rng, method.request).SerializeToString()))


def damaged(rng: random.Random, data: bytes) -> bytes:
    """The same, or with some bytes changed, cut or doubled."""
    if rng.random() < 0.5:
        return data
    for _ in range(rng.randint(1, 4)):
        at = rng.randint(0, len(data))
        match rng.randint(0, 4):
            case 0:
                data = data[:at]
            case 1:
                data = data[:at] + rng.randbytes(rng.randint(1, 8)) + data[at:]
            case 2:
                data = data[:at] + data[at + rng.randint(1, 8) :]
            case 3:
                data = data[at:] + data
                data = data[:MIB]
            case _ if at < len(data):
                data = data[:at] + bytes((data[at] ^ 1 << rng.randint(0, 7),)) + data[at + 1 :]
    return data


def frame(rng: random.Random) -> bytes:
    """A frame of the Unix door; now and then its header lies."""
    method = rng.choice(METHODS)
    body = payload(rng, method)
    lies = rng.random() < 0.1
    return (
        REQUEST_HEADER.pack(
            rng.choice((0, len(body) + 1, 2**26 + 1, 2**32 - 1)) if lies else len(body),
            rng.randint(0, 255) if rng.random() < 0.02 else VERSION,
            rng.randint(0, 255),
            rng.randint(0, 2**16 - 1) if rng.random() < 0.02 else method.number,
            rng.choice((0, 1, rng.randint(0, 2**32 - 1))) if lies else rng.randint(1, 2**31),
            rng.choice((0, 1, 50, 200, 1_000)),
            rng.randbytes(16),
        )
        + body
    )


def say(connection: socket.socket, data: bytes) -> None:
    """Send, and hear what comes back for a moment; whoever hangs up is right."""
    connection.settimeout(_PATIENCE_S)
    with contextlib.suppress(OSError):
        connection.sendall(data)
        while connection.recv(1 << 16):
            if random.random() < 0.3:
                break


# ---- attacks ----


def unix_attacks(path: str) -> list[Attack]:
    """Against a Unix door."""

    def connect() -> socket.socket:
        one = socket.socket(socket.AF_UNIX)
        one.settimeout(_PATIENCE_S)
        with contextlib.suppress(OSError):
            one.connect(path)
        return one

    def frames(rng: random.Random) -> None:
        with connect() as one:
            say(one, b"".join(frame(rng) for _ in range(rng.randint(1, 12))))

    def pieces(rng: random.Random) -> None:
        with connect() as one:
            data = damaged(rng, frame(rng) + frame(rng))
            for at in range(0, min(len(data), 4_000), 97):
                with contextlib.suppress(OSError):
                    one.sendall(data[at : at + 97])

    def crowd(rng: random.Random) -> None:
        crowded = [connect() for _ in range(rng.randint(1, 120))]
        for one in crowded:
            with contextlib.suppress(OSError):
                one.sendall(frame(rng)[: rng.randint(0, 60)])
        for one in crowded:
            one.close()

    return [frames, frames, frames, pieces, crowd]


def grpc_attacks(endpoint: str, token: str) -> list[Attack]:
    """Against a gRPC port, as a stranger and with a user's token."""
    host, _, port = endpoint.rpartition(":")
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000")

    def noise(rng: random.Random) -> None:
        with socket.socket() as one:
            one.settimeout(_PATIENCE_S)
            with contextlib.suppress(OSError):
                one.connect((host, int(port)))
                frames = b"".join(
                    rng.randint(0, 200).to_bytes(3, "big")
                    + rng.randbytes(6)
                    + rng.randbytes(rng.randint(0, 200))
                    for _ in range(5)
                )
                say(
                    one,
                    rng.choice((b"", preface, preface + frames, rng.randbytes(300), b"\x16\x03\x01\x02\x00")),
                )

    def idle(rng: random.Random) -> None:
        crowd = []
        for _ in range(rng.randint(1, 100)):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex((host, int(port)))
            crowd.append(one)
        for one in crowd:
            one.close()

    channel: list[Any] = []

    def calls(rng: random.Random) -> None:
        if not channel or rng.random() < 0.05:
            for old in channel:
                old.close()
            channel[:] = [grpc.insecure_channel(endpoint)]
        pending = []
        for _ in range(rng.randint(1, 10)):
            method = rng.choice(METHODS)
            metadata: list[tuple[str, Any]] = []
            if rng.random() < 0.7:
                metadata = [
                    ("authorization", f"Bearer {token}"),
                    ("eslurm-request-id-bin", rng.randbytes(16)),
                ]
            if rng.random() < 0.1:
                metadata.append(("authorization", rng.choice(("Bearer es1.AAAA", "x" * 9_000))))
            call = channel[0].unary_unary(method.path)
            pending.append(call.future(payload(rng, method), timeout=_PATIENCE_S, metadata=metadata))
        for one in pending:
            with contextlib.suppress(grpc.RpcError):
                one.result()

    return [noise, idle, calls, calls, calls]


# ---- the harness ----


@dataclass
class Verdict:
    """Observations of the controller meanwhile."""

    beside: int = 0
    """Commands of others that were served."""
    failed: list[str] = field(default_factory=list)
    warm_bytes: int = 0
    growth_bytes: int = 0
    stall_s: float = 0.0
    own_stall_s: float = 0.0
    """The longest time for which this process itself was held up: on a busy machine no process is faster."""

    def problems(self) -> list[str]:
        """The bounds that the controller has broken."""
        found = list(self.failed)
        if self.growth_bytes > GROWTH_BYTES_MAX:
            found.append(f"memory has grown by {self.growth_bytes // MIB} MiB")
        if self.stall_s > STALL_S_MAX + 3 * self.own_stall_s:
            found.append(
                f"the loop was held up for {self.stall_s:.3f} s, this process for {self.own_stall_s:.3f} s"
            )
        return found


class _Pace(threading.Thread):
    """The worst lag of this process."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.worst_s = 0.0
        self.over = threading.Event()

    def run(self) -> None:
        while True:
            began_s = time.monotonic()
            if self.over.wait(0.01):
                return
            self.worst_s = max(self.worst_s, time.monotonic() - began_s - 0.01)


class Fuzz:
    """Attacks a cluster whose daemons are watched (`LiveCluster(is_watched=True)`)."""

    def __init__(self, cluster: LiveCluster, attacks: Sequence[Attack], daemon: str = "esctld") -> None:
        self.cluster = cluster
        self.attacks = list(attacks)
        self._daemon = daemon

    def run(self, seconds: float, seed: int, workers: int = 2) -> Verdict:
        """Attack for so long from several processes of the stranger's; what became of it."""
        preload()
        children = [
            spawn(self.cluster.work, lambda at=at: self._attack(seed + at, seconds)) for at in range(workers)
        ]
        verdict = Verdict()
        pace = _Pace()
        pace.start()
        try:
            self._watch(verdict, time.monotonic() + seconds)
        finally:
            pace.over.set()
            pace.join()
            for pid, answer in children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
                said = finish(pid, answer)
                if "Traceback" in said:
                    verdict.failed.append(said)
        verdict.own_stall_s = pace.worst_s
        return verdict

    def _attack(self, seed: int, seconds: float) -> str:
        rng = random.Random(seed)
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            rng.choice(self.attacks)(rng)
        return "done"

    def _watch(self, verdict: Verdict, end_s: float) -> None:
        process = self.cluster.daemons[self._daemon].process
        assert process is not None
        place = Path(f"/proc/{process.pid}")
        warm_s = time.monotonic() + WARM_PART * (end_s - time.monotonic())
        self._lag_s()
        while time.monotonic() < end_s and not verdict.failed:
            if process.poll() is not None:
                verdict.failed.append(f"{self._daemon} ended: {process.returncode}\n{self.cluster.logs()}")
                return
            for command in (("esctl", "ping"), ("esqueue",)):
                ran = self.cluster.run(*command)
                verdict.beside += 1
                if ran.code:
                    verdict.failed.append(f"{command}: {ran}")
            verdict.stall_s = max(verdict.stall_s, self._lag_s())
            now_bytes = rss_bytes(place)
            if time.monotonic() < warm_s:
                verdict.warm_bytes = max(verdict.warm_bytes, now_bytes)
            else:
                verdict.growth_bytes = max(verdict.growth_bytes, now_bytes - verdict.warm_bytes)
            time.sleep(BESIDE_S)

    def _lag_s(self) -> float:
        """The worst lag of the daemon's loop since the last look."""
        with urllib.request.urlopen(f"http://{self.cluster.watched[self._daemon]}/metrics") as page:
            lines = page.read().decode().splitlines()
        return max(
            (float(line.split()[-1]) for line in lines if line.startswith("eslurm_event_loop_lag_seconds")),
            default=0.0,
        )


def fuzz_doors(seconds: float, seed: int) -> Verdict:
    """The doors of a controller."""
    policy = {"pending_jobs_user_max": 100, "heartbeats_missed_max": 100}
    with running(
        nodes=2, agents=1, satellites=0, is_watched=True, policy=policy, log_level="error"
    ) as cluster:
        token = cluster.run("esctl", "token", "nobody").out.strip()
        attacks = unix_attacks(str(cluster.socket)) + grpc_attacks(cluster.endpoint, token)
        try:
            return Fuzz(cluster, attacks).run(seconds, seed)
        finally:
            cluster.run("escancel", "--user", "nobody")


def main() -> int:
    """`make fuzz`."""
    parser = argparse.ArgumentParser(
        description="Fuzz the doors of a controller, as another user of this host."
    )
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    given = parser.parse_args()
    if os.geteuid() != 0:
        sys.stderr.write("NOT VERIFIED: only root can attack as another user: run it as root\n")
        return 0
    sys.stdout.write(f"seed {given.seed}\n")
    sys.stdout.flush()
    verdict = fuzz_doors(given.seconds, given.seed)
    sys.stdout.write(f"{verdict}\n")
    problems = verdict.problems()
    sys.stdout.write("".join(f"{problem}\n" for problem in problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
