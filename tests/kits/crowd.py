"""A cluster with an agent process of its own for each node, and satellites with few sockets."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from esnoded.stepd.place import Place
from tests.kits.cluster import LiveCluster
from tests.kits.stepd import end_process
from tests.support.connections import connections

AGENTS = "agent0"
SAMPLE_S = 0.02


class Crowd(LiveCluster):
    """`sockets_max` is what each satellite is given."""

    def __init__(
        self, directory: Path, *, nodes: int, satellites: int, sockets_max: int, **policy: Any
    ) -> None:
        super().__init__(directory, nodes=nodes, agents=1, satellites=satellites, policy=policy)
        self.daemons[AGENTS].words.append("--each")
        self.satellites = [f"sat{number}" for number in range(satellites)]
        for name in self.satellites:
            self.daemons[name].words += ["--name", name, "--sockets-max", str(sockets_max)]

    def parent(self) -> int:
        """The process that all agents were forked from."""
        process = self.daemons[AGENTS].process
        assert process is not None
        return process.pid

    def agents(self) -> list[int]:
        """The agents' processes."""
        parent = self.parent()
        return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]

    def supervisors(self) -> list[int]:
        """The step supervisors that have been started."""
        found = (Place(path.parent.parent).find_supervisor() for path in self._supervised())
        return [status.pid for status in found if status is not None]

    def _supervised(self) -> list[Path]:
        return list(self.agent_dir(AGENTS).glob("*/stepd/esstepd.instance"))

    def stop(self) -> None:
        """See `LiveCluster.stop`."""
        if self.daemons[AGENTS].process is not None:
            self.terminate(AGENTS)
        for pid in self.supervisors():
            end_process(pid, signal.SIGTERM, signal.SIGTERM)
        super().stop()


@contextmanager
def watched(cluster: LiveCluster, names: Sequence[str]) -> Iterator[dict[str, int]]:
    """Looks at the connections of these daemons all the time; the most each of them had."""
    peaks = dict.fromkeys(names, 0)
    over = threading.Event()

    def look() -> None:
        while not over.wait(SAMPLE_S):
            for name in names:
                process = cluster.daemons[name].process
                if process is not None:
                    with suppress(OSError):
                        peaks[name] = max(peaks[name], connections(process.pid))

    watcher = threading.Thread(target=look, name="watch connections")
    watcher.start()
    try:
        yield peaks
    finally:
        over.set()
        watcher.join()
