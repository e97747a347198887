"""`eslurm import slurm`: reads a site's files, writes a configuration and policies, and reports what is not in them.

Invariant: nothing is written that the loader of configurations refuses, and no file that is there is replaced unless that is
wanted. Files are read, never run; those that they include are read in directories that the caller names.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from escli import exits
from escli.console import say, to_json
from escli.errors import ClusterError, unusable
from eslurm.compat.errors import OptionError, escaped
from eslurm.compat.slurm.abbreviated import Unusable
from eslurm.compat.slurm.conf.associations import convert_dump
from eslurm.compat.slurm.conf.convert import convert
from eslurm.compat.slurm.conf.draft import CHANGED, LEFT, WITHOUT, Draft, Finding
from eslurm.compat.slurm.conf.lines import Line, read_all
from eslurm.compat.toml_text import toml_text
from eslurm.config.file import parse_config
from eslurm.config.problems import ConfigError
from eslurm.config.sections import Config

FILE_BYTES_MAX = 8 << 20
TOTAL_BYTES_MAX = 32 << 20
_HEADS = {
    LEFT: "No equivalent, to be done by hand",
    CHANGED: "Taken over with a difference",
    WITHOUT: "Of no meaning here",
}
_CONF_HEAD = "Made by `eslurm import slurm`. Every key: docs/reference/configuration.md."
_POLICIES_HEAD = "Made by `eslurm import slurm`: load it with `esctl load FILE`."


class SiteFiles:
    """Opens a site's files: regular ones, bounded, and included ones only below the directories given."""

    def __init__(self, directories: tuple[Path, ...]) -> None:
        self._directories = tuple(Path(os.path.realpath(one)) for one in directories)
        self._left = TOTAL_BYTES_MAX

    def open(self, path: str, included_by: str) -> tuple[str, str]:
        """(name, text) of a file. Raises OptionError."""
        option = "Include" if included_by else "--conf"
        if "\0" in path or not path:
            raise OptionError(option, path, "is not a path", "name a file")
        name = path
        place = Path(path)
        if included_by:
            name = os.path.normpath(Path(included_by).parent / path)
            place = Path(os.path.realpath(name))
            if not any(place.is_relative_to(one) for one in self._directories):
                raise OptionError(
                    option, path, f"is outside of {self._directories[0]}", f"add --include-dir {place.parent}"
                )
        return name, self._read(place, path, option)

    def _read(self, place: Path, path: str, option: str) -> str:
        try:
            # Without O_NONBLOCK a pipe would be waited for.
            descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise OptionError(option, path, "is not a file", "name a text file")
                with open(descriptor, "rb", closefd=False) as file:
                    raw = file.read(min(FILE_BYTES_MAX, self._left) + 1)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise OptionError(option, path, f"cannot be read: {error.strerror}", "correct the path") from None
        if len(raw) > min(FILE_BYTES_MAX, self._left):
            raise OptionError(
                option,
                path,
                f"is too large: a file has at most {FILE_BYTES_MAX} bytes, all of them {TOTAL_BYTES_MAX}",
                "leave out what is not Slurm's",
            )
        self._left -= len(raw)
        return raw.decode("utf-8", "replace")


@click.group("import", short_help="Make a configuration from another system's files.")
def import_command() -> None:
    """Make a configuration from the files of another system."""


def _file(names: tuple[str, ...], text: str, *, required: bool = False) -> Callable[[Any], Any]:
    kind = click.Path(path_type=Path, dir_okay=False)
    return click.option(*names, type=kind, metavar="FILE", required=required, help=text)


