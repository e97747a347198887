"""Configuration of the programs around each job on the controller's host, and its translation for the core."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta

from eslurm.compat.errors import OptionError
from eslurm.core.model.controller_phases import LIMIT_S, RUNNING_MAX, ControllerPrograms


class PhasesSection(msgspec.Struct, forbid_unknown_fields=True):
    """Programs that the leading controller runs on its own host, as its own user, around each job. Each is named by an
    absolute path; only that user and root may be able to change it. Applies at a restart, to jobs that start from then on.
    Those of nodes are `esnoded --prolog` and `--epilog`.
    """

    controller_prolog: str = ""
    """Program that runs before anything of a job reaches its nodes; if it fails, the job is tried again later."""
    controller_epilog: str = ""
    """Program that runs when nothing of a job is left on its nodes, and before the job's end is final."""
    controller_limit_s: Annotated[int, Meta(ge=1, le=86_400)] = LIMIT_S
    """Seconds after which either is ended, and has failed."""
    controller_running_max: Annotated[int, Meta(ge=1, le=1024)] = RUNNING_MAX
    """Most of them that run at once; the others wait for their turn."""


def phase_problems(section: PhasesSection) -> Iterator[OptionError]:
    """Programs that are not named by an absolute path."""
    for key in ("controller_prolog", "controller_epilog"):
        path = getattr(section, key)
        if path and (not path.startswith("/") or "\0" in path):
            yield OptionError(f"phases.{key}", path, "is not an absolute path", "name the program from / on")


def programs_of(section: PhasesSection) -> ControllerPrograms | None:
    """The core's part of it; None when there is no program."""
    if not section.controller_prolog and not section.controller_epilog:
        return None
    return ControllerPrograms(
        section.controller_prolog,
        section.controller_epilog,
        section.controller_limit_s,
        section.controller_running_max,
    )
