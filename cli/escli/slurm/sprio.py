"""`sprio`: the parts of the priorities of waiting jobs."""

from __future__ import annotations

import sys

from escli import exits
from escli.slurm import frame
from eslurm.compat.errors import whole_number
from eslurm.compat.slurm import layout
from eslurm.compat.slurm.getopt import UsageProblem
from eslurm.compat.slurm.small_options import PRIORITY_DEFAULT, PRIORITY_LONG, SPRIO

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from escli.slurm.frame import Context
    from eslurm.compat.slurm.getopt import Options


ROWS = SPRIO


def _points(name: str) -> Callable[[Any], str]:
    return lambda one: f"{getattr(one, name):.0f}" if not one.given else "0"


FIELDS: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "A": ("AGE", _points("age_points")),
    "B": ("ASSOC", lambda _: "0"),
    "F": ("FAIRSHARE", _points("fairshare_points")),
    "i": ("JOBID", lambda one: str(one.job_id)),
    "J": ("JOBSIZE", _points("size_points")),
    "N": ("NICE", lambda one: str(one.nice)),
    "n": ("QOSNAME", lambda one: one.qos),
    "o": ("ACCOUNT", lambda one: one.account),
    "P": ("PARTITION", _points("partition_points")),
    "Q": ("QOS", _points("qos_points")),
    "r": ("PARTITION", lambda one: one.partition),
    "S": ("SITE", lambda one: str(one.priority) if one.given else "0"),
    "T": ("TRES", lambda _: ""),
    "u": ("USER", lambda one: one.user),
    "Y": ("PRIORITY", lambda one: str(one.priority)),
}


def run(context: Context, given: Options) -> int:
    """The command; returns the exit code."""
    from eslurm.v1 import controller_pb2 as pb

    columns = layout.letters(
        given.last("format") or (PRIORITY_LONG if given.has("long") else PRIORITY_DEFAULT)
    )
    for column in columns:
        if column.key not in FIELDS:
            raise UsageProblem(f"error: Invalid job format specification: {column.key}")
    jobs = [whole_number(word, 10) for word in [*given.listed("jobs"), *given.rest]]
    if any(job < 0 for job in jobs):
        raise UsageProblem("error: Invalid job id")
    with context.open_api() as api:
        found = api.call("Shares", pb.SharesRequest(priorities=True, jobs=jobs)).priorities
    users, partitions = given.listed("user"), given.listed("partition")
    if jobs and not found:
        raise frame.Failed("Unable to find jobs matching user/id(s) specified")
    if not given.has("noheader"):
        frame.print_line("".join(column.show(FIELDS[column.key][0]) for column in columns))
    for one in found:
        if (users and one.user not in users) or (partitions and one.partition not in partitions):
            continue
        sys.stdout.write("".join(column.show(FIELDS[column.key][1](one)) for column in columns) + "\n")
    return exits.OK
