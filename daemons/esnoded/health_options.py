"""Health checks of a host by its command line: `--health-check 'name=disk interval=60 limit=10 when=idle /sbin/check -q'`.

The words before the program are settings, those behind it its arguments; quotes are as in a shell.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Final

import msgspec

from eslurm.core.model.node_health import CHECKS_MAX, CheckTerms, When, is_check_name
from eslurm.security.ownership import UnsafeFile, check_program

SECONDS_MAX: Final = 86_400
_STATES: Final[dict[str, When]] = {"any": "any", "idle": "idle", "allocated": "allocated"}


class HealthCheck(msgspec.Struct, frozen=True):
    """A program of the site with its turns; `limit_s` bounds each run."""

    terms: CheckTerms
    argv: tuple[str, ...]
    limit_s: int = 60


def health_checks(texts: Iterable[str]) -> tuple[HealthCheck, ...]:
    """The checks of a command line. Raises ValueError for one that is wrong, or that another user could change."""
    found: dict[str, HealthCheck] = {}
    for text in texts:
        check = _check_of(text)
        if found.setdefault(check.terms.name, check) is not check:
            raise ValueError(f"--health-check: there are two of the name '{check.terms.name}'")
        try:
            check_program(check.argv[0])
        except (UnsafeFile, OSError) as error:
            raise ValueError(f"--health-check: {error}") from None
    if len(found) > CHECKS_MAX:
        raise ValueError(f"--health-check: {len(found)} are more than the {CHECKS_MAX} of a host")
    return tuple(found.values())


def _check_of(text: str) -> HealthCheck:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"--health-check: '{text}' cannot be read: {error}") from None
    settings: dict[str, str] = {}
    while words and not words[0].startswith("/"):
        key, equals, value = words.pop(0).partition("=")
        if not equals or key not in ("name", "interval", "limit", "when") or key in settings:
            raise ValueError(
                f"--health-check: '{key}' in '{text}' is neither name=, interval=, limit= or when=, once each, nor an "
                "absolute path"
            )
        settings[key] = value
    if not words:
        raise ValueError(f"--health-check: '{text}' names no program by an absolute path")
    name, when = settings.get("name", ""), settings.get("when", "any")
    if not is_check_name(name):
        raise ValueError(f"--health-check: name '{name}' is not 1 to 32 letters, digits, '_', '.' and '-'")
    if when not in _STATES:
        raise ValueError(f"--health-check: when '{when}' is none of {', '.join(_STATES)}")
    interval_s, limit_s = _seconds("interval", settings, 300), _seconds("limit", settings, 60)
    return HealthCheck(CheckTerms(name, interval_s, _STATES[when]), tuple(words), limit_s)


def _seconds(key: str, settings: dict[str, str], usual: int) -> int:
    text = settings.get(key, str(usual))
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(SECONDS_MAX))):
        raise ValueError(f"--health-check: {key} '{text}' is no number of seconds")
    if not 0 < int(text) <= SECONDS_MAX:
        raise ValueError(f"--health-check: {key} {text} is not within 1..{SECONDS_MAX}")
    return int(text)
