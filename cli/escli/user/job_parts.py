"""Options of a job of several parts: `-N1 -p cluster : -N8 -p booster job.sh`, and `#SBATCH hetjob` lines (D-02).

Resources and partition belong to a part, all other options to the job: those may stand in any part, but only with one value.
A part of the command line overrides the script's part of the same number.
"""

from __future__ import annotations

import itertools

from escli.options import Parser, Words
from escli.user.draft_resources import WITHOUT_RSET
from eslurm.compat.errors import OptionError
from eslurm.core.model.values import parts_problem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eslurm.compat.script import Directive

OF_PART = frozenset(
    (
        *WITHOUT_RSET,
        "partition",
        "exclusive",
        "nodelist",
        "exclude",
        "constraint",
        "module",
        "licenses",
        "rset",
    )
)
_OF_SCRIPT = ("output", "error", "input", "open-mode")
"""The script runs in the first part: sbatch leaves these out silently in others."""
_INHERITED = ("exclude",)
"""Of a part, and of the later ones that do not give their own."""


def command_parts(given: Words, parser: Parser, where: str = "") -> list[Words]:
    """The command line's options of each part; a part with a script has it and its arguments as `rest`. Raises OptionError.

    A `:` begins a part in the place of the script, and behind the script where an option follows. `where` names the place of
    the words in errors.
    """
    parts = [given]
    while (at := _separator(parts[-1])) >= 0:
        _check_count(len(parts) + 1, ":")
        before = parts[-1].rest
        parts[-1].rest = before[:at]
        parts.append(parser.parse(before[at + 1 :], f"{where}part {len(parts)}: "))
    return parts


def _separator(words: Words) -> int:
    """The place of the `:` that begins the next part; -1: there is none."""
    rest = words.rest
    for at, word in enumerate(rest if not words.is_final else ()):
        if word == ":" and (at == 0 or (rest[at + 1 : at + 2] and rest[at + 1].startswith("-"))):
            return at
    return -1


def directives_by_part(directives: Sequence[Directive]) -> list[list[Directive]]:
    """The script's option lines of each part. Raises OptionError.

    A kind of line counts its own separators, or, without any, those of the other kind: a script for two sites may have
    both.
    """
    starts: dict[str, list[int]] = {}
    for one in directives:
        if one.begins_part:
            starts.setdefault(one.mark, []).append(one.line)
    count = 1 + max((len(lines) for lines in starts.values()), default=0)
    _check_count(count, "hetjob")
    parts: list[list[Directive]] = [[] for _ in range(count)]
    others = next(iter(starts.values()), [])
    for one in directives:
        if not one.begins_part:
            parts[sum(line < one.line for line in starts.get(one.mark, others))].append(one)
    return parts


def overlaid(
    script: Sequence[Words], command: Sequence[Words], excludes: Mapping[str, Sequence[str]]
) -> tuple[Words, list[Words]]:
    """The job's own options, and those of each part: the script's, overridden by the command line's. Raises OptionError."""
    job, of_script = _sorted_out(script, excludes)
    given, of_command = _sorted_out(command, excludes)
    _overlay(job, given, excludes)
    job.rest = given.rest
    count = max(len(of_script), len(of_command))
    parts = [*of_script, *[Words() for _ in range(count - len(of_script))]]
    for part, own in zip(parts, of_command, strict=False):
        _overlay(part, own, excludes)
    for before, part in itertools.pairwise(parts):
        for long in _INHERITED:
            if before.has(long) and not part.has(long):
                part.put(long, before.text(long), before.spelling(long))
    return job, parts


def _overlay(under: Words, over: Words, excludes: Mapping[str, Sequence[str]]) -> None:
    """Take all options of `over`; an option also takes back its opposite."""
    for long in over.names():
        under.drop(excludes.get(long, ()))
    under.overlay(over)


def _sorted_out(parts: Sequence[Words], excludes: Mapping[str, Sequence[str]]) -> tuple[Words, list[Words]]:
    """The options of the job, given in any part with one value, and those of each part."""
    job = Words()
    of_parts: list[Words] = []
    for number, part in enumerate(parts):
        own = Words()
        for long in part.names():
            text, spelling = part.text(long), part.spelling(long)
            if long in OF_PART:
                own.put(long, text, spelling)
                continue
            _check_job_wide(job, part, long, number, excludes)
            job.put(long, text, spelling)
        job.ignored += part.ignored
        job.rest = job.rest or part.rest
        of_parts.append(own)
    return job, of_parts


def _check_job_wide(
    job: Words, part: Words, long: str, number: int, excludes: Mapping[str, Sequence[str]]
) -> None:
    spelling, text = part.spelling(long), part.text(long)
    if number and long in _OF_SCRIPT:
        raise OptionError(
            spelling,
            text,
            "has no effect here, as the script runs in the first part",
            "give it before the first ':'",
        )
    for other in (long, *excludes.get(long, ())):
        if job.has(other) and (other != long or job.text(long) != text):
            before = f"{job.spelling(other)} {job.text(other)}".rstrip()
            raise OptionError(
                spelling, text or None, f"differs from {before}, but is one for all parts", "give it once"
            )


def _check_count(count: int, word: str) -> None:
    problem = parts_problem(count)
    if problem:
        why, _, way_out = problem.partition(", ")
        raise OptionError("parts", word, f"makes it {why}", way_out)
