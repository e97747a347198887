"""PMI against a naive model, and against peers that say anything."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from escli.user.pmi.pmi1 import LINE_BYTES_MAX
from escli.user.pmi.program import MpiProgram
from escli.user.pmi.space import process_mapping
from eslurm.compat.pmi2_messages import parse, take_message
from tests.kits.pmi import INIT1, INIT2, asked, get1, line, message, program, put1, session1, session2

SESSIONS = st.sampled_from([session1(0), session2(0)])
SERVERS = [
    "node-put",
    "node-fence",
    "node-get",
    "rank-began",
    "rank-finalized",
    "rank-aborted",
    "node-failed",
]
_KEYS = st.sampled_from(["a", "b", "c"])


def answers(pieces: list[bytes]) -> bytes:
    return asked(program((0,)), 0, *pieces).get(0, b"")


@given(SESSIONS, st.lists(st.integers(0, 900), max_size=8))
def test_it_does_not_matter_where_the_bytes_are_cut(said: bytes, cuts: list[int]) -> None:
    ends = sorted({0, len(said), *(min(cut, len(said)) for cut in cuts)})
    pieces = [said[start:end] for start, end in pairwise(ends)]
    assert answers(pieces) == answers([said]) != b""


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 3)), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 4), st.sampled_from("pgf"), _KEYS, st.integers(0, 9)), max_size=40),
)
def test_keys_and_fences_are_those_of_a_naive_model(
    ranks: list[tuple[bool, int]], acts: list[tuple[int, str, str, int]]
) -> None:
    made = program([node for _, node in ranks])
    for rank, (is_first, _) in enumerate(ranks):
        asked(made, rank, INIT1 if is_first else INIT2)
    known: dict[str, str] = {}
    inside: set[int] = set()
    for rank, act, key, value in acts:
        if rank >= len(ranks) or rank in inside:
            continue
        is_first = ranks[rank][0]
        text = str(value)
        if act == "p":
            known[key] = text
            said = put1(key, text) if is_first else message("kvs-put", key=key, value=text)
            assert list(asked(made, rank, said)) == [rank]
        elif act == "g":
            heard = asked(made, rank, get1(key) if is_first else message("kvs-get", key=key))
            assert list(heard) == [rank]
            assert found(heard[rank], is_first) == known.get(key)
        else:
            inside.add(rank)
            heard = asked(made, rank, line("cmd=barrier_in") if is_first else message("kvs-fence"))
            assert set(heard) == (inside if len(inside) == len(ranks) else set())
            if heard:
                inside.clear()
    assert made.failure is None


def found(heard: bytes, is_first: bool) -> str | None:
    if is_first:
        words = dict(word.split("=", 1) for word in heard.decode().split())
        return words["value"] if words["rc"] == "0" else None
    body = take_message(bytearray(heard))
    assert body is not None
    value = parse(body).get(b"value")
    return None if value is None else value.decode()


@given(
    st.lists(
        st.tuples(
            st.integers(0, 1),
            st.binary(max_size=80)
            | SESSIONS
            | st.text(max_size=5).map(lambda text: INIT2 + message("abort", msg=text))
            | st.tuples(st.sampled_from(SERVERS), st.text(max_size=3)).map(
                lambda said: INIT2 + message(said[0], of=said[1], data=said[1], at=said[1])
            )
            | st.sampled_from([INIT1, INIT2, b"     0", b"mcmd=spawn\n", b"=", b"cmd=abort\n", b";", b"\n"]),
        ),
        max_size=12,
    )
)
@example([(0, INIT2), (0, b"     9a=;;;;;;;")])
@example([(0, INIT1), (0, b"cmd=put kvsname=7.0 key=\xff value=\xfe\n")])
@example([(0, b"\x00" * 70_000)])
@example([(0, INIT2), (0, message("info-getnodeattr", key="a", wait="TRUE") * 2)])
def test_no_rank_can_say_anything_that_raises_or_is_kept(said: list[tuple[int, bytes]]) -> None:
    made = program((0, 1))
    for rank, data in said:
        had_failed = made.failure is not None
        heard = asked(made, rank, data)
        assert not (had_failed and heard)
        if made.failure is None:
            assert all(held(made, one) < LINE_BYTES_MAX + 6 for one in (0, 1))
        else:
            assert "MPI rank" in made.failure.text and made.failure.text.isprintable()


def held(made: MpiProgram, rank: int) -> int:
    return len(made._ranks[rank].buffer)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30))
def test_the_mapping_says_each_ranks_node(nodes: list[int]) -> None:
    blocks = eval(process_mapping(nodes).decode().replace("(vector,", "[").removesuffix(")") + "]")
    said = [first + at for first, count, ranks in blocks for at in range(count) for _ in range(ranks)]
    assert said == nodes
