"""`scontrol show licenses`, `show reservation` and `show topology`."""

from __future__ import annotations

import json
import os
import sys

from escli import exits
from escli.slurm import frame
from eslurm.compat.slurm import site_records

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

_LAST_US = 253_000_000_000_000_000
_HORIZON_US = 366 * 86_400_000_000
"""The time ahead within which a recurring reservation is looked for."""


def show_licenses(api: Any, named: Sequence[str], *, is_oneliner: bool) -> int:
    """The cluster-wide resources, and how many of each running jobs hold."""
    from eslurm.v1 import controller_pb2 as pb

    totals = {one["name"]: one["wide_total"] for one in _config(api)["resources"] if one["wide_total"]}
    if not totals:
        frame.print_line("No licenses configured in Slurm.")
        return exits.OK
    used: dict[str, int] = {}
    for info in api.call("Jobs", pb.JobsRequest()).jobs:
        if info.state in ("LAUNCHING", "RUNNING", "COMPLETING", "SUSPENDED"):
            for name, count in site_records.licences_of(info.resources).items():
                used[name] = used.get(name, 0) + count
    for name in sorted(totals):
        if not named or name in named:
            record = site_records.licence_record(
                name, totals[name], used.get(name, 0), is_oneliner=is_oneliner
            )
            sys.stdout.write(record)
    return exits.OK


def show_reservations(api: Any, named: Sequence[str], release: str, *, is_oneliner: bool) -> int:
    """The reservations; of one that recurs its present or next time. Those that are over are not shown."""
    from eslurm.v1 import controller_pb2 as pb

    reply = api.call("Policies", pb.PoliciesRequest(kind="reservation"))
    found = [one for one in reply.policies if not named or one.name in named]
    times_of = _times(_config(api)["zone"], reply.now_us) if found else None
    nodes = api.call("Nodes", pb.NodesRequest()).nodes if found else ()
    cores = {node.name: node.cores for node in nodes}
    moment = frame.moment_writer(os.environ)
    shown = 0
    for one in found:
        settings = json.loads(one.json or "{}")
        times_us = times_of(settings) if times_of is not None else None
        if times_us is None:
            continue
        shown += 1
        sys.stdout.write(
            site_records.reservation_record(
                one.name,
                settings,
                times_us,
                cores,
                moment,
                now_us=reply.now_us,
                release=release,
                is_oneliner=is_oneliner,
            )
        )
    if shown:
        return exits.OK
    frame.print_line(f"Reservation {named[0]} not found" if named else "No reservations in the system")
    return exits.FAILED if named else exits.OK


def show_topology(api: Any, named: Sequence[str]) -> int:
    """The switches: all, or those that are named or have a named node below them."""
    wanted = named[0].partition("=")[2] or named[0] if named else ""
    switches = _config(api)["switches"]
    lines = site_records.topology_lines(switches, wanted)
    if not lines:
        why = (
            f"switch or node {wanted} not found"
            if switches and wanted
            else "No topology information available"
        )
        frame.print_error(f"scontrol: {why}")
        return exits.FAILED if switches else exits.OK
    frame.print_line("\n".join(lines))
    return exits.OK


def _times(zone: str, now_us: int) -> Callable[[Mapping[str, str]], tuple[int, int] | None]:
    """The function that finds a reservation's present or next time; None: it is over."""
    from eslurm.calendar import SiteCalendar
    from eslurm.compat.validity import parse_validity

    calendar = SiteCalendar(zone)

    def times(settings: Mapping[str, str]) -> tuple[int, int] | None:
        validity = parse_validity(settings["validity"], "validity", calendar.offset_s)
        if not validity.cron:
            until_us = validity.until_us or _LAST_US
            return (validity.from_us or now_us, until_us) if until_us > now_us else None
        # From a day before: the window that is open now has begun.
        windows = calendar.windows(validity, now_us - _HORIZON_US // 12, now_us + _HORIZON_US)
        return next(((since, until) for since, until in windows if until > now_us), None)

    return times


def _config(api: Any) -> dict[str, Any]:
    from eslurm.v1 import controller_pb2 as pb

    found: dict[str, Any] = json.loads(api.call("Config", pb.ConfigRequest()).json)
    return found
