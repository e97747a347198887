"""A fence of the PMIx servers of all nodes: each brings the data of its ranks to a fence, and reads those of all.

Invariants: a fence is passed by all nodes or by none; what a node brings is bounded; it reads the data of the last fence
until all have come to the next one.
"""

from __future__ import annotations

from eslurm.compat.pmi2_messages import BadMessage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

NODE_BYTES_MAX = 16 * 1024 * 1024
"""Of what a node brings to one fence: some kilobytes for each rank are usual."""
PART_BYTES = 32 * 1024
"""Read at a time."""


class Exchange:
    """`nodes`: the number of nodes, each of which has one server."""

    def __init__(self, nodes: int) -> None:
        self._brought = [bytearray() for _ in range(nodes)]
        self._waiting: dict[int, Callable[[int], None]] = {}
        """The answers to nodes that have come to the fence; they take the size of all data."""
        self._data = b""

    def bring(self, node: int, data: bytes) -> None:
        """Add to what a node brings. Raises `BadMessage`."""
        if node in self._waiting:
            raise BadMessage("brings data to a fence at which it is")
        if len(self._brought[node]) + len(data) > NODE_BYTES_MAX:
            raise BadMessage(f"brings more than {NODE_BYTES_MAX} bytes to a fence")
        self._brought[node] += data

    def enter(self, node: int, answer: Callable[[int], None]) -> None:
        """Answer the node once all have come. Raises `BadMessage`."""
        if node in self._waiting:
            raise BadMessage("comes to a fence at which it is")
        self._waiting[node] = answer
        if len(self._waiting) < len(self._brought):
            return
        self._data = b"".join(self._brought)
        for brought in self._brought:
            brought.clear()
        waiting, self._waiting = self._waiting, {}
        for one in waiting.values():
            one(len(self._data))

    def read(self, at: int) -> bytes:
        """A part of the data of the last fence."""
        return self._data[at : at + PART_BYTES]
