"""PMI-1 and PMI-2 word by word, and what ends an MPI program."""

from __future__ import annotations

import pytest

from escli.user.pmi.exchange import NODE_BYTES_MAX, PART_BYTES
from escli.user.pmi.pmi1 import LINE_BYTES_MAX
from escli.user.pmi.program import MpiProgram
from escli.user.pmi.space import KEY_BYTES_MAX, KEYS_MAX, VALUE_BYTES_MAX, process_mapping
from tests.kits.pmi import INIT1, INIT2, NAME, asked, get1, line, message, program, put1


def started(nodes: tuple[int, ...] = (0, 0, 1), first: bytes = INIT1) -> MpiProgram:
    """A program whose ranks have said their first line."""
    made = program(nodes)
    for rank in range(len(nodes)):
        assert list(asked(made, rank, first)) == [rank]
    return made


def end(made: MpiProgram) -> tuple[str, int] | None:
    return None if made.failure is None else (made.failure.text, made.failure.exit_code)


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        ([0], "(0,1,1)"),
        ([0, 0, 1, 1], "(0,2,2)"),
        ([0, 0, 0, 1, 1, 2, 2], "(0,1,3),(1,2,2)"),
        ([0, 1, 2], "(0,3,1)"),
        ([0, 1, 0, 1], "(0,2,1),(0,2,1)"),
        ([0, 0, 1, 0], "(0,1,2),(1,1,1),(0,1,1)"),
    ],
)
def test_the_mapping_tells_which_ranks_share_a_node(nodes: list[int], text: str) -> None:
    assert process_mapping(nodes).decode() == f"(vector,{text})"


def test_a_rank_of_pmi_1_learns_what_it_asks() -> None:
    made = program()
    assert asked(made, 2, INIT1) == {2: b"cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"}
    for said, heard in (
        ("cmd=get_maxes", "cmd=maxes kvsname_max=256 keylen_max=256 vallen_max=1024"),
        ("cmd=get_appnum", "cmd=appnum appnum=0"),
        ("cmd=get_universe_size", "cmd=universe_size size=3"),
        ("cmd=get_my_kvsname", "cmd=my_kvsname kvsname=7.0"),
        (
            "cmd=get kvsname=7.0 key=PMI_process_mapping",
            "cmd=get_result rc=0 msg=success value=(vector,(0,1,2),(1,1,1))",
        ),
        ("cmd=get kvsname=7.0 key=none", "cmd=get_result rc=-1 msg=key_not_found value=unknown"),
        ("cmd=get kvsname=8.0 key=none", "cmd=get_result rc=-1 msg=kvsname_is_of_another_program"),
        ("cmd=put kvsname=8.0 key=a value=b", "cmd=put_result rc=-1 msg=kvsname_is_of_another_program"),
        (
            "cmd=publish_name service=a port=b",
            "cmd=publish_result rc=-1 msg=publishing_is_not_supported info=not_supported",
        ),
        ("mcmd=spawn\nnprocs=2\nexecname=x\nendcmd", "cmd=spawn_result rc=-1 errmsg=spawn_is_not_supported"),
    ):
        assert asked(made, 2, line(said)) == {2: line(heard)}
    assert end(made) is None


def test_keys_are_seen_by_all_and_a_barrier_is_passed_by_all() -> None:
    made = started()
    assert asked(made, 0, put1("card", "a=b#c")) == {0: b"cmd=put_result rc=0 msg=success\n"}
    assert asked(made, 0, line("cmd=barrier_in")) == {}
    assert asked(made, 2, line("cmd=barrier_in")) == {}
    assert asked(made, 1, line("cmd=barrier_in")) == dict.fromkeys((0, 2, 1), b"cmd=barrier_out\n")
    assert asked(made, 1, get1("card")) == {1: b"cmd=get_result rc=0 msg=success value=a=b#c\n"}


def test_a_rank_of_pmi_2_learns_what_it_asks() -> None:
    made = started(first=INIT2)
    first = asked(made, 1, message("fullinit", pmijobid=NAME, pmirank="1", threaded="TRUE", thrid="0x7f"))
    assert first[1][6:].startswith(
        b"cmd=fullinit-response;thrid=0x7f;rc=0;pmi-version=2;pmi-subversion=0;rank=1;size=3;"
    )
    for said, heard in (
        (message("job-getid"), {"rc": "0", "jobid": NAME}),
        (message("info-getjobattr", key="universeSize"), {"rc": "0", "found": "TRUE", "value": "3"}),
        (message("info-getjobattr", key="color"), {"rc": "0", "found": "FALSE"}),
        (message("kvs-put", key="k", value="a;b"), {"rc": "0"}),
        (message("kvs-get", jobid=NAME, key="k"), {"rc": "0", "found": "TRUE", "value": "a;b"}),
        (message("kvs-get", jobid="6.0", key="k"), {"rc": "0", "found": "FALSE"}),
        (message("info-getnodeattr", key="seg", wait="FALSE"), {"rc": "0", "found": "FALSE"}),
        (message("spawn", ncmds="1"), {"rc": "1", "errmsg": "spawn is not supported"}),
        (message("name-publish", name="a"), {"rc": "1", "errmsg": "name-publish is not supported"}),
    ):
        cmd = said[6:].partition(b";")[0][4:].decode()
        assert asked(made, 1, said) == {1: message(f"{cmd}-response", **heard)}


