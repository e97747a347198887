"""MPI of a step: the command serves what its tasks' libraries speak (`escli.user.pmi`), over the connections on which the
nodes send output (ADR 43).

Invariants: of a rank the words of one node alone are taken; a node gets the answers of its own ranks alone.
"""

from __future__ import annotations

from typing import Protocol

from eslurm.compat.errors import OptionError
from eslurm.core.model.mpi import NO_MPI, PMI, PMIX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from escli.options import Words
    from escli.user.pmi.program import Failure, MpiProgram

TYPES = {"none": NO_MPI, "pmi2": PMI, "pmix": PMIX}
"""The values of `--mpi`, and what the nodes are told."""
_VARIABLE = "SLURM_MPI_TYPE"


def check_alone(interface: str, given: Words, is_alone: bool) -> None:
    """Refuse PMIx for a step of several: a node would have two servers for one program. Raises OptionError."""
    if interface == PMIX and not is_alone:
        spelling = given.spelling("mpi") if given.has("mpi") else _VARIABLE
        raise OptionError(spelling, "pmix", "does not go with a step over several parts or cells", "use pmi2")


class Node(Protocol):
    """The connection of a node."""

    def give(self, rank: int, data: bytes) -> None:
        """Hold an answer to a rank for the next `flush`."""

    def flush(self) -> None:
        """Send what is held."""


def list_types() -> str:
    """The text of `--mpi=list`, which is that of Slurm."""
    return "".join(["MPI plugin types are...\n", *(f"\t{name}\n" for name in TYPES)])


def chosen_type(given: str, environ: Mapping[str, str]) -> str:
    """The type that is asked for: by the option, else by the environment."""
    return given or environ.get(_VARIABLE, "") or "none"


def read_mpi(given: Words, environ: Mapping[str, str]) -> str:
    """The choice of `--mpi`, else of the environment. Raises OptionError."""
    spelling = given.spelling("mpi") if given.has("mpi") else _VARIABLE
    text = chosen_type(given.text("mpi"), environ)
    if text not in TYPES:
        raise OptionError(
            spelling, text, "is none of the interfaces to MPI", f"use one of {', '.join(TYPES)}"
        )
    return TYPES[text]


class StepMpi:
    """Brings the words of the ranks to their program, and its answers back."""

    def __init__(self, interface: str) -> None:
        """`interface` is what the nodes were told."""
        self._interface = interface
        self._program: MpiProgram | None = None
        self._refused: Failure | None = None
        self._nodes: dict[int, Node] = {}
        """The connection that speaks for a rank."""

    def begin(self, name: str, layout: Iterable[tuple[str, int]]) -> None:
        """The step is there: its name, and its nodes and their tasks in the order of ranks."""
        from escli.user.pmi.program import MpiProgram

        numbers: dict[str, int] = {}
        nodes = [numbers.setdefault(node, len(numbers)) for node, tasks in layout for _ in range(tasks)]
        self._program = MpiProgram(name, nodes, [node.rpartition("/")[2] for node in numbers])

    @property
    def failure(self) -> Failure | None:
        """The reason why the step is to end, once there is one."""
        if self._refused is not None or self._program is None:
            return self._refused
        return self._program.failure

    def hello(self, node: str, served: str) -> None:
        """A node has connected, and passes on the words of such libraries."""
        if served != self._interface:
            from escli.user.pmi.program import Failure

            text = f"node {node} has a release without this interface to MPI: update it, or use --mpi=none"
            self._refused = Failure(text)

    def take(self, node: Node, rank: int, data: bytes) -> bool:
        """Take what a node says of a rank; False: the rank is not its own."""
        program = self._program
        if program is None or not 0 <= rank < program.size or self._nodes.setdefault(rank, node) is not node:
            return False
        program.take(rank, data)
        return True

    def ended(self, rank: int) -> None:
        """The task of this rank has ended."""
        if self._program is not None and 0 <= rank < self._program.size:
            self._program.ended(rank)

    def answer(self) -> None:
        """Send the answers that there are."""
        answers = self._program.take_answers() if self._program is not None else []
        used: dict[int, Node] = {}
        for rank, data in answers:
            node = self._nodes[rank]
            node.give(rank, data)
            used[id(node)] = node
        for node in used.values():
            node.flush()
