"""The frame of Slurm's commands: version and help, the cluster that they call, and failures as one line with exit code 1."""

from __future__ import annotations

import os
import sys
import time

from escli import exits
from escli.api import Api, find_endpoint
from escli.failures import CommandFailed
from escli.options import Words
from eslurm.compat.errors import OptionError
from eslurm.compat.slurm import release as releases
from eslurm.compat.slurm.getopt import Options, Parser, UsageProblem, refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType
    from typing import Any, TypeVar

    from eslurm.compat.slurm.getopt import Row

    _Result = TypeVar("_Result")

NAMED_BY = ("ESLURM_SOCKET", "ESLURM_REMOTE", "ESLURM_STATE_DIR")
"""Variables that choose another cluster than the launcher's."""
NO_CONTACT = "Unable to contact slurm controller (connect failure)"
"""Slurm's words, which programs look for before they try again."""


class Context:
    """A command's name, the release whose command it is, and the cluster that its launcher was installed for."""

    __slots__ = ("command", "release", "remote", "socket")

    def __init__(self, command: str, *, socket: str = "", remote: str = "", release: str = "") -> None:
        self.command = command
        self.socket = socket
        self.remote = remote
        self.release = release or releases.DEFAULT

    def open_api(self) -> Api:
        """The API of the cluster. Raises CommandFailed."""
        return Api(self.endpoint(), self.command)

    def endpoint(self) -> Any:
        """The endpoint that the environment names, else the launcher's, else the one of this host."""
        given = Words()
        if not any(os.environ.get(name) for name in NAMED_BY):
            if self.socket:
                given.put("socket", self.socket, "the launcher")
            elif self.remote:
                given.put("remote", self.remote, "the launcher")
        return find_endpoint(given, os.environ)

    def cluster_api(self, name: str, own: str) -> Api:
        """The API of a cluster that `-M` names: this one (`own`), or a cell of its federation."""
        if name == own:
            return self.open_api()
        from escli.cells import CellApi

        return CellApi(self.endpoint(), self.command, name, "")


class Failed(Exception):
    """A failure whose lines on standard error are complete."""

    def __init__(self, *lines: str, code: int = 1) -> None:
        super().__init__(lines)
        self.lines = lines
        self.code = code


def run(context: Context, module: ModuleType, argv: Sequence[str]) -> int:
    """Parse, and run the command; every failure is on standard error and ends with its exit code."""
    try:
        code = _run(context, module, argv)
        sys.stdout.flush()
        return code
    except UsageProblem as problem:
        hint = (f'Try "{context.command} --help" for more information',) if problem.has_hint else ()
        code = getattr(module, "USAGE", 1) if problem.has_hint else 1
        return tell(code, f"{context.command}: {problem.text}", *hint)
    except Failed as failure:
        return tell(failure.code, *failure.lines)
    except OptionError as error:
        return tell(1, f"{context.command}: error: {error}")
    except CommandFailed as failure:
        return tell(1, f"{context.command}: error: {trouble(failure)}")
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except BrokenPipeError:
        return exits.reader_gone()


def _run(context: Context, module: ModuleType, argv: Sequence[str]) -> int:
    given = Parser(module.ROWS, stops=getattr(module, "STOPS", False)).parse(argv)
    if given.has("version"):
        print_line(releases.version_line(context.release))
        return exits.OK
    if given.has("help") or given.has("usage"):
        from escli.slurm import help_text

        print_line(help_text.help_of(context.command, module.ROWS))
        return exits.OK
    refuse(given.found, context.command)
    code: int = module.run(context, given)
    return code


def without_collection(work: Callable[[], _Result]) -> _Result:
    """Do the work without looking for cycles: long lists of records have none, and the search would be most of the time."""
    import gc

    was_on = gc.isenabled()
    gc.disable()
    try:
        return work()
    finally:
        if was_on:
            gc.enable()


def refuse(found: Sequence[tuple[Row, str, str]], command: str) -> None:
    """Raise Failed, as Slurm's commands fail, for the first option that is not supported here."""
    if why := first_refusal(found):
        raise Failed(f"{command}: error: {why}")


def check_supported(found: Sequence[tuple[Row, str, str]]) -> None:
    """Raise Failed for the first option that is not supported here, as other systems' commands fail."""
    if why := first_refusal(found):
        raise Failed(why, code=exits.USAGE)


