"""The options of a job's gateways (X-50): one set of checks for commands and API."""

from __future__ import annotations

from eslurm.compat.errors import OptionError
from eslurm.compat.request_checks import checked_line, checked_path
from eslurm.core.model import request_limits as limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

PLUGIN_DEFAULT = "plugin1"
_NAME_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_PLUGIN_CHARS = _NAME_CHARS | frozenset("-.")


def parse_gateway_env(text: str, option: str = "--gateway-env") -> tuple[str, ...]:
    """`NAME=VALUE,...` as its entries. Raises OptionError."""
    return checked_gateway_env(text.split(","), option)


def checked_gateway_env(entries: Sequence[str], option: str = "--gateway-env") -> tuple[str, ...]:
    """Check `NAME=VALUE` entries for the environment of the daemons."""
    if len(entries) > limits.GATEWAY_ENV_MAX:
        why = f"and the rest are more than {limits.GATEWAY_ENV_MAX} variables"
        raise OptionError(option, entries[0], why, "set them in a wrapper of the daemon")
    for entry in entries:
        name, equals, _ = checked_line(option, entry, limits.GATEWAY_ENV_CHARS_MAX).partition("=")
        if not equals or not name or not _NAME_CHARS.issuperset(name) or name[0].isdigit():
            raise OptionError(option, entry, "is no variable", f"use e.g. {option} PORT=5000,LEVEL=2")
    return tuple(entries)


def parse_inherit(text: str, option: str = "--gateway-inherit") -> bool:
    """Check whether daemons get the variables that the job's user has brought. Raises OptionError."""
    if text.lower() not in ("yes", "no"):
        raise OptionError(option, text, "is neither yes nor no", f"use e.g. {option} no")
    return text.lower() == "yes"


def checked_plugin(name: str, option: str = "--gateway-plugin") -> str:
    """Check the name of the plug-in that chooses a gateway for each pair of nodes."""
    if not name or len(name) > limits.GATEWAY_PLUGIN_CHARS_MAX or not _PLUGIN_CHARS.issuperset(name):
        raise OptionError(option, name, "is no name of a plug-in", f"use e.g. {option} {PLUGIN_DEFAULT}")
    return name


def checked_absolute(option: str, name: str) -> str:
    """Check a path that the job's nodes use: absolute, on one line."""
    if not name.startswith("/") or name.endswith("/") or not name.isprintable():
        raise OptionError(
            option, name, "is no absolute path of a file", f"use e.g. {option} /scratch/run1/routes"
        )
    return checked_path(option, name)
