"""A stand-in for every kind of daemon: `fake_daemon.py MODE KIND ARGUMENTS...`.

MODE `works`: says that it is ready and waits for SIGTERM; as a controller it answers Ping and Controllers on its socket.
`dies`: ends at once with a message. `sleeps`: never gets ready. `deaf`: works, but ignores SIGTERM.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import threading
from pathlib import Path

NODES = 4
CELLS = ("alpha", "beta", "gamma")


def main(mode: str, kind: str, arguments: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ready-fd", type=int)
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
    if kind == "etcd":
        notify(os.environ["NOTIFY_SOCKET"])
    else:
        say_ready(options.ready_fd)
    stopped.wait()


def notify(path: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as speaking:
        speaking.sendto(b"READY=1", path)


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
    cells = [pb.CellInfo(name=name, state="alive", nodes=NODES) for name in CELLS]
    federation = pb.FederationReply(name="local", cell=path.parent.name, state="member", cells=cells)
    answers = {"Ping": reply, "Controllers": controllers, "Federation": federation}
    with FakeApi(path, **{name: lambda _request, one=one: one for name, one in answers.items()}):
        say_ready(ready_fd)
        stopped.wait()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[4]))
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
