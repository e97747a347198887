"""Which names a membership's host list has: searched, never expanded."""

from __future__ import annotations

import pytest

from eslurm.core.model.hostlist import fold, holds


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        (
            "cn[1-4]",
            ["cn1", "cn4"],
            ["cn0", "cn5", "cn01", "cn", "cn1x", "xcn1", "cn[1-4]x", "cn-1", "cn\u00b2"],
        ),
        ("cn[0001-0004,0007],login1", ["cn0001", "cn0007", "login1"], ["cn1", "cn0005", "cn00001", "login"]),
        ("a[1-2]b,c", ["a1b", "a2b", "c"], ["a1", "a3b", "b", ""]),
        ("cn[0-99999999999999999999]", [], ["cn1"]),
        ("cn[1-2", [], ["cn1", "cn["]),
        ("", [], ["", "cn1"]),
        (",", [], [""]),
        ("[" * 10_000, [], ["cn1"]),
        ("cn[1-2]", [], ["cn" + "9" * 10_000]),
    ],
)
def test_names_of_a_list(text: str, inside: list[str], outside: list[str]) -> None:
    assert [name for name in inside if not holds(text, name)] == []
    assert [name for name in outside if holds(text, name)] == []


def test_what_was_folded_is_found() -> None:
    names = [f"cn{n:03d}" for n in range(0, 200, 3)] + ["login1", "x9y", "12"]
    assert all(holds(fold(names), name) for name in names)
