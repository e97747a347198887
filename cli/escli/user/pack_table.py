"""`esqueue --packs`: a line for each pack with its state, start and size, and one for each of its jobs below."""

from __future__ import annotations

from escli import clock
from escli.tables import columns_of, render
from escli.user.queue_columns import delay_text, job_label, nodes_or_reason, partition_names
from eslurm.compat.errors import escaped
from eslurm.compat.moments import format_moment
from eslurm.compat.states import FINAL_STATES, short_code

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

_COLUMNS = columns_of("JOBID >JOBS >DELAY PARTITION NAME USER ST START_TIME >NODES NODELIST(REASON)")


def packs_of(infos: Iterable[Any]) -> list[list[Any]]:
    """The packs among these jobs, each with its known members in their order; the next one to start comes first."""
    found: dict[int, list[Any]] = {}
    for info in infos:
        if info.pack_id:
            found.setdefault(info.pack_id, []).append(info)
    packs = [sorted(pack, key=lambda info: info.pack_index) for pack in found.values()]
    return sorted(packs, key=lambda pack: (bool(pack[0].pack_start_us), -pack[0].priority, pack[0].pack_id))


def chosen(infos: Iterable[Any], refs: Sequence[Any]) -> list[Any]:
    """Jobs of the packs that these references name, by the pack or by one of its jobs; all without a reference."""
    known = [info for info in infos if info.pack_id]
    if not refs:
        return known
    named = {ref.job_id for ref in refs}
    # A job of several parts has an id for each.
    packs = {
        info.pack_id
        for info in known
        if not named.isdisjoint(range(info.job_id, info.job_id + (len(info.parts) or 1)))
    }
    return [info for info in known if info.pack_id in packs or info.pack_id in named]


def pack_table(infos: Iterable[Any], now_us: int, *, header: bool) -> str:
    """All packs among these jobs."""
    rows: list[list[str]] = []
    for pack in packs_of(infos):
        rows.append(_pack_row(pack))
        rows += [_member_row(info, now_us) for info in pack]
    return render(_COLUMNS, rows, header=header)


def state_of(pack: Sequence[Any]) -> str:
    """The state of a pack: that of its first job until it begins, then whether jobs of it are left."""
    if not pack[0].pack_start_us:
        return str(pack[0].state)
    left = [info for info in pack if info.state not in FINAL_STATES]
    if left:
        return "RUNNING"
    return next((str(info.state) for info in pack if info.state != "COMPLETED"), "COMPLETED")


def start_us(pack: Sequence[Any]) -> int:
    """The start of a pack: the one that anchors it, or the planned one; 0: none is known."""
    first = pack[0]
    if first.pack_start_us or not first.planned_start_us:
        return int(first.pack_start_us)
    return int(first.planned_start_us - first.delay_s * 1_000_000)


def _pack_row(pack: Sequence[Any]) -> list[str]:
    first = pack[0]
    return [
        str(first.pack_id),
        str(first.pack_size),
        "",
        ",".join(dict.fromkeys([partition_names(info) for info in pack])),
        escaped(first.name),
        first.user,
        short_code(state_of(pack)),
        _moment(start_us(pack)),
        str(sum([info.nodes for info in pack])),
        _failure(pack[0]),
    ]


def _failure(first: Any) -> str:
    """`(JobFailed:18, PackFail=cancel)`: whether a job has not ended well, and what becomes of the others then."""
    words = [f"JobFailed:{first.pack_failed}"] if first.pack_failed else []
    words += ["PackFail=cancel"] if first.pack_cancels else []
    return f"({', '.join(words)})" if words else ""


def _member_row(info: Any, now_us: int) -> list[str]:
    return [
        f"  {job_label(info)}",
        "",
        delay_text(info),
        partition_names(info),
        escaped(info.name),
        info.user,
        short_code(info.state),
        _moment(info.started_us or info.planned_start_us),
        str(info.nodes),
        nodes_or_reason(info, now_us),
    ]


def _moment(at_us: int) -> str:
    return format_moment(at_us, clock.local_offset_s)
