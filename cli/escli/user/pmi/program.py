"""The ranks of one MPI program, from the first byte of each to its end.

Invariants: a rank whose words cannot be understood ends the program, with a text that names it, and raises nothing; what is
held of a rank is at most one message; after the end of the program nothing is answered.
"""

from __future__ import annotations

from escli.user.pmi.pmi1 import Pmi1, init_answer, parse, take_line
from escli.user.pmi.pmi2 import Pmi2
from escli.user.pmi.space import Aborted, NodeFailed, Space
from eslurm.compat.errors import escaped
from eslurm.compat.pmi2_messages import BadMessage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_FAILED = 1
_VERSIONS: dict[bytes, tuple[int, type[Pmi1] | type[Pmi2]]] = {b"1": (1, Pmi1), b"2": (2, Pmi2)}


class Failure:
    """The end of a program by one of its ranks."""

    __slots__ = ("exit_code", "text")

    def __init__(self, text: str, exit_code: int = _FAILED) -> None:
        self.text = text
        self.exit_code = exit_code


class _Rank:
    """The bytes of one rank that make no message yet, and the protocol that it speaks, once known."""

    __slots__ = ("buffer", "protocol")

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.protocol: Pmi1 | Pmi2 | None = None


class MpiProgram:
    """`nodes`, `name` and `names` as of `Space`. `failure` is set once, when a rank ends
    the program."""

    def __init__(self, name: str, nodes: Sequence[int], names: Sequence[str] = ()) -> None:
        self._space = Space(name, nodes, names)
        self._ranks = [_Rank() for _ in nodes]
        self.failure: Failure | None = None

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._space.size

    def take(self, rank: int, data: bytes) -> None:
        """Take what a rank has said."""
        if self.failure is not None:
            return
        state = self._ranks[rank]
        state.buffer += data
        try:
            while self._serve(rank, state):
                pass
            self._check_stuck()
        except BadMessage as error:
            self._fail(f"MPI rank {rank} {error}", _FAILED)
        except Aborted as aborted:
            why = f": {escaped(aborted.text)}" if aborted.text else ""
            of = aborted.rank if aborted.rank >= 0 else rank
            self._fail(f"MPI rank {of} has called abort ({aborted.exit_code}){why}", aborted.exit_code)
        except NodeFailed as failed:
            self._fail(f"the node of MPI rank {rank} does not serve PMIx: {escaped(str(failed))}", _FAILED)

    def take_answers(self) -> list[tuple[int, bytes]]:
        """The answers to be sent, as (rank, bytes), in order."""
        answers, self._space.answers = self._space.answers, []
        return answers

    def ended(self, rank: int) -> None:
        """The task of this rank has ended."""
        self._space.leave(rank)
        if rank in self._space.begun - self._space.finalized:
            self._fail(f"MPI rank {rank} has ended without MPI_Finalize", 0)
        self._check_stuck()

    def _serve(self, rank: int, state: _Rank) -> bool:
        protocol = state.protocol
        if protocol is None:
            line = take_line(state.buffer)
            if line is None:
                return False
            state.protocol = self._begin(rank, line)
            return True
        if state.buffer and protocol.is_finalized:
            raise BadMessage("starts MPI a second time: a task runs one MPI program")
        return protocol.feed(state.buffer)

    def _begin(self, rank: int, line: bytes) -> Pmi1 | Pmi2:
        words = parse(line)
        found = _VERSIONS.get(words.get(b"pmi_version", b""))
        if words.get(b"cmd") != b"init" or found is None:
            raise BadMessage(f"does not begin with PMI-1 or PMI-2: {line[:64]!r}")
        version, protocol = found
        self._space.answer(rank, init_answer(version))
        return protocol(self._space, rank)

    def _check_stuck(self) -> None:
        if (stuck := self._space.find_stuck()) is not None:
            waits, left = stuck
            self._fail(
                f"MPI rank {waits} waits for all ranks, and rank {left} has ended or finalized", _FAILED
            )

    def _fail(self, text: str, exit_code: int) -> None:
        if self.failure is None:
            self._space.answers.clear()
            self.failure = Failure(text, exit_code)
