"""Texts by which users ask for chunks, devices, licences and features."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eslurm.compat.constraints import parse_constraint
from eslurm.compat.errors import OptionError
from eslurm.compat.gres import parse_gpus, parse_gres
from eslurm.compat.licenses import parse_licenses
from eslurm.compat.rset import parse_rset, settle


def read(text: str) -> tuple[list[tuple[object, ...]], str, bool, str]:
    parsed = parse_rset(text)
    chunks: list[tuple[object, ...]] = [
        (chunk.count, chunk.cores, chunk.memory_mib, tuple(chunk.resources), chunk.constraint)
        for chunk in parsed.chunks
    ]
    return chunks, parsed.place, parsed.exclusive, parsed.constraint


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # The three of the paper's Example 2.
        ("rset=8:ncpus=2:mem=10g:rack=8", ([(8, 2, 10240, (), "rack=8")], "free", False, "")),
        (
            "rset=ncpus=27:vmem=20g:arch=linux+4:acc=fpga",
            ([(1, 27, 0, (), "vmem=20g&arch=linux"), (4, 1, 0, (), "acc=fpga")], "free", False, ""),
        ),
        (
            "rset=5:ncpus=16:mem=12g:net=IB+ncpus=1:mem=4g,sw=g03,place=scatter:excl",
            ([(5, 16, 12288, (), "net=IB"), (1, 1, 4096, (), "")], "scatter", True, "sw=g03"),
        ),
        (
            "8:ncpus=2:mem=10g+1:ncpus=16:gpus=2,place=scatter:excl",
            ([(8, 2, 10240, (), ""), (1, 16, 0, (("gpu", 2),), "")], "scatter", True, ""),
        ),
        ("4", ([(4, 1, 0, (), "")], "free", False, "")),
        ("ngpus=1:gpu_type=a100", ([(1, 1, 0, (("gpu", 1),), "gpu:a100")], "free", False, "")),
        ("ncpus=1:big=true:old=False,place=pack:shared", ([(1, 1, 0, (), "big&!old")], "pack", False, "")),
        ("host=n3,matlab=2,x=y", ([(1, 1, 0, (), "host=n3")], "free", False, "matlab=2&x=y")),
    ],
)
def test_requests_of_chunks(text: str, expected: object) -> None:
    assert read(text) == expected


@pytest.mark.parametrize(
    ("text", "column", "why"),
    [
        ("", 1, "a chunk is missing"),
        ("2:ncpus=1+", 11, "a chunk is missing"),
        ("0:ncpus=1", 1, "'0' is not a number of chunks"),
        ("2x:ncpus=1", 1, "'2x' is not a number of chunks"),
        ("2:ncpus=x", 9, "'x' is not a number from 1 on"),
        ("2:ncpus=0", 9, "'0' is not a number from 1 on"),
        ("2:mem=lots", 7, "'lots' is not an amount of memory"),
        ("2:ncpus=1:ncpus=2", 11, "'ncpus' is given twice"),
        ("2:ncpus", 3, "'ncpus' is not WORD=VALUE"),
        ("ncpus=1:a=b%", 12, "'%' cannot stand here"),
        ("rset=ncpus=1:a=b%", 17, "'%' cannot stand here"),
        ("ncpus=1,place=near", 15, "'near' is no placement"),
        ("ncpus=1,place=pack:near", 20, "'near' is no placement"),
        ("ncpus=1,mem=4g", 9, "'mem' belongs to a chunk"),
        ("ncpus=1,", 9, "an empty value is not WORD=VALUE"),
        ("ompthreads=4", 1, "'ompthreads' is not counted here"),
        ("+".join(["ncpus=1"] * 9), 1, "more than 8 kinds"),
    ],
)
def test_a_wrong_request_names_the_column(text: str, column: int, why: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_rset(text)
    assert f"column {column}: " in caught.value.why
    assert why in caught.value.why
    assert caught.value.way_out


@given(st.text("0123456789:=+,ncpusmegalotrxf. ", max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parsed = parse_rset(text)
    except OptionError:
        return
    assert all(chunk.count > 0 and chunk.cores > 0 for chunk in parsed.chunks)


def test_words_find_their_meaning_in_the_configuration() -> None:
    assert settle("vmem=20g&arch=linux", {"vmem"}) == ((("vmem", 20480),), "arch=linux")
    assert settle("rack=8", {"vmem"}) == ((), "rack=8")
    assert settle("vmem=2&(a|b)", {"vmem"}) == ((), "vmem=2&(a|b)")
    assert settle("", {"vmem"}) == ((), "")
    with pytest.raises(OptionError, match="'vmem=lots' is not an amount"):
        settle("vmem=lots", {"vmem"})
    with pytest.raises(OptionError, match="is not an amount"):
        settle("vmem=0", {"vmem"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu", (("gpu", "", 1),)),
        ("gpu:2", (("gpu", "", 2),)),
        ("gpu:a100", (("gpu", "a100", 1),)),
        ("gres/gpu:a100:4,fpga", (("gpu", "a100", 4), ("fpga", "", 1))),
    ],
)
def test_resources_of_nodes(text: str, expected: object) -> None:
    assert parse_gres(text) == expected


@pytest.mark.parametrize(
    "text", ["", "gpu:", "gpu:0", "gpu:a:b:1", "gpu:-1", "a b", "gpu:x:", ":2", "gpu:2:2:2"]
)
def test_wrong_resources_of_nodes(text: str) -> None:
    with pytest.raises(OptionError, match=r"column 1\): write NAME\[:TYPE\]\[:N\]"):
        parse_gres(text)


def test_the_second_entry_has_its_column() -> None:
    with pytest.raises(OptionError, match=r"at 'gpu:' \(column 6\)"):
        parse_gres("fpga,gpu:")
    with pytest.raises(OptionError, match="names gpu twice"):
        parse_gres("gpu:a100:1,gpu:v100:1")


def test_numbers_of_gpus() -> None:
    assert parse_gpus("8") == ("", 8)
    assert parse_gpus("a100:8") == ("a100", 8)
    for text in ("", "0", "x", "a100:", ":2", "a b:2"):
        with pytest.raises(OptionError, match="is not a number of GPUs"):
            parse_gpus(text)


def test_licences() -> None:
    assert parse_licenses("matlab:2,ansys") == (("matlab", 2), ("ansys", 1))
    for text, why in (
        ("", "is not understood at an empty value"),
        ("matlab:0", "is not understood"),
        ("a|b", "one or another licence"),
        ("a@server", "names a licence server"),
        ("a,a", "names a twice .column 3."),
    ):
        with pytest.raises(OptionError, match=why):
            parse_licenses(text)


def test_constraints() -> None:
    assert parse_constraint(" a&b ") == "a&b"
    with pytest.raises(OptionError, match=r"-C: 'a&&b' a feature is missing \(column 3\): write e.g."):
        parse_constraint("a&&b", "-C")