def first_refusal(found: Sequence[tuple[Row, str, str]]) -> str:
    """The reason why the first option that is not supported here is refused; empty: all are supported."""
    return next((why for row, value, spelling in found if (why := refusal(row, value, spelling))), "")


def tell(code: int, *lines: str) -> int:
    """Print lines on standard error; returns the exit code."""
    try:
        sys.stdout.flush()
        sys.stderr.write("".join(f"{line}\n" for line in lines))
        sys.stderr.flush()
    except BrokenPipeError:
        return exits.BROKEN_PIPE
    return code


def trouble(failure: CommandFailed) -> str:
    """The failure's text; of an unreachable controller after Slurm's own words."""
    return f"{NO_CONTACT}: {failure.text}" if failure.code == exits.UNREACHABLE else failure.text


def print_line(text: str) -> None:
    """Print a line, or several, on standard output."""
    sys.stdout.write(f"{text}\n")


def wants_document(given: Options) -> bool:
    """Check whether the answer is printed as JSON or YAML."""
    return given.has("json") or given.has("yaml")


def write_document(given: Options, document: str) -> None:
    """Print a JSON document; as YAML when that is asked for."""
    if given.has("yaml"):
        from eslurm.compat.slurm import yaml_text

        document = yaml_text.from_json(document)
    sys.stdout.write(document)


def warn(command: str, text: str) -> None:
    """Print a line on standard error."""
    tell(0, f"{command}: {text}")


def print_error(line: str) -> None:
    """Print a line on standard error as it is."""
    tell(0, line)


def moment_writer(environ: Mapping[str, str]) -> Callable[[int], str]:
    """The function that writes times: by SLURM_TIME_FORMAT, else `2030-01-31T12:00:00`."""
    chosen = environ.get("SLURM_TIME_FORMAT", "")
    if chosen == "relative":
        return _relative
    pattern = "%Y-%m-%dT%H:%M:%S" if chosen in ("", "standard") else chosen
    return lambda at_us: time.strftime(pattern, time.localtime(at_us // 1_000_000))


def _relative(at_us: int) -> str:
    at = time.localtime(at_us // 1_000_000)
    now = time.localtime()
    days = _day(at) - _day(now)
    if days == 0:
        pattern = "%H:%M:%S"
    elif days in (-1, 1):
        pattern = ("Tomorr" if days == 1 else "Ystday") + " %H:%M"
    elif abs(days) > 365:
        pattern = "%-d %b %Y"
    else:
        pattern = "%a %H:%M" if 0 < days < 7 else "%-d %b %H:%M"
    return time.strftime(pattern, at)


def _day(at: time.struct_time) -> int:
    from eslurm.compat.moments import days_from_civil

    return days_from_civil(at.tm_year, at.tm_mon, at.tm_mday)


def now_line() -> str:
    """The date that stands above long lists."""
    return time.strftime("%a %b %d %H:%M:%S %Y")


def user_name() -> str:
    """The name of the calling user; the number of one without a name."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def group_name(gid: int) -> str:
    """The name of a group on this host."""
    import grp

    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def clusters_of(given: Options, environ: Mapping[str, str]) -> list[str]:
    """The clusters that `-M` or SLURM_CLUSTERS names; empty: this one."""
    text = given.last("clusters") or environ.get("SLURM_CLUSTERS", "")
    return [name for name in text.split(",") if name]


def cell_names(api: Api, wanted: Sequence[str], own: str) -> list[str]:
    """The clusters by their names: `all` are this one and the living cells of its federation."""
    if "all" not in wanted:
        return list(wanted)
    from eslurm.v1 import controller_pb2 as pb

    reply = api.call("Federation", pb.FederationRequest())
    return [own, *(cell.name for cell in reply.cells if cell.name != reply.cell and cell.state == "alive")]


def check_reached(api: Api, name: str, command: str) -> None:
    """Raise Failed, in Slurm's words, unless the cell that `-M` names answers."""
    try:
        own_cluster(api)
    except CommandFailed:
        raise Failed(
            f"{command}: error: '{name}' can't be reached now, or it is an invalid entry for --cluster.  "
            "Use 'sacctmgr list clusters' to see available clusters."
        ) from None


def own_cluster(api: Api) -> str:
    """The cluster's name."""
    from eslurm.v1 import controller_pb2 as pb

    name: str = api.call("Ping", pb.PingRequest()).cluster
    return name
