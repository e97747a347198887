"""`eslurm check`: all problems of configuration files, with their places.

A file may be another user's: its size is bounded, and what is shown of it cannot move the terminal's cursor.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from escli import exits
from escli.console import say, to_json
from eslurm.compat.errors import OptionError, escaped, quoted
from eslurm.config.file import check_config, read_bounded
from eslurm.config.named_files import named_files
from eslurm.config.problems import ConfigError, Problem, located
from eslurm.config.sections import Config
from eslurm.core.model.wording import counted


class Finding(msgspec.Struct, frozen=True):
    """A problem or warning, for --json. `line` and `column` are 0 where no place is known."""

    line: int
    column: int
    key: str
    value: str | None
    why: str
    way_out: str
    text: str


class Result(msgspec.Struct):
    """The findings of a file. `problems_left_out` is the number of problems beyond those that are listed."""

    file: str
    ok: bool
    problems: list[Finding]
    warnings: list[Finding]
    problems_left_out: int = 0
    unreadable: str = ""


@click.command("check", short_help="Say what is wrong with a configuration file.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Also look there for the files that the configuration names by relative paths.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def check_command(files: tuple[Path, ...], state_dir: Path | None, as_json: bool) -> int:
    """Look at configuration files as the controller does at its start, and list all problems with line and column: each with
    the key, the value, the reason and the way out. Of a file that is not valid TOML only the first mistake is known.

    Files that a configuration names and that are not on this host are warnings. Nothing is changed, no daemon is asked, and
    it ends with 1 if a file has problems.

    \b
    eslurm check /etc/eslurm/eslurm.toml
    eslurm check --state-dir /var/lib/eslurm /etc/eslurm/eslurm.toml
    """
    results = [_result(file, state_dir) for file in files]
    is_good = all(result.ok for result in results)
    if as_json:
        say(to_json({"ok": is_good, "files": results}))
        return exits.OK if is_good else exits.FAILED
    for result in results:
        if result.unreadable:
            say(result.unreadable)
            continue
        for finding in (*result.problems, *result.warnings):
            say(finding.text)
        count = len(result.problems) + result.problems_left_out
        more = f", of which {result.problems_left_out} are not shown" if result.problems_left_out else ""
        say(f"{result.file}: {counted(count, 'problem')}{more}" if count else f"{result.file}: no problems")
    return exits.OK if is_good else exits.FAILED


def _result(file: Path, state_dir: Path | None) -> Result:
    origin = escaped(str(file))
    try:
        raw = read_bounded(file)
    except ConfigError as error:
        return Result(origin, False, [], [], unreadable=str(error))
    checked = check_config(raw)
    problems = [_finding(problem, problem.text(origin)) for problem in checked.problems]
    if checked.config is None:
        return Result(origin, False, problems, [], checked.left_out)
    missing = located(list(_missing(checked.config, state_dir)), raw.decode())
    warnings = [_finding(one, one.text(origin, "warning: ")) for one in missing]
    return Result(origin, True, [], warnings)


def _missing(config: Config, state_dir: Path | None) -> Iterator[Problem]:
    """The named files that are not there."""
    for path, file in named_files(config):
        if not file.startswith("/") and state_dir is None:
            continue
        try:
            (state_dir or Path("/")).joinpath(file).stat()
        except (FileNotFoundError, NotADirectoryError, ValueError):
            key = ".".join(map(str, path))
            yield Problem(
                path, OptionError(key, file, "is not on this host", "name another file, or make it")
            )
        except OSError:
            continue  # a directory that this user may not look into


def _finding(problem: Problem, text: str) -> Finding:
    error = problem.error
    value = None if error.value is None else quoted(error.value)
    return Finding(
        *(problem.line, problem.column, escaped(error.option), value),
        *(escaped(error.why), escaped(error.way_out), text),
    )
