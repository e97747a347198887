"""`sreport`: time used by accounts, users and sizes of jobs between two times, from accounting and the jobs that run."""

from __future__ import annotations

import os
import sys

from escli import clock, exits, used_runs
from escli.failures import CommandFailed
from escli.slurm import frame
from eslurm.compat.errors import OptionError
from eslurm.compat.moments import parse_moment
from eslurm.compat.slurm import report, report_words
from eslurm.compat.slurm.abbreviated import Unusable
from eslurm.compat.slurm.getopt import UsageProblem
from eslurm.compat.slurm.report import ClusterUse, Shape, Use
from eslurm.compat.slurm.report_words import ROWS as ROWS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from escli.slurm.frame import Context
    from eslurm.compat.slurm.getopt import Options
    from eslurm.compat.slurm.report_words import Request

_SECOND_US = 1_000_000
_PERCENTS = ("SecPer", "MinPer", "HourPer", "Percent")


def run(context: Context, given: Options) -> int:
    """The command; returns the exit code."""
    try:
        return frame.without_collection(lambda: _show(context, given))
    except Unusable as problem:
        raise frame.Failed(*problem.lines) from None


def _show(context: Context, given: Options) -> int:
    name, rest = report_words.report_of(given.rest)
    request = report_words.read(name, rest)
    shape = _shape(given, request)
    clusters = ["all"] if given.has("all_clusters") or request.has("all") else []
    clusters += given.listed("cluster") + request.values("cluster")
    found = []
    try:
        with context.open_api() as api:
            own = frame.own_cluster(api)
            for cluster in frame.cell_names(api, clusters, own) if clusters else [own]:
                if cluster == own:
                    found.append(_used(api, own, shape))
                    continue
                with context.cluster_api(cluster, own) as cell:
                    found.append(_used(cell, cluster, shape))
    except CommandFailed as failure:
        raise frame.Failed(f"sreport: error: {frame.trouble(failure)}") from None
    write = frame.moment_writer(os.environ)
    sys.stdout.write(report.text(request, found, shape, lambda at_s: write(at_s * _SECOND_US), _proper_name))
    return exits.OK


def _shape(given: Options, request: Request) -> Shape:
    unit = report_words.unit_of(given.last("t"))
    tres = report_words.tres_of(given.last("tres") or os.environ.get("SREPORT_TRES", ""))
    if "node" in tres and (request.report == report_words.UTILIZATION or unit in _PERCENTS):
        where = "the Cluster Utilization report" if unit not in _PERCENTS else "percent format reports"
        raise Unusable(
            f"sreport: fatal: TRES node usage is no longer reported in {where}.  Please use TRES CPU instead."
        )
    by_name = False
    if given.has("sort"):
        text = given.last("sort").lower()
        by_name = bool(text) and "name".startswith(text)
        if not by_name and text != "time":
            raise UsageProblem(f"error: unknown timesort format {given.last('sort')}")
    now_us = clock.now_us()
    start, end = (_moment(request, key, now_us) for key in ("start", "end"))
    since_s, until_s = report.window(start, end, now_us, clock.local_offset_s)
    is_parsable = given.has("parsable") or given.has("parsable2")
    return Shape(
        since_s,
        until_s,
        unit=unit,
        tres=tres,
        by_name=by_name,
        has_header=not given.has("noheader"),
        ending="|" if is_parsable else None,
        is_ended=given.has("parsable") and not given.has("parsable2"),
    )


def _moment(request: Request, key: str, now_us: int) -> int | None:
    text = request.last(key)
    if not text:
        return None
    try:
        return parse_moment(text, now_us, clock.local_offset_s, key, past=True)
    except OptionError:
        raise Unusable(f"sreport: error: Invalid time specification (pos=0): {text}") from None


def _used(api: Any, name: str, shape: Shape) -> ClusterUse:
    """Use of a cluster by its runs, its accounts, and its nodes and cores."""
    import json

    from eslurm.v1 import controller_pb2 as pb

    since_us, until_us = shape.since_s * _SECOND_US, shape.until_s * _SECOND_US
    runs, _ = used_runs.fetch(api, since_us, until_us)
    uses = [
        Use(
            one.user,
            one.account,
            one.cpus,
            {"cpu": one.core_us(since_us, until_us), "node": one.node_us(since_us, until_us)},
            one.job_id,
            one.partition,
        )
        for one in runs
    ]
    accounts = api.call("Policies", pb.PoliciesRequest(kind="account")).policies
    parents = {one.name: json.loads(one.json or "{}").get("parent") or report.ROOT for one in accounts}
    nodes = [node for node in api.call("Nodes", pb.NodesRequest()).nodes if "LOGIN" not in node.flags]
    return ClusterUse(name, uses, parents, {"cpu": sum(node.cores for node in nodes), "node": len(nodes)})


def _proper_name(user: str) -> str:
    """A user's name in the system's list of users, as far as the first comma."""
    import pwd

    try:
        return pwd.getpwnam(user).pw_gecos.partition(",")[0]
    except KeyError:
        return ""
