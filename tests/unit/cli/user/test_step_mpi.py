"""MPI of `esrun`: the choice, and supervisors that speak the real frames for their ranks, and for others'."""

from __future__ import annotations

import io
import socket
from collections.abc import Iterator

import msgspec
import pytest

from escli.options import Words
from escli.user.step_mpi import StepMpi, check_alone, list_types, read_mpi
from escli.user.step_output import LineWriter, StepOutput
from eslurm.compat.errors import OptionError
from eslurm.core.model.step_key import StepKey
from eslurm.ports.step_runner import MPI_STREAM, InputFrame, OutputFrame, OutputHello
from eslurm.security.step_stream import StreamSealer
from tests.kits.pmi import INIT1, line

COOKIE = b"c" * 32


def given(text: str) -> Words:
    words = Words()
    words.put("mpi", text, "--mpi")
    return words


def test_the_choice() -> None:
    assert read_mpi(Words(), {}) == read_mpi(given("none"), {"SLURM_MPI_TYPE": "pmi2"}) == ""
    assert read_mpi(given("pmi2"), {}) == read_mpi(Words(), {"SLURM_MPI_TYPE": "pmi2"}) == "pmi"
    assert list_types() == "MPI plugin types are...\n\tnone\n\tpmi2\n\tpmix\n"
    with pytest.raises(
        OptionError, match="--mpi: 'pmix_v4' is none of the interfaces to MPI: use one of none, pmi2, pmix"
    ):
        read_mpi(given("pmix_v4"), {})
    with pytest.raises(OptionError, match="SLURM_MPI_TYPE: 'lam' is none of the interfaces to MPI"):
        read_mpi(Words(), {"SLURM_MPI_TYPE": "lam"})


def test_pmix_is_for_a_step_of_one_part() -> None:
    check_alone("pmi", given("pmi2"), is_alone=False)
    check_alone("pmix", given("pmix"), is_alone=True)
    with pytest.raises(
        OptionError, match="--mpi: 'pmix' does not go with a step over several parts or cells: use pmi2"
    ):
        check_alone("pmix", given("pmix"), is_alone=False)


class Node:
    """A supervisor of the step."""

    def __init__(self, step: Step, name: str, tasks: int, mpi: str = "pmi") -> None:
        host, _, port = step.output.endpoint.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), 5)
        self._step = step
        self._sealer = StreamSealer(COOKIE)
        self._back = self._sealer.back()
        self._bodies: list[bytes] = []
        self.socket.setblocking(False)
        self.socket.sendall(self._sealer.opening)
        self._send(OutputHello(StepKey(7, 1, 0, 1), name, tasks, 0, mpi))

    def _send(self, message: OutputHello | OutputFrame) -> None:
        self.socket.sendall(self._sealer.seal(msgspec.msgpack.encode(message)))

    def says(self, rank: int, data: bytes) -> None:
        self._send(OutputFrame(1, rank, MPI_STREAM, data))

    def ends(self, rank: int, status: int) -> None:
        self._send(OutputFrame(1, rank, 0, exit_status=status))

    def hears(self) -> InputFrame:
        while not self._bodies:
            self._step.output.run_once(0.05)
            try:
                data = self.socket.recv(65_536)
            except BlockingIOError:
                continue
            assert data, "it hung up"
            self._bodies += self._back.feed(data)
        return msgspec.msgpack.decode(self._bodies.pop(0), type=InputFrame)

    def is_hung_up_on(self) -> bool:
        while True:
            self._step.output.run_once(0.05)
            try:
                if not self.socket.recv(65_536):
                    return True
            except BlockingIOError:
                continue
            except ConnectionError:
                return True


class Step:
    """The command of a step of three tasks on two nodes."""

    def __init__(self) -> None:
        self.mpi = StepMpi("pmi")
        self.shown = io.BytesIO()
        self.output = StepOutput("127.0.0.1", COOKIE, LineWriter(self.shown, self.shown), self.mpi)
        self.output.expect({(0, "n1"): 2, (0, "n2"): 1})
        self.mpi.begin("7.0", [("n1", 2), ("n2", 1)])
        self._nodes: list[Node] = []

    def node(self, name: str, tasks: int, mpi: str = "pmi") -> Node:
        self._nodes.append(Node(self, name, tasks, mpi))
        return self._nodes[-1]

    def until_failure(self) -> tuple[str, int]:
        while self.output.failure is None:
            self.output.run_once(5)
        return self.output.failure.text, self.output.failure.exit_code

    def close(self) -> None:
        self.output.close()
        for node in self._nodes:
            node.socket.close()


@pytest.fixture
def step() -> Iterator[Step]:
    made = Step()
    yield made
    made.close()


def test_a_node_proves_itself_and_then_gets_the_answers_of_its_own_ranks(step: Step) -> None:
    first, second = step.node("n1", 2), step.node("n2", 1)
    # What proves the cookie comes before any data.
    assert first.hears() == second.hears() == InputFrame()
    for node, rank in ((first, 0), (first, 1), (second, 2)):
        node.says(rank, INIT1)
        heard = node.hears()
        assert heard.mpi_rank == rank and heard.data.endswith(b"rc=0\n")
        node.says(rank, line("cmd=barrier_in"))
    assert [first.hears(), first.hears()] == [
        InputFrame(b"cmd=barrier_out\n", mpi_rank=rank) for rank in (0, 1)
    ]
    assert second.hears() == InputFrame(b"cmd=barrier_out\n", mpi_rank=2)
    assert step.output.failure is None and step.shown.getvalue() == b""


@pytest.mark.parametrize("rank", [-1, 3, 1 << 40])
def test_a_node_speaks_for_no_rank_that_is_not_in_the_step(step: Step, rank: int) -> None:
    node = step.node("n1", 2)
    node.says(rank, INIT1)
    assert node.is_hung_up_on()


def test_a_rank_speaks_on_one_node_alone(step: Step) -> None:
    first, second = step.node("n1", 2), step.node("n2", 1)
    first.hears()
    first.says(2, INIT1)
    assert first.hears().mpi_rank == 2
    second.hears()
    second.says(2, INIT1)
    assert second.is_hung_up_on()


def test_a_node_of_a_release_without_mpi_ends_the_step(step: Step) -> None:
    step.node("n2", 1, "")
    text = "node n2 has a release without this interface to MPI: update it, or use --mpi=none"
    assert step.until_failure() == (text, 1)


def test_a_task_that_dies_in_mpi_ends_the_step(step: Step) -> None:
    node = step.node("n1", 2)
    node.says(1, INIT1)
    node.ends(1, -11)
    assert step.until_failure() == ("MPI rank 1 has ended without MPI_Finalize", 0)
    assert step.output.statuses == {1: -11}


def test_words_of_mpi_in_a_step_without_it_close_the_connection() -> None:
    made = Step()
    made.output._mpi = None
    node = made.node("n1", 2)
    node.says(0, INIT1)
    assert node.is_hung_up_on()
    made.close()
