"""The script that a file of `--multi-prog` becomes, run by a shell."""

from __future__ import annotations

import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eslurm.compat.slurm.multi_prog import BadLine, script_of


def says(script: str, rank: int) -> str:
    found = subprocess.run(
        ["/bin/sh", "-c", script],
        env={"SLURM_PROCID": str(rank), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    return (
        found.stdout.rstrip("\n") if not found.returncode else f"{found.returncode}: {found.stderr.strip()}"
    )


def test_each_task_runs_its_program() -> None:
    script = script_of(
        "# who does what\n"
        "0  echo leads\n"
        "2-3,7 echo task %t, place %o of 'the list' \\\n   and on\n"
        "\n"
        "5 sh -c 'echo $0 $((1+1)) %t' quoted\n"
        "* printf '%s|' \"a  b\" %t '' $HOME\n"
    )
    assert says(script, 0) == "leads"
    assert [says(script, rank) for rank in (2, 3, 7)] == [
        "task 2, place 0 of the list and on",
        "task 3, place 1 of the list and on",
        "task 7, place 2 of the list and on",
    ]
    assert says(script, 5) == "quoted 2 5"
    # Nothing of the file is expanded by the shell.
    assert says(script, 1) == "a  b|1||$HOME|"


def test_a_task_without_a_program_says_so() -> None:
    script = script_of("0 true\n1 no-such-program x\n")
    assert says(script, 0) == ""
    assert says(script, 1).startswith("127: ")
    assert says(script, 9) == "1: srun: error: task 9 has no program"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("0 a\n0-1 b", "line 2: task 0 has a program already"),
        ("0", "line 1: tasks 0 have no program"),
        ("x a", "line 1: 'x' are no tasks"),
        ("3-1 a", "line 1: '3-1' are no tasks"),
        ("0- a", "line 1: '0-' are no tasks"),
        ("-1 a", "line 1: '-1' are no tasks"),
        ("0-999999 a", "line 1: '0-999999' are no tasks"),
        ("0-60000 a\n60001-120001 b", "line 2: more than 100000 tasks"),
        ("\n0 'open", "line 2: No closing quotation"),
    ],
)
def test_lines_that_cannot_be_read_are_named(text: str, why: str) -> None:
    with pytest.raises(BadLine) as raised:
        script_of(text)
    assert str(raised.value).startswith(why)


@given(
    st.lists(
        st.text(st.characters(exclude_characters="\0\n\r%", codec="ascii"), min_size=1),
        min_size=1,
        max_size=3,
    )
)
def test_words_reach_the_program_as_they_are(words: list[str]) -> None:
    line = " ".join(map(shlex.quote, words))
    script = script_of(f"0 printf '[%s]' {line}\n")
    assert says(script, 0).rstrip("\n") == "".join(f"[{word}]" for word in words).rstrip("\n")