@import_command.command("slurm")
@_file(("--conf",), "The site's slurm.conf.", required=True)
@_file(("--topology",), "Its topology.conf.")
@_file(("--gres",), "Its gres.conf.")
@_file(("--assoc",), "What `sacctmgr dump CLUSTER file=FILE` has written.")
@_file(("-o", "--output"), "Write the configuration there (default: standard output).")
@_file(
    ("--policies",),
    "Write accounts, users, QOS and limits there (default: policies.toml beside the configuration).",
)
@click.option(
    "--include-dir",
    "include_dirs",
    type=click.Path(path_type=Path, file_okay=False),
    multiple=True,
    metavar="DIR",
    help="Also read files that are included from DIR (default: from slurm.conf's directory only).",
)
@click.option("--force", is_flag=True, help="Replace files that are there.")
@click.option("--strict", is_flag=True, help="Exit code 1 when something has no equivalent.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def slurm_command(
    conf: Path,
    topology: Path | None,
    gres: Path | None,
    assoc: Path | None,
    output: Path | None,
    policies: Path | None,
    include_dirs: tuple[Path, ...],
    force: bool,
    strict: bool,
    as_json: bool,
) -> int:
    """Make a configuration from slurm.conf and its kin, and policies from a dump of sacctmgr.

    Each line of these files that has no equivalent is reported with its place and what to do; what is written loads.

    \b
    eslurm import slurm --conf /etc/slurm/slurm.conf -o eslurm.toml
    eslurm import slurm --conf slurm.conf --topology topology.conf --gres gres.conf --assoc alpha.cfg -o eslurm.toml
    """
    if assoc and not (output or policies):
        raise click.UsageError(
            "--assoc: its policies are a file of their own: add -o FILE or --policies FILE"
        )
    if policies and not assoc:
        raise click.UsageError("--policies: are made of --assoc FILE: add it")
    if output and assoc and policies is None:
        policies = output.with_name("policies.toml")
    for path in (output, policies):
        if path and os.path.lexists(path) and not force:
            raise unusable(f"{path} is there already: choose another name, or add --force")
    if output and output == policies:
        raise click.UsageError("--policies: is the file of -o, too: choose another one")
    files = SiteFiles((conf.absolute().parent, *include_dirs))
    draft = convert(_lines(files, conf), _lines(files, topology), _lines(files, gres))
    named = _policies(files, draft, assoc)
    text = toml_text(_ordered(draft), _CONF_HEAD)
    try:
        parse_config(text.encode(), str(output or conf))
    except ConfigError as error:
        raise ClusterError(f"the configuration that was made of {conf} does not load: {error}") from None
    if output:
        _write(output, text)
    if policies:
        _write(policies, toml_text(named, _POLICIES_HEAD))
    left = [one for one in draft.findings if one.effect == LEFT]
    if as_json:
        say(
            to_json(
                {
                    "configuration": str(output) if output else text,
                    "policies": str(policies) if policies else None,
                    "findings": [
                        {name: getattr(one, name) for name in Finding.__slots__} for one in draft.findings
                    ],
                }
            )
        )
    else:
        _report(draft, output, policies, text, named)
    return exits.FAILED if strict and left else exits.OK


def _lines(files: SiteFiles, path: Path | None) -> list[Line]:
    if path is None:
        return []
    try:
        return read_all(str(path), files.open)
    except OptionError as error:
        raise unusable(f"{path}: {error.why}: {error.way_out}") from None


def _policies(files: SiteFiles, draft: Draft, path: Path | None) -> dict[str, dict[str, dict[str, object]]]:
    if path is None:
        return {}
    try:
        _, text = files.open(str(path), "")
        return convert_dump(draft, str(path), text)
    except OptionError as error:
        raise unusable(f"{path}: {error.why}: {error.way_out}") from None
    except Unusable as problem:
        said = escaped(" ".join(line.strip() for line in problem.lines))
        raise unusable(f"{path}: is no file of `sacctmgr dump`: {said}") from None


def _ordered(draft: Draft) -> dict[str, object]:
    """The sections in the order of the reference."""
    return {name: draft.sections[name] for name in Config.__struct_fields__ if name in draft.sections}


def _write(path: Path, text: str) -> None:
    """Write a file as a whole, or leave the old one."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        new.write_text(text, encoding="utf-8")
        new.replace(path)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise ClusterError(f"{path} cannot be written: {error.strerror}: choose another place") from None


def _report(
    draft: Draft,
    output: Path | None,
    policies: Path | None,
    text: str,
    named: dict[str, dict[str, dict[str, object]]],
) -> None:
    """Print what was made, on standard output; where that is the configuration, the report goes to standard error."""
    lines: list[str] = []
    for effect, head in _HEADS.items():
        found = [one for one in draft.findings if one.effect == effect]
        if found:
            lines += [f"{head} ({len(found)}):", *map(_line, found), ""]
    counts = {effect: sum(one.effect == effect for one in draft.findings) for effect in _HEADS}
    summary = f"{counts[LEFT]} settings have no equivalent, {counts[CHANGED]} differ, {counts[WITHOUT]} mean nothing here."
    if output is None:
        click.echo(text, nl=False)
        for line in (*lines, summary):
            click.echo(line, err=True)
        return
    for line in lines:
        say(line)
    say(f"{output} is written and loads. {summary}")
    if policies:
        say(f"{policies} has {sum(map(len, named.values()))} policies: esctl load {policies}")


def _line(one: Finding) -> str:
    place = f"{one.file}:{one.line}" if one.line else one.file
    setting = f"{one.key}={one.value}" if one.key else one.value
    return escaped(f"  {place}: {setting}: {one.text}" if setting else f"  {place}: {one.text}")
