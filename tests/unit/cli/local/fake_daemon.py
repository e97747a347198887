"""A stand-in for every kind of daemon: `fake_daemon.py MODE KIND ARGUMENTS...`.

MODE `works`: says that it is ready and waits for SIGTERM; as a controller it answers Ping and Controllers on its socket.
`dies`: ends at once with a message. `sleeps`: never gets ready. `deaf`: works, but ignores SIGTERM.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from pathlib import Path

NODES = 4


def main(mode: str, kind: str, arguments: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ready-fd", type=int, required=True)
    parser.add_argument("--state-dir", type=Path)
    parser.add_argument("--name", default="main")
    options, _ = parser.parse_known_args(arguments)
    if mode == "dies":
        sys.exit(f"{kind}: the dog ate my spool")
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, signal.SIG_IGN if mode == "deaf" else lambda *_: stopped.set())
    if mode == "sleeps":
        stopped.wait()
        return
    if kind == "esctld":
        daemon = "esctld" if options.name == "main" else f"esctld-{options.name}"
        serve(options.state_dir / f"{daemon}.sock", stopped, options.ready_fd)
        return
    say_ready(options.ready_fd)
    stopped.wait()


def say_ready(fd: int) -> None:
    os.write(fd, b"ready\n")
    os.close(fd)


def serve(path: Path, stopped: threading.Event, ready_fd: int) -> None:
    from eslurm.v1 import controller_pb2 as pb
    from tests.kits.fake_api import FakeApi

    path.unlink(missing_ok=True)
    reply = pb.PingReply(nodes=NODES, nodes_up=NODES, jobs_pending=1)
    controllers = pb.ControllersReply(
        controllers=[
            pb.ControllerInfo(name="main", role="leader", epoch=1),
            pb.ControllerInfo(name="c2", role="standby"),
        ]
    )
    with FakeApi(path, Ping=lambda _request: reply, Controllers=lambda _request: controllers):
        say_ready(ready_fd)
        stopped.wait()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[4]))
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
