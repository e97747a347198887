"""The page `docs/reference/slurm-conf.md`: what becomes of the keys of a Slurm site's files, from their tables."""

from __future__ import annotations

from eslurm.compat.slurm.conf import keys
from eslurm.compat.slurm.conf.keys import NO, NONE, ONLY, YES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from eslurm.compat.slurm.conf.keys import Row

INTRO = """\
What `eslurm import slurm` ([guide](../guide/moving-from-slurm.md)) makes of each key of a site's files. *Yes* and a key of
the [configuration](configuration.md) mean that it is taken over. *No effect* says why it means nothing here. *No* is
reported with its line, and says what to do instead. A key that is not here is reported, too. Options in files of
`sacctmgr dump` are the [settings of sacctmgr](slurm-commands.md#sacctmgr).
"""
_TABLES = {
    "Keys of `slurm.conf`": keys.GENERAL,
    "`NodeName` lines": keys.NODE,
    "`PartitionName` lines": keys.PARTITION,
    "Other lines": keys.OTHER,
    "`gres.conf`": keys.GRES,
    "`topology.conf`": keys.TOPOLOGY,
}
_READERS = {
    "most": "a number",
    "whole": "a number",
    "number": "seconds",
    "span": "a time",
    "yes": "yes or no",
}


def page(note: str) -> str:
    """The whole page; `note` says that it is generated."""
    parts = [f"# A Slurm site's files\n\n{note}\n{INTRO}"]
    parts += ["\n".join(_section(title, table)) + "\n" for title, table in _TABLES.items()]
    parts += ["\n".join(_section(f"Words of `{name}`", table)) + "\n" for name, table in keys.WORDS.items()]
    return "\n".join(parts)


def _section(title: str, table: Mapping[str, Row]) -> Iterator[str]:
    yield f"## {title}"
    yield ""
    yield "| key | | |"
    yield "|---|---|---|"
    for row in table.values():
        yield f"| `{row.name}` | {_status(row)} | {_cell(_note(row))} |"


def _status(row: Row) -> str:
    if row.how == ONLY:
        values = [f"`{value}`" for value in row.detail.split("|") if value]
        return f"only {' or '.join(values)}: no effect" if values else "**no**"
    if row.how in (YES, NONE, NO):
        return {YES: "yes", NONE: "no effect", NO: "**no**"}[row.how]
    return f"`{row.detail.partition(':')[0]}`"


def _note(row: Row) -> str:
    if row.how in (YES, NONE, NO, ONLY):
        return row.note
    _, reader, bounds = (*row.detail.split(":"), "")[:3]
    low, _, high = bounds.partition("-")
    about = _READERS.get(reader, "")
    return f"{about}, {low} to {high}" if about and bounds and reader != "most" else about


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
