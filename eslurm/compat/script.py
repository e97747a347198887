"""Batch scripts: acceptance, and the options of their `#SBATCH` and `#ESLURM` lines.

sbatch's rules: option lines stand before the first command; a `#` at the start of a word begins a comment; quotes and
backslashes work as in a shell. Where both kinds of line name an option, `#ESLURM` wins, so one script can serve two sites.
"""

from __future__ import annotations

from eslurm.compat.errors import OptionError
from eslurm.core.model.request_limits import SCRIPT_BYTES_MAX

_MARKS = ("#SBATCH", "#ESLURM")
_LINES_MAX = 10_000
_PART_LINES = (("hetjob",), ("packjob",))


class Directive:
    """The words of one option line. `line` counts from 1; `mark` is `#SBATCH`, `#ESLURM` or another system's."""

    __slots__ = ("line", "mark", "words")

    def __init__(self, line: int, mark: str, words: tuple[str, ...]) -> None:
        self.line = line
        self.mark = mark
        self.words = words

    @property
    def begins_part(self) -> bool:
        """Check whether the lines below are options of the job's next part."""
        return self.words in _PART_LINES


def check_script(script: bytes, name: str) -> None:
    """Raise OptionError unless this is a text of bounded size that begins with `#!` and an interpreter."""
    if len(script) > SCRIPT_BYTES_MAX:
        raise OptionError(
            "script",
            name,
            f"is longer than {SCRIPT_BYTES_MAX} bytes",
            "keep data in files and read them from the script",
        )
    if not script.strip():
        raise OptionError("script", name, "is empty", "write a script that begins with e.g. #!/bin/sh")
    if b"\0" in script:
        raise OptionError(
            "script",
            name,
            "is binary, not a text",
            f"start the program from a script, or use --wrap '{name}'",
        )
    first_line = script.partition(b"\n")[0]
    if not first_line.startswith(b"#!") or not first_line[2:].strip():
        raise OptionError(
            "script", name, "does not begin with #! and an interpreter", "make its first line e.g. #!/bin/sh"
        )
    if first_line.endswith(b"\r"):
        raise OptionError("script", name, "has DOS line ends", "convert it, e.g. sed -i 's/\\r$//' FILE")


def read_directives(script: bytes, marks: tuple[str, ...] = _MARKS) -> tuple[Directive, ...]:
    """The option lines, `#SBATCH` first so that `#ESLURM` wins, or those of other `marks` in the order of these.

    Raises OptionError for an open quote.
    """
    found: list[Directive] = []
    start = 0
    for number in range(1, _LINES_MAX + 1):
        end = script.find(b"\n", start)
        line = script[start:] if end < 0 else script[start:end]
        text = line.strip()
        if text and not text.startswith(b"#"):
            break
        directive = _directive(text.decode("utf-8", "surrogateescape"), number, marks)
        if directive is not None:
            found.append(directive)
        if end < 0:
            break
        start = end + 1
    found.sort(key=lambda directive: marks.index(directive.mark))
    return tuple(found)


def _directive(line: str, number: int, marks: tuple[str, ...]) -> Directive | None:
    mark = next((one for one in marks if line.startswith(one)), "")
    end = len(mark)
    if not mark or (len(line) > end and not line[end].isspace()):
        return None
    words = split_words(line[end:], f"{mark} (line {number})")
    return Directive(number, mark, words)


def split_words(text: str, option: str) -> tuple[str, ...]:
    """Words as a shell would split them, without any expansion; `#` begins a comment. Raises OptionError."""
    words: list[str] = []
    word: list[str] = []
    in_word = False
    quote = ""
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char == "\\" and _escapes(quote, text[at : at + 1]):
            word.append(text[at])
            in_word = True
            at += 1
        elif quote:
            if char == quote:
                quote = ""
            else:
                word.append(char)
        elif char.isspace():
            if in_word:
                words.append("".join(word))
            word, in_word = [], False
        elif char == "#" and not in_word:
            break
        else:
            in_word = True
            if char in "'\"":
                quote = char
            else:
                word.append(char)
    if quote:
        raise OptionError(option, text.strip(), "has an open quote", f"close it with {quote}")
    if in_word:
        words.append("".join(word))
    return tuple(words)


def _escapes(quote: str, following: str) -> bool:
    """Check whether a backslash inside `quote` escapes the character after it."""
    if not following or quote == "'":
        return False
    return not quote or following in ('"', "\\")
