"""Configuration of health checks of nodes (ADR 54)."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from eslurm.compat.errors import OptionError
from eslurm.config.positions import Path
from eslurm.core.model.node_health import CHECKS_MAX, NAME_CHARS_MAX, is_check_name


class HealthCheckSection(msgspec.Struct, forbid_unknown_fields=True):
    """A program that says by its exit code whether its node may take new work. While it fails, none is placed there, with
    the first line of its output as the reason. It runs as the agents' user; only that user and root may change it.
    """

    name: Annotated[str, Meta(max_length=NAME_CHARS_MAX)]
    """Its name in reasons and metrics: letters, digits, `_`, `.` and `-`."""
    program: str
    """Absolute path of the program."""
    arguments: list[str] = []
    """Its arguments."""
    interval_s: Annotated[int, Meta(ge=1, le=86_400)] = 300
    """Seconds from the beginning of a run to that of the next."""
    limit_s: Annotated[int, Meta(ge=1, le=86_400)] = 60
    """Seconds after which a run is ended, and has failed."""
    when: Literal["any", "idle", "allocated"] = "any"
    """Runs always, while no job is on the node, or while one is. One that fails runs in any case until it passes."""


def health_problems(sections: Sequence[HealthCheckSection]) -> Iterator[tuple[Path, OptionError]]:
    """Checks that no agent would take, each with its place."""
    table, key, seen = ("agent", "health_check"), "agent.health_check", set[str]()
    if len(sections) > CHECKS_MAX:
        yield (
            table,
            OptionError(key, str(len(sections)), "are too many checks", f"a node has at most {CHECKS_MAX}"),
        )
    for at, one in enumerate(sections):
        found: list[tuple[str, str, str, str]] = []
        if not is_check_name(one.name):
            found.append(
                ("name", one.name, "is not a name of a check", "use letters, digits, '_', '.' and '-'")
            )
        elif one.name in seen:
            found.append(("name", one.name, "is there twice", "give each a name of its own"))
        seen.add(one.name)
        if not one.program.startswith("/") or "\0" in one.program:
            found.append(("program", one.program, "is not an absolute path", "name the program from / on"))
        found += [
            ("arguments", text, "holds a zero byte", "leave it out") for text in one.arguments if "\0" in text
        ]
        for field, value, problem, way_out in found:
            yield (*table, at, field), OptionError(f"{key}.{field}", value, problem, way_out)


def option_of(section: HealthCheckSection) -> str:
    """The value of `esnoded --health-check` for it."""
    settings = (
        f"name={section.name}",
        f"interval={section.interval_s}",
        f"limit={section.limit_s}",
        f"when={section.when}",
    )
    return shlex.join((*settings, section.program, *section.arguments))
