"""The common knowledge of the ranks of one MPI program, before they speak to each other: keys, attributes of nodes, a fence.

Invariants: what a rank may put is bounded in number and size; a fence is passed by all ranks or by none; each rank has at
most one answer to come.
"""

from __future__ import annotations

from escli.user.pmi.exchange import Exchange
from eslurm.compat.pmi2_messages import BadMessage

KEY_BYTES_MAX = 256
VALUE_BYTES_MAX = 1024
"""As with MPICH and Slurm: libraries have buffers of this size."""
KEYS_MAX = 4096
"""Keys and attributes that one rank may put."""
MAPPING_KEY = b"PMI_process_mapping"
NAMES_KEY = b"eslurm_node_names"
"""The names of the nodes that the mapping counts, with commas between."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class PutRefused(Exception):
    """A key cannot be kept; the text says why."""


class Aborted(Exception):
    """A rank ends the program: the one that says so, or `rank` of its node."""

    def __init__(self, exit_code: int, text: str = "", rank: int = -1) -> None:
        super().__init__(text)
        self.exit_code = exit_code
        self.text = text
        self.rank = rank


class NodeFailed(Exception):
    """A node cannot serve its ranks; the text says why."""


class Space:
    """`nodes` gives the number of each rank's node, counted from 0 in the order of ranks; `name` is the job's. `names` are
    those of the nodes.

    `answers` are those to be sent, in order, as (rank, bytes). `begun` and `finalized` are the ranks that have called
    MPI_Init and MPI_Finalize.
    """

    def __init__(self, name: str, nodes: Sequence[int], names: Sequence[str] = ()) -> None:
        self.name = name.encode()
        self.size = len(nodes)
        self.answers: list[tuple[int, bytes]] = []
        self.begun: set[int] = set()
        self.finalized: set[int] = set()
        self.exchange = Exchange(len(set(nodes)))
        self._nodes = tuple(nodes)
        self._names = ",".join(names).encode()
        self._mapping = process_mapping(nodes)
        self._values: dict[bytes, bytes] = {}
        self._attributes: dict[tuple[int, bytes], bytes] = {}
        self._counts = [0] * self.size
        self._fence: dict[int, bytes] = {}
        """The answer of each rank that has come to the fence."""
        self._waiting: dict[int, tuple[tuple[int, bytes], Callable[[bytes], bytes]]] = {}
        """Of ranks that wait for an attribute: it, and what makes the answer."""
        self._left: set[int] = set()

    def answer(self, rank: int, data: bytes) -> None:
        """Answer a rank."""
        self.answers.append((rank, data))

    def put(self, rank: int, key: bytes, value: bytes) -> None:
        """Keep a value for all ranks; the last one of a key counts. Raises `PutRefused`."""
        self._count(rank, key, value, key in self._values)
        self._values[key] = value

    def find(self, key: bytes) -> bytes | None:
        """A value."""
        return self._values.get(key) if key != MAPPING_KEY else self._mapping

    def find_job_attribute(self, key: bytes) -> bytes | None:
        """An attribute of the whole job."""
        if key == b"universeSize":
            return b"%d" % self.size
        return {MAPPING_KEY: self._mapping, NAMES_KEY: self._names}.get(key)

    def node_of(self, rank: int) -> int:
        """The number of a rank's node."""
        return self._nodes[rank]

    def are_neighbours(self, rank: int, other: int) -> bool:
        """Check whether both ranks exist, and are on one node."""
        return 0 <= other < self.size and self._nodes[rank] == self._nodes[other]

    def put_attribute(self, rank: int, key: bytes, value: bytes) -> None:
        """Keep a value for the ranks of the same node, and answer those that wait for it. Raises `PutRefused`."""
        named = self._nodes[rank], key
        self._count(rank, key, value, named in self._attributes)
        self._attributes[named] = value
        for other, (wanted, make) in tuple(self._waiting.items()):
            if wanted == named:
                del self._waiting[other]
                self.answer(other, make(value))

    def find_attribute(self, rank: int, key: bytes) -> bytes | None:
        """A value of the rank's node."""
        return self._attributes.get((self._nodes[rank], key))

    def wait_for_attribute(self, rank: int, key: bytes, make: Callable[[bytes], bytes]) -> None:
        """Answer the rank once its node has this value. Raises `BadMessage`."""
        self._check_free(rank)
        self._waiting[rank] = (self._nodes[rank], key), make

    def enter_fence(self, rank: int, answer: bytes) -> None:
        """Answer the rank once all have come here. Raises `BadMessage`."""
        self._check_free(rank)
        self._fence[rank] = answer
        if len(self._fence) == self.size:
            self.answers += self._fence.items()
            self._fence.clear()

    def leave(self, rank: int) -> None:
        """The rank comes to no further fence: it has finalized or ended."""
        self._left.add(rank)

    def find_stuck(self) -> tuple[int, int] | None:
        """(a rank that waits for all, one that never comes), if there are such."""
        return (min(self._fence), min(self._left)) if self._fence and self._left else None

    def _check_free(self, rank: int) -> None:
        if rank in self._fence or rank in self._waiting:
            raise BadMessage("asks again before it was answered")

    def _count(self, rank: int, key: bytes, value: bytes, is_known: bool) -> None:
        if not key or len(key) > KEY_BYTES_MAX:
            raise PutRefused(f"key_of_{len(key)}_bytes_is_not_within_1_to_{KEY_BYTES_MAX}")
        if len(value) > VALUE_BYTES_MAX:
            raise PutRefused(f"value_of_{len(value)}_bytes_is_longer_than_{VALUE_BYTES_MAX}")
        if not is_known:
            if self._counts[rank] >= KEYS_MAX:
                raise PutRefused(f"more_than_{KEYS_MAX}_keys_of_one_rank")
            self._counts[rank] += 1


def process_mapping(nodes: Sequence[int]) -> bytes:
    """The nodes of the ranks as PMI_process_mapping: blocks of (first node, number of nodes, ranks on each), in order."""
    runs: list[list[int]] = []
    for node in nodes:
        if runs and runs[-1][0] == node:
            runs[-1][1] += 1
        else:
            runs.append([node, 1])
    blocks: list[list[int]] = []
    for node, ranks in runs:
        if blocks and blocks[-1][0] + blocks[-1][1] == node and blocks[-1][2] == ranks:
            blocks[-1][1] += 1
        else:
            blocks.append([node, 1, ranks])
    return ("(vector," + ",".join("({},{},{})".format(*block) for block in blocks) + ")").encode()