def test_an_attribute_is_waited_for_on_its_own_node() -> None:
    made = started(first=INIT2)
    for rank in (1, 2):
        assert asked(made, rank, message("info-getnodeattr", key="seg", wait="TRUE")) == {}
    found = message("info-getnodeattr-response", rc="0", found="TRUE", value="/dev/shm/x")
    assert asked(made, 0, message("info-putnodeattr", key="seg", value="/dev/shm/x")) == {
        1: found,
        0: message("info-putnodeattr-response", rc="0"),
    }


def test_ranks_of_both_protocols_meet_at_a_fence() -> None:
    made = program((0, 1))
    asked(made, 0, INIT1)
    asked(made, 1, INIT2)
    assert asked(made, 0, line("cmd=barrier_in")) == {}
    assert asked(made, 1, message("kvs-fence", thrid="5")) == {
        0: b"cmd=barrier_out\n",
        1: message("kvs-fence-response", thrid="5", rc="0"),
    }


def test_what_a_rank_may_put_is_bounded() -> None:
    made = started((0, 0))
    for key, value, why in (
        ("k" * (KEY_BYTES_MAX + 1), "v", "key_of_257_bytes"),
        ("k", "v" * (VALUE_BYTES_MAX + 1), "value_of_1025_bytes"),
        ("", "v", "key_of_0_bytes"),
    ):
        assert why in asked(made, 0, put1(key, value))[0].decode()
    for number in range(KEYS_MAX):
        made.take(0, put1(f"k{number}", "v"))
    assert all(b"rc=0" in data for _, data in made.take_answers())
    assert b"more_than_4096_keys" in asked(made, 0, put1("one-more", "v"))[0]
    assert b"rc=0" in asked(made, 0, put1("k0", "another"))[0]
    assert b"rc=0" in asked(made, 1, put1("of-another-rank", "v"))[1]
    assert end(made) is None


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ([b"GET / HTTP/1.1\r\n"], "a word without a name: b'GET'"),
        ([b"cmd=get_maxes\n"], "does not begin with PMI-1 or PMI-2"),
        ([b"cmd=init pmi_version=3\n"], "does not begin with PMI-1 or PMI-2"),
        ([b"x" * LINE_BYTES_MAX], "a line of more than 65536 bytes"),
        ([INIT1, b"cmd=dance\n"], "an unknown request: b'cmd=dance'"),
        ([INIT1, INIT1], "starts MPI a second time"),
        ([INIT1, line("cmd=finalize"), INIT1], "starts MPI a second time"),
        ([INIT1, line("cmd=barrier_in"), line("cmd=barrier_in")], "asks again before it was answered"),
        ([INIT1, b"x" * LINE_BYTES_MAX], "a line of more than 65536 bytes"),
        ([INIT2, b"cmd=fu"], "no length of a message: b'cmd=fu'"),
        ([INIT2, b"999999"], "a message of 999999 bytes: more than 65536"),
        ([INIT2, b"     3abc"], "a word without a name or an end: b'abc'"),
        ([INIT2, message("fullinit", pmirank="0")], "calls itself rank b'0'"),
        ([INIT2, message("dance")], "an unknown request: b'cmd=dance;'"),
    ],
)
def test_a_rank_that_speaks_nonsense_ends_the_program_by_its_name(said: list[bytes], why: str) -> None:
    made = program()
    heard = asked(made, 1, *said)
    failed = end(made)
    assert failed is not None and failed[0].startswith(f"MPI rank 1 {why}") and failed[1] == 1
    assert heard == {}
    assert asked(made, 0, INIT1) == {}


@pytest.mark.parametrize(("word", "code"), [("7", 7), ("0", 0), ("256", 0), ("-1", 1), ("x" * 99, 1)])
def test_abort_ends_the_program_with_its_exit_code(word: str, code: int) -> None:
    made = started()
    asked(made, 2, line(f"cmd=abort exitcode={word}"))
    assert end(made) == (f"MPI rank 2 has called abort ({code})", code)


