"""Shared frame of all commands: options, help, version, and one-line failures with exit codes."""

from __future__ import annotations

import sys

from escli import exits
from escli.failures import CommandFailed
from escli.option_table import rows_of
from escli.options import Parser
from eslurm.compat.errors import OptionError, escaped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from escli.options import Words


def run(
    command: str,
    body: Callable[[Words], int],
    argv: Sequence[str] | None = None,
    *,
    options_end_at_first_word: bool = False,
    excludes: Mapping[str, Sequence[str]] | None = None,
    name: str = "",
) -> int:
    """Parse, run `body`, and return the exit code. Every failure is one line on stderr, behind `name` or the command's."""
    name = name or command
    words = sys.argv[1:] if argv is None else argv
    try:
        parser = Parser(
            rows_of(command), options_end_at_first_word=options_end_at_first_word, excludes=excludes
        )
        given = parser.parse(words)
        if given.has("help") or given.has("version"):
            say(_about(command, given))
            code = exits.OK
        else:
            code = body(given)
        sys.stdout.flush()
    except OptionError as error:
        return _fail(name, exits.USAGE, str(error))
    except CommandFailed as failure:
        return _fail(name, failure.code, failure.text)
    except KeyboardInterrupt:
        return _fail(name, exits.INTERRUPTED, "interrupted")
    except BrokenPipeError:
        return exits.reader_gone()
    return code


def _about(command: str, given: Words) -> str:
    from escli import help_text

    return help_text.usage(command) if given.has("help") else help_text.version(command)


def say(line: str) -> None:
    """Print a line, or several, on standard output."""
    sys.stdout.write(escaped_lines(line) + "\n")


def warn(command: str, line: str) -> None:
    """Print a line on standard error, after earlier output."""
    sys.stdout.flush()
    sys.stderr.write(f"{command}: {escaped_lines(line)}\n")
    sys.stderr.flush()


def escaped_lines(text: str) -> str:
    """Text with control characters escaped; only its line ends stay."""
    return text if text.isprintable() else "\n".join(map(escaped, text.split("\n")))


def _fail(command: str, code: int, text: str) -> int:
    try:
        warn(command, text)
    except BrokenPipeError:
        return exits.reader_gone()
    return code


def no_more_words(words: Sequence[str], what: str = "is not expected here") -> None:
    """Raise OptionError when words are left over."""
    if words:
        raise OptionError("argument", words[0], what, "see --help")
