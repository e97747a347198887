"""Makes docs/reference/commands.md from the option table: `python -m escli.reference`."""

from __future__ import annotations

import sys

from escli import exits
from escli.help_text import COMMANDS, option_names
from escli.option_table import rows_of
from escli.options import IGNORED, REFUSED, Option

_INTRODUCTION = """\
# Commands

Made by `python -m escli.reference` from the option table; do not edit.

Options are named as Slurm's wherever the meaning is the same. A long option may be shortened to any unique
beginning; `--` ends the options. `eslurm up`, `status`, `down` and `chaos` are described by `eslurm --help`.

## Which cluster

A command talks to the socket named by `--socket`, else by `ESLURM_SOCKET`, else to `esctld.sock` in
`ESLURM_STATE_DIR` (or `~/.local/state/eslurm`), else to `/run/eslurm/esctld.sock`. Inside a job `ESLURM_SOCKET` is set.
From another host it talks to the controllers of `--remote`, or of `ESLURM_REMOTE` when no socket is named; where there is no
socket at all, to those of `~/.config/eslurm/client.toml` or `/etc/eslurm/client.toml`: see the
[guide](../guide/tls.md#remote-clients).

Of several controllers any socket will do: a standby passes calls on to the leader. `--socket` and
`ESLURM_SOCKET` may name several, as `A:B`; in a directory the others are called `esctld-NAME.sock`. A command tries the
next one when one does not answer, with the same request id, so that nothing is done twice.

Times of day are in the zone of the host the command runs on (`TZ` changes it).
"""


def document() -> str:
    """The whole page."""
    parts = [_INTRODUCTION, _exit_codes()]
    parts += [_section(command) for command in COMMANDS]
    return "\n".join(parts)


def _exit_codes() -> str:
    rows = [f"| {code} | {meaning} |" for code, meaning in exits.MEANINGS]
    return "\n".join(["## Exit codes", "", "| code | meaning |", "|---|---|", *rows, ""])


def _section(command: str) -> str:
    about = COMMANDS[command]
    rows = rows_of(command)
    lines = [f"## {command}", "", "```", about.synopsis, "```", "", about.purpose, ""]
    lines += ["| option | meaning | example |", "|---|---|---|"]
    lines += [_row(row) for row in rows if row.kind not in (IGNORED, REFUSED)]
    for kind, text in ((IGNORED, "Accepted and left out"), (REFUSED, "Known and refused")):
        names = ", ".join(f"`--{row.long}`" for row in rows if row.kind == kind)
        if names:
            lines += ["", f"{text}: {names}."]
    lines += ["", *(f"- `{example}`: {what}" for example, what in about.examples), ""]
    if about.notes:
        lines += [about.notes, ""]
    return "\n".join(lines)


def _row(row: Option) -> str:
    cells = (f"`{option_names(row)}`", row.help, f"`{row.example}`" if row.example else "")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def main() -> int:
    """Write the page to standard output."""
    sys.stdout.write(document())
    return 0


if __name__ == "__main__":
    sys.exit(main())
