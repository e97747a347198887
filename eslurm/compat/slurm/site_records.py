"""Records of `scontrol show` that are of the site: licences, reservations and switches."""

from __future__ import annotations

from eslurm.compat.hostlist import expand, fold
from eslurm.compat.slurm.job_fields import NULL
from eslurm.compat.slurm.layout import padded_clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

_OLD = "22.05"
_LICENCE = "licence/"
_SECOND_US = 1_000_000


def licence_record(name: str, total: int, used: int, *, is_oneliner: bool) -> str:
    """A licence; all of them are the cluster's own."""
    gap = " " if is_oneliner else "\n    "
    return (
        f"LicenseName={name}{gap}Total={total} Used={used} Free={max(0, total - used)} Reserved=0 Remote=no\n"
    )


def licences_of(resources: str) -> dict[str, int]:
    """The licences in a job's `gpu:2,licence/matlab:1`."""
    found: dict[str, int] = {}
    for part in resources.split(","):
        name, _, count = part.rpartition(":")
        if name.startswith(_LICENCE):
            found[name.removeprefix(_LICENCE)] = int(count)
    return found


def reservation_record(
    name: str,
    settings: Mapping[str, str],
    times_us: tuple[int, int],
    cores: Mapping[str, int],
    moment: Callable[[int], str],
    *,
    now_us: int,
    release: str,
    is_oneliner: bool,
) -> str:
    """A reservation, with the empty line that follows it. `cores` are those of nodes by their names."""
    since_us, until_us = times_us
    names = expand(settings["nodes"], "nodes") if settings.get("nodes") else ()
    cpus = sum(cores.get(one, 0) for one in names)
    flags = ["MAINT"] if settings.get("maintenance") == "yes" else []
    flags += ["IGNORE_JOBS"] if "ignore_running" in settings.get("flags", "") else []
    state = "ACTIVE" if since_us <= now_us <= until_us else "INACTIVE"
    users, groups, accounts = (settings.get(key, "") or NULL for key in ("users", "groups", "accounts"))
    is_old = release == _OLD
    lines = [
        f"ReservationName={name} StartTime={moment(since_us)} EndTime={moment(until_us)} "
        f"Duration={padded_clock((until_us - since_us) // _SECOND_US)}",
        f"Nodes={fold(names)} NodeCnt={len(names)} CoreCnt={cpus} Features={NULL} PartitionName={NULL} "
        f"Flags={','.join([*flags, 'SPEC_NODES'])}",
        f"TRES=cpu={cpus}",
        *([] if is_old else [f"AllowedPartitions={NULL} QOS={NULL}"]),
        f"Users={users} Groups={groups} Accounts={accounts} Licenses={NULL} State={state} BurstBuffer={NULL}"
        + (" Watts=n/a" if is_old else ""),
        f"MaxStartDelay={NULL}",
    ]
    return " ".join(lines) + "\n" if is_oneliner else "\n   ".join(lines) + "\n\n"


def topology_lines(switches: Sequence[Mapping[str, Any]], wanted: str) -> list[str]:
    """A line for each switch, or for those that `wanted` (a switch, or a node below them) names; lowest levels first."""
    below = {one["name"]: tuple(one.get("switches", ())) for one in switches}
    own = {one["name"]: tuple(one.get("nodes", ())) for one in switches}
    lines = []
    for name in sorted(below, key=lambda one: (_level(below, one), one)):
        nodes = _nodes_below(below, own, name)
        if wanted in ("", name) or wanted in nodes:
            leaves = f" Switches={fold(below[name])}" if below[name] else ""
            lines.append(
                f"SwitchName={name} Level={_level(below, name)} LinkSpeed=1 Nodes={fold(nodes)}{leaves}"
            )
    return lines


def _level(below: Mapping[str, Sequence[str]], name: str) -> int:
    """The height of a switch: 0 without switches on it. The configuration has no circles."""
    return 1 + max(_level(below, one) for one in below[name]) if below[name] else 0


def _nodes_below(
    below: Mapping[str, Sequence[str]], own: Mapping[str, Sequence[str]], name: str
) -> tuple[str, ...]:
    return (*own[name], *(node for one in below[name] for node in _nodes_below(below, own, one)))
