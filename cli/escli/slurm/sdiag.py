"""`sdiag`: the counts of the leading controller."""

from __future__ import annotations

import os
import sys
import time

from escli import exits
from escli.slurm import frame
from eslurm.compat.slurm import diag
from eslurm.compat.slurm.getopt import UsageProblem
from eslurm.compat.slurm.release import has_wrapped_numbers
from eslurm.compat.slurm.small_options import SDIAG

TYPE_CHECKING = False
if TYPE_CHECKING:
    from escli.slurm.frame import Context
    from eslurm.compat.slurm.getopt import Options

ROWS = SDIAG
_ORDERS = {"sort-by-id": "id", "sort-by-time": "time", "sort-by-time2": "time2"}


def run(context: Context, given: Options) -> int:
    """The command; returns the exit code."""
    from eslurm.v1 import controller_pb2 as pb

    has_document = frame.wants_document(given)
    if has_document and not has_wrapped_numbers(context.release):
        raise UsageProblem(
            f"unrecognized option '--{'yaml' if given.has('yaml') else 'json'}'", has_hint=True
        )
    clusters = frame.clusters_of(given, os.environ)
    if len(clusters) > 1:
        raise frame.Failed("sdiag: fatal: Only one cluster can be used at a time with sdiag")
    orders = [_ORDERS[row.long] for row, _, _ in given.found if row.long in _ORDERS]
    order = orders[-1] if orders else "count"
    with context.open_api() as own_api:
        own = cluster = frame.own_cluster(own_api) if clusters or has_document else ""
        if clusters and clusters[0] != own:
            cluster = clusters[0]
            with context.cluster_api(cluster, own) as api:
                frame.check_reached(api, cluster, "sdiag")
                reply = api.call("Statistics", pb.StatisticsRequest())
        else:
            reply = own_api.call("Statistics", pb.StatisticsRequest())
    if has_document:
        frame.write_document(given, diag.document(reply, context.release, order, sys.argv, cluster))
    else:
        sys.stdout.write(diag.text(reply, context.release, order, _day))
    return exits.OK


def _day(at_s: int) -> str:
    return time.strftime("%a %b %d %H:%M:%S %Y", time.localtime(at_s))
