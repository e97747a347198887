"""Options that are told to people ask for what they were written from, as the commands and the controller read them."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eslurm.compat.gres import parse_gpus, parse_gres, typed
from eslurm.compat.licenses import parse_licenses
from eslurm.compat.rset import parse_rset, settle
from eslurm.core.model.features import terms
from eslurm.core.model.option_text import (
    clock,
    constraint_option,
    devices_option,
    items_words,
    rset_option,
    type_in,
    wide_option,
)
from eslurm.core.model.request import Chunk, Request
from tests.support.profiles import draws

CHUNKS = st.builds(
    lambda count, cores, memory, gpus, fpgas, words: Chunk(
        count,
        cores,
        memory,
        # A chunk that names what nodes must not have counts nothing of the site's own.
        (*((("gpu", gpus),) if gpus else ()), *((("fpga", fpgas),) if fpgas and "!old" not in words else ())),
        "&".join(words),
    ),
    st.integers(1, 999),
    st.integers(1, 64),
    st.sampled_from([0, 1, 1000, 2048]),
    st.integers(0, 8),
    st.integers(0, 2),
    st.lists(st.sampled_from(["gpu:a100", "ib", "!old", "rack=1"]), unique=True),
)
REQUESTS = st.builds(
    lambda chunks, place, exclusive, words: Request(
        tasks=sum(chunk.count for chunk in chunks),
        cpus_per_task=chunks[0].cores,
        chunks=tuple(chunks),
        place=place,
        exclusive=exclusive,
        constraint="&".join(words),
    ),
    st.lists(CHUNKS, min_size=1, max_size=3),
    st.sampled_from(["free", "pack", "scatter"]),
    st.booleans(),
    st.lists(st.sampled_from(["gpu:v100", "ib", "!old", "rack=2"]), unique=True),
)


@settings(max_examples=draws(100), deadline=None)
@given(REQUESTS)
def test_chunks_are_read_back(request: Request) -> None:
    name, text = shlex.split(rset_option(request))
    assert name == "--rset"
    parsed = parse_rset(text)
    chunks = []
    for chunk in parsed.chunks:
        # The words that name a configured resource become amounts in the controller.
        amounts, constraint = settle(chunk.constraint, {"fpga"})
        resources = (*chunk.resources, *amounts)
        chunks.append(Chunk(chunk.count, chunk.cores, chunk.memory_mib, resources, constraint))
    for had, found in zip(request.chunks, chunks, strict=True):
        assert (found.count, found.cores, found.memory_mib, found.resources) == (
            had.count,
            had.cores,
            had.memory_mib,
            had.resources,
        )
        assert set(terms(found.constraint)) == set(terms(had.constraint))
    assert (parsed.place, parsed.exclusive) == (request.place, request.exclusive)
    assert parsed.constraint == request.constraint


@pytest.mark.parametrize("constraint", ["a|b", "!(a&b)", "!rack=1", "x:y", "mem=3", "ib=true"])
def test_what_no_chunk_can_say_is_not_written(constraint: str) -> None:
    assert rset_option(Request(chunks=(Chunk(constraint=constraint),))) == ""


def test_expressions_stay_where_they_can_be_said() -> None:
    request = Request(chunks=(Chunk(2),), constraint="(a|b)&ib")
    assert rset_option(request) == "--rset '2:ncpus=1,ib=true'"


def test_devices_are_read_back() -> None:
    by_node = devices_option(Request(per_node=(("gpu", 2),), constraint="ib&gpu:a100"))
    assert by_node == "--gpus-per-node a100:2" and parse_gpus(by_node.split()[1]) == ("a100", 2)
    both = devices_option(Request(per_node=(("gpu", 2), ("fpga", 1)), constraint="gpu:a100"))
    assert parse_gres(both.split()[1]) == (("gpu", "a100", 2), ("fpga", "", 1))
    by_task = Request(per_node=(("fpga", 1),), per_task=(("gpu", 1),))
    assert devices_option(by_task) == "--gres fpga:1 --gpus-per-task 1"
    assert devices_option(Request()) == ""
    wide = wide_option((("matlab", 2), ("ansys", 1)))
    assert parse_licenses(wide.split()[1]) == (("matlab", 2), ("ansys", 1))


def test_terms_and_types() -> None:
    assert terms("a&(b|c),!d") == ["a", "(b|c)", "!d"]
    assert terms("a|b&c") == ["a|b&c"] and terms("") == []
    assert terms(" (a & !(b|c)) ") == ["a", "!(b|c)"] and terms("(a|b)") == ["a|b"] and terms("a&") == ["a&"]
    assert terms("(a|b)|(c&d)&!!e") == ["(a|b)|(c&d)&!!e"]
    assert type_in("ib&gpu:a100", "gpu") == "a100" == type_in(typed("gpu", "a100"), "gpu")
    assert type_in("gpu:a100|gpu:v100", "gpu") == type_in("ib", "gpu") == type_in("!gpu:x", "gpu") == ""
    assert constraint_option(["a", "(b|c)"]) == "--constraint 'a&(b|c)'"
    assert constraint_option([]) == "without --constraint"


def test_numbers_in_words() -> None:
    assert (items_words(1, "gpu"), items_words(2, "gpu"), items_words(2, "fpga")) == (
        "1 GPU",
        "2 GPUs",
        "2 fpga",
    )
    assert (clock(4 * 3600), clock(36 * 3600 + 61)) == ("4:00:00", "1-12:01:01")
