"""Releases of Slurm whose commands these are: `compat.slurm_version`."""

from __future__ import annotations

from eslurm.compat.errors import OptionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT = "25.11"
FULL: Mapping[str, str] = {"25.11": "25.11.0", "22.05": "22.05.11"}
"""Of each release that can be chosen, the version that its commands tell."""
PARSERS: Mapping[str, str] = {"25.11": "data_parser/v0.0.44", "22.05": "openapi/v0.0.38"}
"""The plugin that writes JSON."""


def checked_release(text: str, option: str = "--slurm-version") -> str:
    """One of the releases. Raises OptionError."""
    if text not in FULL:
        raise OptionError(
            option, text, "is not a release that is known here", f"use one of {', '.join(FULL)}"
        )
    return text


def version_line(release: str) -> str:
    """The line of `--version`: `slurm 25.11.0`."""
    return f"slurm {FULL[release]}"


def has_wrapped_numbers(release: str) -> bool:
    """Check whether JSON has `{set, infinite, number}` in the place of numbers, and lists of states."""
    return release != "22.05"
