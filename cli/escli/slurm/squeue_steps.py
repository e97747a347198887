"""`squeue -s`: the steps that run, in Slurm's usual columns."""

from __future__ import annotations

import os
import sys

from escli import exits
from escli.slurm import frame
from escli.slurm.scontrol_steps import steps_of
from eslurm.compat.durations import format_duration
from eslurm.compat.slurm.step_records import HEADS, line_of, step_row

TYPE_CHECKING = False
if TYPE_CHECKING:
    from escli.slurm.frame import Context
    from eslurm.compat.slurm.getopt import Options

_TAKEN = ("steps", "jobs", "user", "me", "partitions", "noheader", "verbose", "all", "hide", "local")


def show_steps(context: Context, given: Options) -> int:
    """The command; returns the exit code. Raises Failed for an option that does not go with steps here."""
    for row, _, spelling in given.found:
        if row.long not in _TAKEN:
            raise frame.Failed(f"squeue: error: {spelling} is not supported with --steps")
    named = [*given.listed("steps"), *given.listed("jobs"), *given.rest]
    users = set(given.listed("user")) | ({str(os.getuid())} if given.has("me") else set())
    partitions = set(given.listed("partitions"))
    with context.open_api() as api:
        found, now_us = steps_of(api, named)
    lines = [] if given.has("noheader") else [line_of(HEADS)]
    for info in found:
        if users and not users & {info.user, str(info.uid)}:
            continue
        if partitions and info.partition not in partitions:
            continue
        lines.append(line_of(step_row(info, format_duration((now_us - info.created_us) // 1_000_000))))
    sys.stdout.write("".join(lines))
    return exits.OK
