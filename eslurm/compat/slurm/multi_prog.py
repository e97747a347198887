"""The file of srun's `--multi-prog`: which task runs which program, as one program for all tasks."""

from __future__ import annotations

import shlex

from eslurm.compat.errors import whole_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

RANKS_MAX = 100_000
_NO_PROGRAM = '*) echo "srun: error: task $SLURM_PROCID has no program" >&2; exit 1;;'


class BadLine(ValueError):
    """A line that cannot be read; `str()` begins with its number."""


def script_of(text: str) -> str:
    """A shell's script that becomes the program of the task that runs it. Raises `BadLine`.

    A line has tasks (`0,2-4`, or `*` for all others) and a command, in which `%t` stands for the number of the task and `%o`
    for its place in that list. `#` begins a comment, a backslash at the end of a line joins the next one.
    """
    entries: list[str] = []
    others = _NO_PROGRAM
    seen: set[int] = set()
    for number, line in enumerate(text.replace("\\\n", " \r").split("\n"), 1):
        try:
            words = shlex.split(line.replace("\r", " "), comments=True)
        except ValueError as error:
            raise BadLine(f"line {number}: {error}") from None
        if not words:
            continue
        if len(words) == 1:
            raise BadLine(f"line {number}: tasks {words[0]} have no program")
        if words[0] == "*":
            others = f"*) exec {_command(words[1:], '')};;"
            continue
        ranks = _ranks(words[0], number)
        if twice := seen.intersection(ranks):
            raise BadLine(f"line {number}: task {min(twice)} has a program already")
        seen.update(ranks)
        if len(seen) > RANKS_MAX:
            raise BadLine(f"line {number}: more than {RANKS_MAX} tasks are named")
        entries += _entries(ranks, words[1:])
    return "\n".join(['case "$SLURM_PROCID" in', *entries, others, "esac"])


def _entries(ranks: Sequence[int], words: Sequence[str]) -> list[str]:
    if any("%o" in word for word in words):
        return [f"{rank}) exec {_command(words, str(at))};;" for at, rank in enumerate(ranks)]
    return [f"{'|'.join(map(str, ranks))}) exec {_command(words, '')};;"]


def _command(words: Sequence[str], offset: str) -> str:
    quoted = [
        '"$SLURM_PROCID"'.join([shlex.quote(part) if part else "" for part in word.split("%t")])
        for word in [word.replace("%o", offset or "%o") for word in words]
    ]
    return " ".join([word or "''" for word in quoted])


def _ranks(text: str, number: int) -> list[int]:
    found: list[int] = []
    for item in text.split(","):
        first, dash, last = item.partition("-")
        low, high = whole_number(first, 6), whole_number(last if dash else first, 6)
        if not 0 <= low <= high or high - low >= RANKS_MAX:
            raise BadLine(f"line {number}: {text!r} are no tasks: use e.g. 0,2-4 or *")
        found += range(low, high + 1)
    return found
