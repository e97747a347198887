"""The texts of `--help`, from the tables of options: only what is supported is listed."""

from __future__ import annotations

from eslurm.compat.slurm.getopt import FLAG, OPTIONAL, REFUSED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from eslurm.compat.slurm.getopt import Row

_ARGUMENTS = {
    "sbatch": " script [args...]",
    "sreport": " cluster|job|user report [start=time] [end=time] [format=...]",
    "scancel": " [job_id[_array_id]]...",
    "sacctmgr": " show|add|modify|delete entity [name=...] [set name=value...]; dump cluster; load file=...",
    "scontrol": " command [args...]",
}


def help_of(command: str, rows: Sequence[Row]) -> str:
    """The usage, and a line for each option."""
    lines = [f"Usage: {command} [OPTIONS...]{_ARGUMENTS.get(command, '')}", ""]
    for row in rows:
        if row.treatment == REFUSED or row.treatment.startswith("as:"):
            continue
        value = {FLAG: "", OPTIONAL: "[=value]"}.get(row.kind, "=value")
        short = f"-{row.short}, " if row.short else "    "
        name = f"--{row.long}{value}" if len(row.long) > 1 else f"-{row.long}"
        lines.append(f"  {short}{name:<28} {row.note}".rstrip())
    lines += ["", "What is not supported: docs/reference/slurm-commands.md"]
    return "\n".join(lines)
