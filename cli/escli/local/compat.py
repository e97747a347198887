"""`eslurm compat install`: launchers of Slurm's commands, tiny Python scripts, in a directory of their own.

Invariant: a file that is no launcher of ours is never replaced unless that is wanted.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from escli import exits
from escli.console import say, to_json
from escli.errors import ClusterError, unusable
from escli.local.layout import choose
from escli.lsf.launch import COMMANDS as LSF_COMMANDS
from escli.pbs.launch import COMMANDS as PBS_COMMANDS
from escli.slurm.launch import COMMANDS
from eslurm.compat.errors import OptionError
from eslurm.compat.slurm.release import DEFAULT, FULL, checked_release
from eslurm.config.file import read_config
from eslurm.config.problems import ConfigError

MARK = "# A launcher of eslurm, written by `eslurm compat install`."
SLURM, PBS, LSF = "escli.slurm.launch", "escli.pbs.launch", "escli.lsf.launch"
"""Modules of launchers."""
ALSO = {"pbs": (PBS, PBS_COMMANDS), "lsf": (LSF, LSF_COMMANDS)}
"""The systems of --with."""
_INTERPRETER_CHARS_MAX = 120
"""The longest name that every kernel takes behind `#!`, without the option."""


@click.group("compat", short_help="Slurm's own commands over this cluster.")
def compat() -> None:
    """Slurm's own commands over this cluster, for programs and scripts that call them."""


@compat.command("install")
@click.option(
    "--prefix",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    metavar="DIR",
    help="They go to DIR/bin.",
)
@click.option(
    "--state-dir",
    metavar="DIR",
    help="The cluster of `eslurm up` in DIR, wherever they are called (default: as es* commands).",
)
@click.option("--socket", metavar="PATH", help="The cluster with this socket of a controller or an agent.")
@click.option("--remote", metavar="HOST:PORT,...", help="The cluster with these controllers on other hosts.")
@click.option(
    "--slurm-version",
    metavar="VERSION",
    help=f"The Slurm that they are: {' or '.join(FULL)} (default: compat.slurm_version, or {DEFAULT}).",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The cluster's configuration, for compat.slurm_version (default: the one in --state-dir).",
)
@click.option(
    "--with",
    "also",
    type=click.Choice(list(ALSO)),
    multiple=True,
    help="Also qsub, qstat and qdel of PBS, or bsub, bjobs and bkill of LSF, with the options that scripts use.",
)
@click.option("--force", is_flag=True, help="Even where another Slurm's commands are found.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def install_command(
    prefix: Path,
    state_dir: str | None,
    socket: str | None,
    remote: str | None,
    slurm_version: str | None,
    config: Path | None,
    also: tuple[str, ...],
    force: bool,
    as_json: bool,
) -> int:
    """Write sbatch, squeue, sacct, scancel, sinfo, scontrol and the rest of Slurm's commands to DIR/bin.

    \b
    eslurm compat install --prefix ~/slurm; PATH=~/slurm/bin:$PATH; sbatch --wrap hostname
    """
    if sum(map(bool, (state_dir, socket, remote))) > 1:
        raise click.UsageError("--socket: goes neither with --state-dir nor with --remote: give one of them")
    if state_dir:
        layout = choose(state_dir, os.environ)
        socket, config = (
            str(layout.socket),
            config or (layout.config_file if layout.config_file.exists() else None),
        )
    release = _release(slurm_version, config)
    written = install(prefix, socket or "", remote or "", release, os.environ, also=also, is_forced=force)
    if as_json:
        say(to_json({"directory": str(prefix / "bin"), "commands": written, "slurm_version": release}))
    else:
        systems = " and ".join(
            [f"Slurm {FULL[release]}", *(system.upper() for system in ALSO if system in also)]
        )
        say(f"{len(written)} commands of {systems} are in {prefix.absolute() / 'bin'}.")
        say(f"  export PATH={prefix.absolute() / 'bin'}:$PATH   # first, so that programs find them")
    return exits.OK


def _release(chosen: str | None, config: Path | None) -> str:
    try:
        if chosen:
            return checked_release(chosen)
        return read_config(config).compat.slurm_version if config else DEFAULT
    except (OptionError, ConfigError) as error:
        raise unusable(str(error)) from None


def install(
    prefix: Path,
    socket: str,
    remote: str,
    release: str,
    environ: Mapping[str, str],
    *,
    also: Sequence[str] = (),
    is_forced: bool = False,
) -> list[str]:
    """Write all launchers, and those of the systems in `also`; their paths. Raises ClusterError."""
    if len(sys.executable) > _INTERPRETER_CHARS_MAX or " " in sys.executable:
        raise unusable(
            f"{sys.executable}: no script can name this interpreter: install eslurm at a shorter path without blanks"
        )
    directory = prefix.absolute() / "bin"
    texts = {command: launcher(command, socket, remote, release) for command in COMMANDS}
    for system, (module, commands) in ALSO.items():
        if system in also:
            texts |= {command: launcher(command, socket, remote, "", module) for command in commands}
    if not is_forced:
        _check_free(directory, environ, texts)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return [_write(directory / command, text) for command, text in texts.items()]
    except OSError as error:
        raise ClusterError(f"--prefix: {directory} cannot be written: {error.strerror}") from None


def launcher(command: str, socket: str, remote: str, release: str, module: str = SLURM) -> str:
    """The script of a command whose `main` is in a module."""
    options: dict[str, Any] = {"socket": socket, "remote": remote, "release": release}
    given = "".join(f", {name}={value!r}" for name, value in options.items() if value)
    return (
        f"#!{sys.executable} -I\n{MARK}\nimport sys\n\nfrom {module} import main\n\n"
        f"sys.exit(main({command!r}{given}))\n"
    )


def _check_free(directory: Path, environ: Mapping[str, str], commands: Iterable[str]) -> None:
    """Raise ClusterError where a command of another system would be replaced, or hidden by ours."""
    others = os.pathsep.join(
        one for one in environ.get("PATH", "").split(os.pathsep) if one and Path(one).absolute() != directory
    )
    for command in commands:
        there = directory / command
        if os.path.lexists(there) and not is_ours(there):
            raise ClusterError(
                f"--prefix: {there} is a command of another system: choose another DIR, or add --force"
            )
        found = shutil.which(command, path=others)
        if found and not is_ours(Path(found)):
            raise ClusterError(
                f"{found} is a command of another system, which programs would miss: add --force if that is wanted"
            )


def is_ours(path: Path) -> bool:
    """Check whether a file is a launcher of ours."""
    try:
        with path.open("rb") as file:
            return MARK.encode() in file.read(1024)
    except OSError:
        return False


def _write(path: Path, text: str) -> str:
    """Replace a file as a whole: a command that is being started never sees half of it."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_text(text, encoding="utf-8")
    new.chmod(0o755)
    new.replace(path)
    return str(path)
