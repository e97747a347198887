"""Which scripts are taken, and which options their lines give."""

from __future__ import annotations

import pytest

from eslurm.compat.errors import OptionError
from eslurm.compat.script import check_script, read_directives, split_words
from eslurm.core.model.request_limits import SCRIPT_BYTES_MAX


def options(script: str) -> list[tuple[str, ...]]:
    return [directive.words for directive in read_directives(script.encode())]


def test_options_stand_before_the_first_command() -> None:
    script = "#!/bin/sh\n# a note\n\n#SBATCH -n 4\n   \n#SBATCH --time 5 # five\necho\n#SBATCH -n 8\n"
    assert options(script) == [("-n", "4"), ("--time", "5")]


def test_quotes_backslashes_and_comments() -> None:
    assert split_words("""--wrap "a \\"b\\" c" 'd e' f\\ g '' x#y #rest""", "script") == (
        "--wrap",
        'a "b" c',
        "d e",
        "f g",
        "",
        "x#y",
    )


def test_own_lines_win_over_slurms() -> None:
    found = read_directives(b"#!/bin/sh\n#ESLURM -n 8\n#SBATCH -n 4\n")
    assert [(directive.mark, directive.line) for directive in found] == [("#SBATCH", 3), ("#ESLURM", 2)]


@pytest.mark.parametrize("line", ["#SBATCHED -n 4", "# SBATCH -n 4", "##SBATCH -n 4", "#sbatch -n 4"])
def test_near_misses_are_comments(line: str) -> None:
    assert options(f"#!/bin/sh\n{line}\n") == []


def test_an_open_quote_names_the_line() -> None:
    with pytest.raises(OptionError, match=r"#SBATCH \(line 2\).*open quote"):
        read_directives(b"#!/bin/sh\n#SBATCH -J 'x\n")


def test_a_script_without_a_last_newline() -> None:
    assert options("#!/bin/sh\n#SBATCH -H") == [("-H",)]


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (b"", "is empty"),
        (b" \n\t\n", "is empty"),
        (b"echo hello\n", "does not begin with #!"),
        (b"#!\necho\n", "does not begin with #!"),
        (b"#!/bin/sh\n\0", "is binary"),
        (b"\x7fELF\0\0", "is binary"),
        (b"#!/bin/sh\r\necho\r\n", "DOS line ends"),
        (b"#!/bin/sh\n" + b"#" * SCRIPT_BYTES_MAX, "longer than"),
    ],
)
def test_what_is_no_script(script: bytes, why: str) -> None:
    with pytest.raises(OptionError) as caught:
        check_script(script, "run.sh")
    assert why in str(caught.value)
    assert str(caught.value).startswith("script: 'run.sh' ")


def test_the_longest_script_is_taken() -> None:
    script = b"#!/bin/sh\n".ljust(SCRIPT_BYTES_MAX, b"#")
    check_script(script, "run.sh")
