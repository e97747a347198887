"""`esctl shares`: the tree of accounts and users with shares, usage and rank; and `esctl priority`: the parts of the
priorities of waiting jobs.
"""

from __future__ import annotations

from escli import exits, program
from escli.job_refs import job_refs, split_jobs
from escli.tables import Column, render
from eslurm.compat.durations import format_duration
from eslurm.compat.errors import OptionError, escaped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from escli.api import Api
    from escli.options import Words

_PARTS = (
    "JOBID",
    "PARTITION",
    "USER",
    "ACCOUNT",
    "PRIORITY",
    "AGE",
    "FAIRSHARE",
    "SIZE",
    "PARTITION",
    "QOS",
    "NICE",
)
_COLUMNS = ("ACCOUNT", "USER", "SHARES", "NORM_SHARES", "USAGE", "NORM_USAGE", "LEVEL", "FACTOR")
_OTHERS_AT = _COLUMNS.index("NORM_USAGE")


def shares(api: Api, words: list[str], given: Words) -> int:
    """`esctl shares [account=NAME] [user=NAME]`."""
    from eslurm.v1 import controller_pb2 as pb

    chosen = _selection(words)
    reply = api.call("Shares", pb.SharesRequest())
    rows = _chosen(reply.shares, chosen)
    if given.has("json"):
        from escli.as_json import to_json

        answer = pb.SharesReply(
            shares=rows,
            half_life_s=reply.half_life_s,
            now_us=reply.now_us,
            sums=reply.sums,
            cells=reply.cells,
        )
        program.say(to_json(answer))
    else:
        text = table(rows, _depths(reply.shares), others=reply.sums).rstrip("\n")
        none = "nothing of that name has shares" if chosen else "no accounts, and nobody has used anything"
        program.say(text if rows else none)
        if reply.sums:
            program.say(others_text(reply.cells))
    return exits.OK


def _selection(words: Sequence[str]) -> dict[str, str]:
    chosen: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if key.lower() not in ("account", "user") or not equals or not value:
            raise OptionError("shares", word, "selects nothing", "use account=NAME or user=NAME, or neither")
        chosen[key.lower()] = value
    return chosen


def _chosen(rows: Sequence[Any], chosen: dict[str, str]) -> list[Any]:
    """The chosen rows; of an account all below it, too."""
    inside = {chosen.get("account", "")}
    kept: list[Any] = []
    for row in rows:
        if "account" in chosen and row.account not in inside and row.parent not in inside:
            continue
        if not row.user:
            inside.add(row.account)
        if chosen.get("user", row.user) == row.user:
            kept.append(row)
    return kept


def _depths(rows: Sequence[Any]) -> dict[str, int]:
    """Depth of each account; parents come first."""
    depths = {"": -1}
    for row in rows:
        if not row.user:
            depths[row.account] = depths.get(row.parent, -1) + 1
    return depths


def table(rows: Sequence[Any], depths: dict[str, int], *, others: bool = False) -> str:
    """One line per account and user, accounts indented by depth; FACTOR is a user's only.

    `others`: with the usage in other cells, which NORM_USAGE and LEVEL count, too.
    """
    cells = [
        [
            " " * max(0, depths.get(row.account, 0)) + (row.account or "-"),
            row.user,
            str(row.shares),
            f"{row.norm_shares:.4f}",
            f"{row.usage:.0f}",
            f"{row.norm_usage:.4f}",
            "unused" if row.level < 0 else f"{row.level:.4g}",
            f"{row.factor:.4f}" if row.user else "",
        ]
        for row in rows
    ]
    heads = list(_COLUMNS)
    if others:
        heads.insert(_OTHERS_AT, "OTHERS")
        for line, row in zip(cells, rows, strict=True):
            line.insert(_OTHERS_AT, f"{row.others:.0f}")
    columns = [Column(head, right=at >= 2) for at, head in enumerate(heads)]
    return render(columns, cells)


def others_text(cells: Sequence[Any]) -> str:
    """The cells whose usage OTHERS is, with its age, and those whose usage does not count."""
    counted = [
        f"{one.cell} ({format_duration(one.age_ms // 1000)} old{_without(one.left_out)})"
        for one in cells
        if not one.problem
    ]
    lines = [
        f"OTHERS: usage in {', '.join(counted)}" if counted else "OTHERS: no usage in other cells is known"
    ]
    lines += [f"Usage in {one.cell} does not count: {escaped(one.problem)}" for one in cells if one.problem]
    return "\n".join(lines)


def _without(left_out: int) -> str:
    return f", without {left_out} users of small accounts" if left_out else ""


def priority(api: Api, words: list[str], given: Words) -> int:
    """`esctl priority [JOB ...]`."""
    from eslurm.v1 import controller_pb2 as pb

    refs = job_refs([part for word in words for part in split_jobs(word)], "priority")
    if any(ref.cell for ref in refs):
        raise OptionError(
            "priority", " ".join(words), "names a cell", "ask that cell: esctl --cell CELL priority"
        )
    jobs = [ref.job_id for ref in refs]
    reply = api.call("Shares", pb.SharesRequest(priorities=True, jobs=jobs))
    if given.has("json"):
        from escli.as_json import to_json

        program.say(to_json(reply))
    else:
        none = "none of these jobs waits for its turn" if jobs else "no job waits for its turn"
        program.say(priority_table(reply.priorities).rstrip("\n") if reply.priorities else none)
    return exits.OK if reply.priorities or not jobs else exits.FAILED


def priority_table(rows: Sequence[Any]) -> str:
    """One line per job, the highest first; a number that was set has no parts."""
    cells = []
    for row in rows:
        points = (row.age_points, row.fairshare_points, row.size_points, row.partition_points, row.qos_points)
        parts = [f"{one:.0f}" if not row.given else "-" for one in points]
        cells.append(
            [
                str(row.job_id),
                row.partition,
                row.user,
                row.account or "-",
                str(row.priority),
                *parts,
                str(row.nice) if not row.given else "-",
            ]
        )
    return render([Column(head, right=at == 0 or at >= 4) for at, head in enumerate(_PARTS)], cells)
