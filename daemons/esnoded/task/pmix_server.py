"""The PMIx server of a node for the tasks of one step, as the step's user: `python -m esnoded.task.pmix_server`.

The node's own libpmix speaks to the tasks; what concerns other nodes goes to the step's command. It ends when the command
hangs up, which it does at the end of the step. Invariant: the library's thread only hands things over.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import socket
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from esnoded.task.pmi_client import PmiClient, encode_variables, put_text
from esnoded.task.pmix import VARIABLES
from esnoded.task.pmix_library import LIBRARY, Entry, PmixError, Server

_BLOCK = re.compile(rb"\((\d+),(\d+),(\d+)\)")
_PART_BYTES = 32 * 1024


def main(words: Sequence[str]) -> int:
    """Serve until the end; returns the exit code. `words`: socket, pipe, first rank, ranks, node's name."""
    # Told to end, it removes its directory.
    signal.signal(signal.SIGTERM, lambda _signum, _frame: sys.exit(1))
    library, pipe, first, count = map(int, words[:4])
    with socket.socket(fileno=library) as connection, open(pipe, "wb") as told:
        client = PmiClient(connection)
        directory = tempfile.mkdtemp(prefix="eslurm-pmix-")
        try:
            server = NodeServer(client, first, count, lambda: shutil.rmtree(directory, ignore_errors=True))
            variables = encode_variables(server.start(words[4], directory))
            put_text(client, VARIABLES, variables)
            told.write(variables)
            told.close()
            server.serve()
        except PmixError as error:
            client.tell("node-failed", msg=str(error).encode())
            return 1
        except OSError as error:
            if LIBRARY in str(error):
                client.tell("node-failed", msg=f"{LIBRARY} is missing: install libpmix2".encode())
            return 1
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    return 0


class NodeServer:
    """Serves `count` ranks from `first` on. `done` is called when all have finalized: the end may come without a warning."""

    def __init__(self, client: PmiClient, first: int, count: int, done: Callable[[], None]) -> None:
        """Raises OSError where the library is missing."""
        self._client = client
        self._first = first
        self._count = count
        self._finalized = 0
        self._done = done
        self._waiting: deque[Callable[[], None]] = deque()
        self._server = Server(
            lambda rank: self._later(lambda: self._began(rank)),
            lambda rank, answer: self._later(lambda: self._finalize(rank, answer)),
            lambda rank, code, text: self._later(lambda: self._abort(rank, code, text)),
            lambda data, answer: self._later(lambda: answer(self._exchange(data))),
        )
        self._woken, self._wake = os.pipe()

    def start(self, node_name: str, directory: str) -> dict[str, str]:
        """Start the library's server; the variables of its ranks. Raises OSError, `PmixError`."""
        ask, server = self._client.ask, self._server
        nspace = ask("job-getid")[b"jobid"]
        nodes = nodes_of(ask("info-getjobattr", key=b"PMI_process_mapping")[b"value"])
        names = ask("info-getjobattr", key=b"eslurm_node_names")[b"value"].decode().split(",")
        place = os.fsencode(directory)
        server.start(
            [
                ("pmix.srvr.tmpdir", "s", place),
                ("pmix.sys.tmpdir", "s", place),
                ("pmix.hname", "s", node_name.encode()),
            ]
        )
        ranks = [[str(rank) for rank, one in enumerate(nodes) if one == node] for node in range(len(names))]
        own = range(self._first, self._first + self._count)
        entries: list[Entry] = [
            ("pmix.jobid", "s", nspace),
            ("pmix.univ.size", "u", len(nodes)),
            ("pmix.max.size", "u", len(nodes)),
            ("pmix.job.size", "u", len(nodes)),
            ("pmix.job.napps", "u", 1),
            ("pmix.num.nodes", "u", len(names)),
            ("pmix.nmap", "s", f"raw:{','.join(names)}".encode()),
            ("pmix.pmap", "s", f"raw:{';'.join(map(','.join, ranks))}".encode()),
            ("pmix.local.size", "u", self._count),
            ("pmix.node.size", "u", self._count),
            ("pmix.lpeers", "s", ",".join(map(str, own)).encode()),
            ("pmix.lldr", "r", self._first),
            ("pmix.tmpdir", "s", place),
            ("pmix.nsdir", "s", place),
            ("pmix.tdir.rmclean", "b", True),
        ]
        server.register(nspace, self._count, [*entries, *_of_ranks(nodes, names)])
        for rank in own:
            server.admit(nspace, rank, os.getuid(), os.getgid())
        found = server.variables(nspace, self._first)
        del found["PMIX_RANK"]
        return found

    def serve(self) -> None:
        """Serve until the command hangs up. Raises OSError."""
        poller = select.poll()
        for fd in (self._client.fileno(), self._woken):
            poller.register(fd, select.POLLIN)
        while True:
            ready = [fd for fd, _ in poller.poll()]
            if self._client.fileno() in ready:
                return
            os.read(self._woken, 4096)
            while self._waiting:
                self._waiting.popleft()()

    def _later(self, call: Callable[[], None]) -> None:
        self._waiting.append(call)
        os.write(self._wake, b"\0")

    def _began(self, rank: int) -> None:
        self._client.ask("rank-began", of=b"%d" % rank)

    def _finalize(self, rank: int, answer: Callable[[], None]) -> None:
        self._client.ask("rank-finalized", of=b"%d" % rank)
        self._finalized += 1
        if self._finalized == self._count:
            # Before the last answer: with its last rank the step ends, and this process may be killed.
            self._done()
        answer()

    def _abort(self, rank: int, code: int, text: bytes) -> None:
        # The command ends the step, and this process with it.
        self._client.tell("rank-aborted", of=b"%d" % rank, code=b"%d" % max(0, code), msg=text)

    def _exchange(self, data: bytes) -> bytes:
        """Bring the data of this node's ranks, and read those of all."""
        for at in range(0, len(data), _PART_BYTES):
            self._client.ask("node-put", data=data[at : at + _PART_BYTES])
        size = int(self._client.ask("node-fence")[b"size"])
        found = b""
        while len(found) < size:
            part = self._client.ask("node-get", at=b"%d" % len(found))[b"data"]
            if not part:
                raise OSError("the data of a fence are cut short")
            found += part
        return found


def nodes_of(mapping: bytes) -> list[int]:
    """The number of each rank's node, of a PMI_process_mapping."""
    nodes: list[int] = []
    for block in _BLOCK.findall(mapping):
        first, count, ranks = map(int, block)
        nodes += [first + at for at in range(count) for _ in range(ranks)]
    return nodes


def _of_ranks(nodes: Sequence[int], names: Sequence[str]) -> Iterator[Entry]:
    """The entries that tell each rank of all others."""
    seen = [0] * len(names)
    for rank, node in enumerate(nodes):
        local = seen[node]
        seen[node] += 1
        yield (
            "pmix.pdata",
            "a",
            [
                ("pmix.rank", "r", rank),
                ("pmix.appnum", "u", 0),
                ("pmix.grank", "r", rank),
                ("pmix.apprank", "r", rank),
                ("pmix.lrank", "16", local),
                ("pmix.nrank", "16", local),
                ("pmix.nodeid", "u", node),
                ("pmix.hname", "s", names[node].encode()),
            ],
        )


if __name__ == "__main__":
    code = main(sys.argv[1:])
    # The library's threads are not waited for.
    os._exit(code)
