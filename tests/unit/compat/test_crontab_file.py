"""The text of a crontab: entries with their options and settings; errors name line and column."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eslurm.compat.crontab_file import NICKNAMES, read_crontab
from eslurm.compat.errors import OptionError

TEXT = """# a comment
MAILTO=ada
DIR = "/srv/a b"
#SCRON --time=10 -p short
#SCRON -J 'night run'

*/15 8-17 * * mon-fri  ./report.sh --all # not a comment
  @hourly\techo 100%
#DISABLED: 0 0 * * * gone
#SCRONX is a comment
DIR=
0 0 1 1 * x=1 y
"""


def test_entries() -> None:
    first, second, third = read_crontab(TEXT)
    assert (first.first, first.line) == (4, 7)
    assert first.schedule == "*/15 8-17 * * 1-5"
    assert first.command == "./report.sh --all # not a comment"
    assert [one.words for one in first.directives] == [("--time=10", "-p", "short"), ("-J", "night run")]
    assert first.settings == {"MAILTO": "ada", "DIR": "/srv/a b"}
    assert (second.first, second.line, second.schedule, second.command) == (8, 8, "0 * * * *", "echo 100%")
    assert not second.directives
    assert (third.line, third.command, third.settings["DIR"]) == (12, "x=1 y", "")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("\n* * * * x y", "line 2: '* * * * x y' does not parse at column 9: 'x' is no day of the week"),
        ("  60 * * * * y", "line 1: '  60 * * * * y' does not parse at column 3: '60' is no minute"),
        ("* * *", "does not parse at column 6: a cron string has 5 fields, here are 3"),
        ("0 0 30 2 * y", "this never matches"),
        ("* * * * *", "line 1: '* * * * *' has no command"),
        ("@daily", "line 1: '@daily' has no command"),
        ("@reboot x", "line 1: '@reboot' is no time (column 1): use one of"),
        (" @dayly x", "line 1: '@dayly' is no time (column 2): did you mean @daily?"),
        ("#SCRON -t 5", "line 1 has options for no line below it"),
        ("#SCRON -t 5\nA=1\n* * * * * x", "line 2: 'A' stands between options and their line"),
        ("#SCRON 'x\n* * * * * x", "line 1"),
        ("* * * * * \0", "contains a NUL character"),
    ],
)
def test_errors_name_line_and_column(text: str, error: str) -> None:
    with pytest.raises(OptionError) as raised:
        read_crontab(text)
    assert error in str(raised.value)


def test_nicknames_are_times() -> None:
    for name in NICKNAMES:
        [entry] = read_crontab(f"{name} true")
        assert len(entry.schedule.split()) == 5


@given(st.text(alphabet="*/0123456789 ,-@#SCRONabdegilmntuwy=\t\n'\"L", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        entries = read_crontab(text)
    except OptionError:
        return
    rows = text.split("\n")
    assert all(rows[one.line - 1].rstrip().endswith(one.command) for one in entries)
