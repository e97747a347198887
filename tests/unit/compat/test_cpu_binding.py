"""Words of `--cpu-bind`, and the variables and the line that a task has of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eslurm.compat.cpu_binding import (
    CPUS_MAX,
    ENTRIES_MAX,
    TEXT_CHARS_MAX,
    Binding,
    binding_line,
    binding_variables,
    parse_binding,
    wanted_binding,
)
from eslurm.compat.environment import describes_a_job
from eslurm.compat.errors import OptionError


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", Binding()),
        ("none", Binding("none")),
        ("no", Binding("none")),
        ("v,cores", Binding("cores", is_verbose=True)),
        ("Cores,verbose", Binding("cores", is_verbose=True)),
        ("verbose,quiet", Binding()),
        ("rank", Binding("rank")),
        ("quiet,map_cpu:1,0", Binding("map_cpu", (1, 0), "1,0")),
        ("map_cpu:0x10,3*2", Binding("map_cpu", (16, 3, 3), "0x10,3*2")),
        ("verbose,mask_cpu:0x3,C*2", Binding("mask_cpu", (3, 12, 12), "0x3,C*2", is_verbose=True)),
    ],
)
def test_words(text: str, found: Binding) -> None:
    made = parse_binding(text)
    assert [getattr(made, name) for name in Binding.__slots__] == [
        getattr(found, name) for name in Binding.__slots__
    ]


@pytest.mark.parametrize(
    "text",
    [
        "cpus",
        "map_cpu",
        "map_cpu:",
        "map_cpu:0,",
        "map_cpu:-1",
        "map_cpu:1_0",
        "map_cpu:\u0661",
        "map_cpu:0*0",
        "map_cpu:0*",
        f"map_cpu:{CPUS_MAX}",
        f"map_cpu:0*{ENTRIES_MAX + 1}",
        "mask_cpu:0",
        "mask_cpu:0xg",
        f"mask_cpu:0x1{'0' * (CPUS_MAX // 4)}",
        "cores," * (TEXT_CHARS_MAX // 6) + "cores,",
        "ldoms,rank_ldom",
    ],
)
def test_what_is_no_binding_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r"^--cpu-bind: ") as raised:
        parse_binding(text)
    assert len(str(raised.value)) < 400


@given(st.text(alphabet="map_cpu:xvno,*019af-", max_size=40))
def test_any_text_is_a_binding_or_refused_in_one_line(text: str) -> None:
    try:
        found = parse_binding(text)
    except OptionError:
        return
    assert len(found.entries) <= ENTRIES_MAX and all(0 <= one < 1 << CPUS_MAX for one in found.entries)


def test_a_task_s_own_binding_is_no_wish_for_steps_in_it() -> None:
    own = binding_variables(Binding("cores"), lambda: "0x1,0x2")
    assert wanted_binding(own) == ""
    assert wanted_binding(own | {"SLURM_CPU_BIND": "rank"}) == "rank"
    assert wanted_binding({"SLURM_CPU_BIND": "cores"}) == "cores"
    assert all(describes_a_job(name) for name in own)


@pytest.mark.parametrize(
    ("asked", "value", "kind", "listed"),
    [
        ("none", "quiet,none", "none", ""),
        ("v,rank", "verbose,rank", "rank", ""),
        ("cores", "quiet,mask_cpu:0x1,0x2", "mask_cpu:", "0x1,0x2"),
        ("map_cpu:1,0", "quiet,map_cpu:1,0", "map_cpu:", "1,0"),
        ("mask_cpu:0x3", "quiet,mask_cpu:0x3", "mask_cpu:", "0x3"),
    ],
)
def test_the_variables_are_slurm_s_and_name_the_same_binding(
    asked: str, value: str, kind: str, listed: str
) -> None:
    found = binding_variables(parse_binding(asked), lambda: "0x1,0x2")
    assert found["SLURM_CPU_BIND"] == found["ESLURM_CPU_BIND"] == value
    assert (found["SLURM_CPU_BIND_TYPE"], found["SLURM_CPU_BIND_LIST"]) == (kind, listed)
    assert found["SLURM_CPU_BIND_VERBOSE"] == value.partition(",")[0]
    parse_binding(value)


def test_the_line_of_verbose() -> None:
    assert binding_line(parse_binding("v,cores"), "cn1", 0, 0, 1234, 1) == (
        "cpu-bind=MASK - cn1, task  0  0 [1234]: mask 0x1 set\n"
    )
    assert binding_line(parse_binding("v,none"), "cn1", 12, 3, 7, 255) == (
        "cpu-bind=NONE - cn1, task 12  3 [7]: mask 0xff\n"
    )
