"""`esctl audit`: a table in which nothing moves the cursor, or the lines as they are."""

from __future__ import annotations

import json

from escli.admin.audit import table


def test_a_line_of_each_kind_and_nothing_that_moves_the_cursor() -> None:
    lines = [
        {
            "time": "2026-01-02T03:04:05.000006Z",
            "user": "ada\x1b[2J",
            "uid": 7,
            "identified": "token",
            "token": "ab12",
            "origin": "ipv4:10.0.0.1:5",
            "method": "Cancel",
            "what": "jobs=1\n",
            "result": "refused",
            "reason": "\x9bdenied",
        },
        {"time": "2026-01-02T03:04:05Z", "uid": 9, "identified": "agent", "result": "ok", "method": "Hold"},
        {"time": "never", "result": "lost", "count": 3},
    ]
    text = table(map(json.dumps, lines))
    head, first, second, third = text.splitlines()
    assert head.split() == ["TIME", "USER", "FROM", "METHOD", "RESULT", "WHAT"]
    assert "ada\\x1b[2J" in first and "ipv4:10.0.0.1:5 (token ab12)" in first
    assert "jobs=1\\n: \\x9bdenied" in first
    assert "uid 9" in second and "agent" in second
    assert third.split() == ["never", "-", "-", "-", "lost", "3"]
    assert text.replace("\n", "").isprintable()
