"""The variables that the tasks of a node get from its PMIx server, and what the server knows of the program."""

from __future__ import annotations

import os
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from escli.user.pmi.program import MpiProgram
from escli.user.pmi.space import process_mapping
from eslurm.core.model.step_input import StepInput
from eslurm.core.model.step_key import StepKey
from eslurm.ports.step_runner import StepSpec
from esnoded.task import pmix, pmix_server
from esnoded.task.pmi_client import PmiClient, decode_variables, encode_variables, get_text, put_text
from esnoded.task.pmix_library import PmixError
from esnoded.task.pmix_server import nodes_of
from esnoded.task.streams import shapes_of

BIG = {"PMIX_SERVER_URI": "x" * 1_500, "PMIX_HOSTNAME": "n1", "PMIX_NAMESPACE": "7.0"}


@contextmanager
def command(ranks: int, program: MpiProgram | None = None) -> Iterator[list[socket.socket]]:
    """The step's command for so many ranks of one node, each with a socket."""
    program = program or MpiProgram("7.0", [0] * ranks, ("n1",))
    pairs = [socket.socketpair() for _ in range(ranks)]
    lock = threading.Lock()

    def serve(rank: int) -> None:
        while data := pairs[rank][0].recv(65_536):
            with lock:
                program.take(rank, data)
                for other, said in program.take_answers():
                    pairs[other][0].sendall(said)

    threads = [threading.Thread(target=serve, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    try:
        yield [theirs for _, theirs in pairs]
    finally:
        for _, theirs in pairs:
            theirs.close()
        for thread in threads:
            thread.join()
        for own, _ in pairs:
            own.close()


def spec() -> StepSpec:
    return StepSpec(StepKey(7, 1, 0, 3), "n1", 1, 1, ("a",), {}, "/", tasks=2, first_task=4, mpi="pmix")


def test_a_text_of_any_length_is_waited_for_by_the_others() -> None:
    with command(2) as (first, second):
        found: list[dict[str, str]] = []
        waits = threading.Thread(
            target=lambda: found.append(
                pmix.join_pmix(spec(), 1, second.fileno(), {"A": "b", "PMIX_RANK": "9"})
            )
        )
        waits.start()
        put_text(PmiClient(first), pmix.VARIABLES, encode_variables(BIG))
        waits.join()
    assert found == [{"A": "b", **BIG, "PMIX_RANK": "5"}]


def test_a_command_that_hangs_up_is_told_by_the_node() -> None:
    own, theirs = socket.socketpair()
    own.close()
    with theirs, pytest.raises(pmix.PmixFailed, match="no PMIx server on node n1: "):
        pmix.join_pmix(spec(), 1, theirs.fileno(), {})


def test_a_refusal_and_nonsense_are_errors() -> None:
    with command(1) as (only,):
        client = PmiClient(only)
        with pytest.raises(OSError, match="refuses spawn: spawn is not supported"):
            client.ask("spawn")
    own, theirs = socket.socketpair()
    with own, theirs:
        own.sendall(b"cmd=response_to_init\nnonsense")
        client = PmiClient(theirs)
        with pytest.raises(OSError, match="no length of a message"):
            client.ask("kvs-fence")


def test_variables_are_read_as_they_were_written() -> None:
    assert decode_variables(encode_variables(BIG)) == BIG
    assert decode_variables(b"") == {}


def test_an_empty_text() -> None:
    with command(1) as (only,):
        client = PmiClient(only)
        put_text(client, "none", b"")
        assert get_text(client, "none") == b""


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (
            OSError("libpmix.so.2: cannot open shared object file"),
            "libpmix.so.2 is missing: install libpmix2",
        ),
        (
            PmixError("PMIx_server_init of libpmix.so.2 ended with -1"),
            "PMIx_server_init of libpmix.so.2 ended with -1",
        ),
    ],
)
def test_a_server_that_cannot_start_ends_the_step_with_the_reason(
    error: Exception, why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*_words: object) -> None:
        raise error

    monkeypatch.setattr(pmix_server, "Server", fail)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(signal, "signal", lambda *_words: None)
    program = MpiProgram("7.0", [0], ("n1",))
    read_fd, write_fd = os.pipe()
    with command(1, program) as (only,):
        assert pmix_server.main([str(os.dup(only.fileno())), str(write_fd), "0", "1", "n1"]) == 1
    assert program.failure is not None
    assert program.failure.text == f"the node of MPI rank 0 does not serve PMIx: {why}"
    assert list(tmp_path.iterdir()) == []
    os.close(read_fd)


@pytest.mark.parametrize("nodes", [[0], [0, 0, 1, 1, 2], [0, 1, 0, 1], [0] * 5 + [1, 2, 2]])
def test_the_nodes_of_a_mapping(nodes: list[int]) -> None:
    assert nodes_of(process_mapping(nodes)) == nodes


@pytest.mark.parametrize(
    ("given", "mpi", "shapes"),
    [
        (None, "", ("pp",)),
        (StepInput(path="in"), "pmi", ("pps",)),
        (StepInput(), "pmi", ("pps", "ppps")),
        (StepInput(0, terminal=(1, 1)), "pmi", ("pps", "ss")),
        (None, "pmix", ("spp",)),
        (StepInput(), "pmix", ("spp", "sppp")),
        (StepInput(0, terminal=(1, 1)), "pmix", ("spp", "ss")),
    ],
)
def test_what_begins_with_a_socket_is_started_in_a_process_of_its_own(
    given: StepInput | None, mpi: str, shapes: tuple[str, ...]
) -> None:
    assert shapes_of(given, mpi) == shapes