def test_abort_of_pmi_2_tells_why() -> None:
    made = started(first=INIT2)
    asked(made, 0, message("abort", isworld="TRUE", msg="no more;\x1b memory"))
    assert end(made) == ("MPI rank 0 has called abort (1): no more;\\x1b memory", 1)


def test_a_rank_that_ends_too_early_ends_the_program() -> None:
    made = started()
    asked(made, 0, line("cmd=finalize"))
    made.ended(0)
    assert end(made) is None
    made.ended(1)
    assert end(made) == ("MPI rank 1 has ended without MPI_Finalize", 0)


def test_nothing_waits_for_a_rank_that_never_comes() -> None:
    made = program()
    asked(made, 0, INIT1)
    made.ended(2)
    # It was no MPI program, and no other rank needs it yet.
    assert end(made) is None
    asked(made, 0, line("cmd=barrier_in"))
    assert end(made) == ("MPI rank 0 waits for all ranks, and rank 2 has ended or finalized", 1)


# --- what the PMIx servers of nodes say -------------------------------------------------------------------


def serving() -> MpiProgram:
    """Ranks 0 and 2 are the first of their nodes, and speak for them."""
    made = MpiProgram(NAME, (0, 0, 1, 1), ("n1", "n2"))
    for rank in (0, 2):
        asked(made, rank, INIT2)
    return made


def test_servers_bring_their_data_to_a_fence_and_read_all_of_it() -> None:
    made = serving()
    ok = message("node-put-response", rc="0")
    assert asked(made, 0, message("node-put", data="a" * PART_BYTES)) == {0: ok}
    assert asked(made, 0, message("node-put", data="b;")) == {0: ok}
    assert asked(made, 0, message("node-fence")) == {}
    assert asked(made, 2, message("node-put", data="c")) == {2: ok}
    passed = message("node-fence-response", rc="0", size=str(PART_BYTES + 3))
    assert asked(made, 2, message("node-fence")) == {0: passed, 2: passed}
    assert asked(made, 2, message("node-get", at="0")) == {
        2: message("node-get-response", rc="0", data="a" * PART_BYTES)
    }
    assert asked(made, 2, message("node-get", at=str(PART_BYTES))) == {
        2: message("node-get-response", rc="0", data="b;c")
    }
    # The next fence begins with nothing.
    for rank in (0, 2):
        heard = asked(made, rank, message("node-fence"))
    assert heard[0] == message("node-fence-response", rc="0", size="0")


def test_what_a_server_brings_is_bounded() -> None:
    made = serving()
    for _ in range(NODE_BYTES_MAX // 60_000 + 1):
        asked(made, 0, message("node-put", data="x" * 60_000))
    assert end(made) == (f"MPI rank 0 brings more than {NODE_BYTES_MAX} bytes to a fence", 1)


@pytest.mark.parametrize("said", [message("node-put", data="x"), message("node-fence")])
def test_a_server_at_a_fence_waits(said: bytes) -> None:
    made = serving()
    asked(made, 0, message("node-fence"), said)
    failed = end(made)
    assert failed is not None and failed[0].endswith("to a fence at which it is")


def test_a_server_tells_of_the_ranks_of_its_node_alone() -> None:
    made = serving()
    assert asked(made, 0, message("rank-began", of="1")) == {0: message("rank-began-response", rc="0")}
    made.ended(0)
    assert end(made) is None
    made.ended(1)
    assert end(made) == ("MPI rank 1 has ended without MPI_Finalize", 0)

    made = serving()
    asked(made, 0, message("rank-began", of="1"), message("rank-finalized", of="1"))
    made.ended(1)
    assert end(made) is None
    asked(made, 0, message("rank-began", of="2"))
    assert end(made) == ("MPI rank 0 speaks of rank b'2', which is not on its node", 1)


def test_a_server_passes_an_abort_on_and_tells_of_its_own_trouble() -> None:
    made = serving()
    asked(made, 2, message("rank-aborted", of="3", code="7", msg="no more"))
    assert end(made) == ("MPI rank 3 has called abort (7): no more", 7)
    made = serving()
    asked(made, 2, message("node-failed", msg="libpmix.so.2 is missing"))
    assert end(made) == ("the node of MPI rank 2 does not serve PMIx: libpmix.so.2 is missing", 1)


def test_a_server_learns_the_names_of_nodes() -> None:
    heard = asked(serving(), 0, message("info-getjobattr", key="eslurm_node_names"))
    assert heard == {0: message("info-getjobattr-response", rc="0", found="TRUE", value="n1,n2")}
