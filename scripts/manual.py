"""Makes the manual pages from the tables of the commands and the parsers of the daemons: `make man`.

Invariant: a page says what `--help` says, in the form that man(7) asks for; nothing on it is written here by hand.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click
import msgspec

import esctld.__main__ as controller
import esestd.__main__ as estimator
import esnoded.__main__ as agent
import essatd.__main__ as satellite
from escli import exits
from escli.help_text import COMMANDS, option_names
from escli.local.main import commands as cluster
from escli.option_table import rows_of
from escli.options import IGNORED, REFUSED
from eslurm import __version__

Row = tuple[str, str]
"""A term, such as an option with its value, and what it means."""

DAEMONS = (controller.build_parser, satellite.build_parser, agent.build_parser, estimator.build_parser)


class Page(msgspec.Struct, frozen=True):
    """One manual page. `options` are (heading, rows); the texts are plain."""

    name: str
    section: int
    purpose: str
    synopsis: tuple[str, ...]
    description: tuple[str, ...] = ()
    options: tuple[tuple[str, tuple[Row, ...]], ...] = ()
    examples: tuple[Row, ...] = ()
    see: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        """Where man(1) looks for it, below a directory of manual pages."""
        return Path(f"man{self.section}") / f"{self.name}.{self.section}"


def pages() -> Iterator[Page]:
    """All pages: the users' and administrators' commands, `eslurm` and each of its own, the daemons."""
    for name in COMMANDS:
        yield _of_table(name)
    yield from _of_click("eslurm", cluster)
    for parser in DAEMONS:
        yield _of_parser(parser())


def _of_table(name: str) -> Page:
    about = COMMANDS[name]
    groups: dict[str, list[Row]] = {}
    for row in rows_of(name):
        if row.kind not in (IGNORED, REFUSED):
            text = f"{row.help}; example: {row.example}" if row.example else row.help
            groups.setdefault(row.group, []).append((option_names(row), text))
    return Page(
        name,
        1,
        about.purpose,
        tuple(about.synopsis.split("\n")),
        _paragraphs(about.notes),
        tuple((group, tuple(rows)) for group, rows in groups.items()),
        about.examples,
        tuple(other for other in COMMANDS if other != name),
    )


def _of_click(name: str, command: click.Command) -> Iterator[Page]:
    """The page of a command, then those of the commands below it: `eslurm-up`."""
    context = click.Context(command, info_name=name.replace("-", " "))
    usage = " ".join([context.info_name or "", *command.collect_usage_pieces(context)])
    rows = [record for param in command.get_params(context) if (record := param.get_help_record(context))]
    paragraphs = _paragraphs(command.help or "")
    options = [("Options", tuple(rows))]
    below = command.commands if isinstance(command, click.Group) else {}
    if below:
        listed = [(f"{name}-{word}(1)", one.get_short_help_str(200)) for word, one in sorted(below.items())]
        options.insert(0, ("Commands", tuple(listed)))
    yield Page(name, 1, paragraphs[0], (usage,), paragraphs[1:], tuple(options))
    for word, one in sorted(below.items()):
        yield from _of_click(f"{name}-{word}", one)


def _of_parser(parser: argparse.ArgumentParser) -> Page:
    usage = parser.format_usage().removeprefix("usage: ")
    formatter = argparse.HelpFormatter(parser.prog)
    rows = []
    for action in parser._actions:  # argparse has no other way to list them.
        value = "" if action.nargs == 0 else f" {action.metavar or action.dest.upper()}"
        rows.append(
            (
                ", ".join(f"{one}{value}" for one in action.option_strings) or value.strip(),
                _help(action, formatter),
            )
        )
    example = parser.epilog.removeprefix("Example: ") if parser.epilog else ""
    return Page(
        parser.prog,
        8,
        _one_line(parser.description or ""),
        (_one_line(usage),),
        (),
        (("Options", tuple(rows)),),
        ((example, ""),) if example else (),
        tuple(one().prog for one in DAEMONS if one().prog != parser.prog),
    )


def _help(action: argparse.Action, formatter: argparse.HelpFormatter) -> str:
    return formatter._expand_help(action) if action.help else ""


def _paragraphs(text: str) -> tuple[str, ...]:
    """The paragraphs of a text, each in one line."""
    return tuple(_one_line(part.replace("\b", "")) for part in re.split(r"\n\s*\n", text) if part.strip())


def _one_line(text: str) -> str:
    return " ".join(text.split())


# ---- man(7) ----


def render(page: Page, version: str = __version__) -> str:
    """The page as the source of man(1)."""
    lines = [f'.TH {page.name.upper()} {page.section} "" "eslurm {version}" "eslurm"', ".SH NAME"]
    lines += [f"{plain(page.name)} \\- {plain(_summary(page.purpose))}", ".SH SYNOPSIS"]
    for number, line in enumerate(page.synopsis):
        lines += [".br"] * bool(number) + [_command(line)]
    lines += [".SH DESCRIPTION", plain(page.purpose)]
    for paragraph in page.description:
        lines += [".PP", plain(paragraph)]
    for heading, rows in page.options:
        lines.append(f'.SH "{plain(heading.upper())}"')
        for term, text in rows:
            lines += [".TP", f"\\fB{plain(term)}\\fR", plain(text) or "\\&"]
    if page.examples:
        lines.append(".SH EXAMPLES")
        for line, text in page.examples:
            lines += [".TP", f"\\fB{plain(line)}\\fR", plain(text) or "\\&"]
    if page.section == 1:
        lines.append('.SH "EXIT STATUS"')
        for code, meaning in exits.MEANINGS:
            lines += [".TP", plain(code), plain(meaning)]
    if page.see:
        section = page.section
        lines += ['.SH "SEE ALSO"', ", ".join(f"\\fB{plain(one)}\\fR({section})" for one in page.see)]
    return "\n".join(lines) + "\n"


def plain(text: str) -> str:
    """Text as it stands, in one line: no character of it is a request or an escape to roff."""
    text = (
        _one_line(text).replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga").replace("^", "\\(ha")
    )
    text = text.replace("~", "\\(ti").replace('"', "\\(dq").replace("'", "\\(aq")
    return f"\\&{text}" if text.startswith(".") else text


def _summary(purpose: str) -> str:
    """The first sentence, as whatis(1) lists it."""
    first = re.split(r"(?<=[^.])\.(?:\s|$)", _one_line(purpose), maxsplit=1)[0]
    return first[:1].lower() + first[1:]


def _command(line: str) -> str:
    """A line of the synopsis, its command in bold."""
    name, _, rest = line.strip().partition(" ")
    return f"\\fB{plain(name)}\\fR {plain(rest)}".rstrip()


def write(directory: Path, made: Iterable[Page]) -> list[Path]:
    """Write the pages below a directory; their paths."""
    paths = []
    for page in made:
        path = directory / page.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(render(page), encoding="utf-8")
        paths.append(path)
    return paths


def main(argv: Sequence[str]) -> int:
    """Write all pages below the directory that is named."""
    if len(argv) != 1:
        sys.stderr.write("usage: manual.py DIR\n")
        return exits.USAGE
    paths = write(Path(argv[0]), pages())
    sys.stdout.write(f"{len(paths)} manual pages: man -M {argv[0]} essubmit\n")
    return exits.OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
