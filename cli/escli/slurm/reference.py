"""The page `docs/reference/slurm-commands.md`: what Slurm's commands take and show, from their tables."""

from __future__ import annotations

from importlib import import_module

from escli.slurm.launch import COMMANDS, MODULES
from eslurm.compat.slurm import (
    diag,
    job_fields,
    manager_fields,
    manager_words,
    node_fields,
    report_words,
    run_fields,
    salloc_options,
    sbatch_options,
    srun_options,
    usage_fields,
)
from eslurm.compat.slurm.getopt import DONE, HARMLESS, REFUSED
from eslurm.compat.slurm.release import FULL
from eslurm.compat.slurm.scontrol_options import COMMANDS as CONTROLS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from eslurm.compat.slurm.abbreviated import Word
    from eslurm.compat.slurm.getopt import Row

INTRO = """\
Slurm's commands over an eslurm cluster ([guide](../guide/slurm-commands.md)): what they take and show. An option that is not
here, or is marked *no*, ends the command with one line and exit code 1: nothing that changes what a job means is left out
silently. *No effect* says that an option, or some of its values, mean nothing here, and why.
"""

_VARIABLES = {
    "sbatch": sbatch_options.VARIABLES,
    "salloc": salloc_options.VARIABLES,
    "srun": srun_options.VARIABLES,
}


def page(note: str) -> str:
    """The whole page; `note` says that it is generated."""
    parts = [f"# Slurm's commands\n\n{note}\n{INTRO}\nReleases: {', '.join(FULL.values())}.\n"]
    parts += ["\n".join(_section(command)) + "\n" for command in COMMANDS]
    return "\n".join(parts)


def _section(command: str) -> Iterator[str]:
    yield f"## `{command}`"
    yield ""
    if command == "srun":
        yield "As `esrun`. Options *(outside of jobs)* ask for nodes, and are refused inside of jobs."
        yield "All that are not in this table are refused."
        yield ""
    yield from _options(import_module(MODULES[command]).ROWS)
    if command in _VARIABLES:
        yield ""
        given = ", ".join(f"`{name}`" for name in sorted(_VARIABLES[command]))
        where = " outside of jobs" if command == "srun" else ""
        yield f"Variables that give options{where}: {given}."
    if command == "scontrol":
        yield ""
        yield "| command | | |"
        yield "|---|---|---|"
        yield from _commands(CONTROLS)
    if command == "sacctmgr":
        yield from _manager()
    if command == "sreport":
        yield from _report()
    if command == "sdiag":
        yield ""
        yield "| figure | here |"
        yield "|---|---|"
        for name, text in diag.FIGURES.items():
            yield f"| {name} | {_cell(text)} |"
        yield ""
        messages = ", ".join(f"`{message}` ({name})" for name, (message, _) in sorted(diag.MESSAGES.items()))
        yield f"Calls with a message of Slurm's: {messages}. Others are `ESLURM_` and their own name and number."
    if command == "squeue":
        yield ""
        letters = ", ".join(f"`%{letter}`" for letter in sorted(job_fields.BY_LETTER))
        yield f"Letters of `-o`: {letters}. Names of `-O`: {_listed(job_fields.FIELDS)}."
    if command == "sinfo":
        yield ""
        letters = ", ".join(f"`%{letter}`" for letter in sorted(node_fields.BY_LETTER))
        yield f"Letters of `-o`: {letters}. Names of `-O`: {_listed(node_fields.FIELDS)}."
    if command == "sstat":
        yield from _usage()
    if command == "sacct":
        yield ""
        yield f"Columns: {_listed(run_fields.CELLS)}."
        yield ""
        unknown = [name for name in run_fields.WIDTHS if name not in run_fields.CELLS]
        yield f"Columns that are empty, as what they show is not kept: {_listed(unknown)}."


def _usage() -> Iterator[str]:
    yield ""
    yield f"Columns: {_listed(usage_fields.CELLS)}. `AllocTRES` is not in 22.05."
    yield ""
    yield "A task's memory (`RSS`, `VMSize`) is that of its processes now, or the most that one of them has had if that is"
    yield "more. Pages are faults that took the disk. Only tasks that live are counted."
    yield ""
    yield f"Columns that are 0, as what they show is not measured: {_listed(sorted(usage_fields.ZEROS))}."
    yield ""
    all_names = usage_fields.widths_of("")
    unknown = [
        name for name in all_names if name not in usage_fields.CELLS and name not in usage_fields.ZEROS
    ]
    yield f"Columns that are empty: {_listed(unknown)}."


def _commands(table: Mapping[str, str]) -> Iterator[str]:
    for name, text in table.items():
        status, _, note = text.partition(" ")
        yield f"| `{name}` | {'yes' if status == DONE else '**no**'} | {_cell(note)} |"


def _manager() -> Iterator[str]:
    yield ""
    yield "| command | | |"
    yield "|---|---|---|"
    yield from _commands(manager_words.VERBS)
    for title, tables in (("setting", manager_words.SETTINGS), ("condition", manager_words.CONDITIONS)):
        for entity, words in tables.items():
            yield ""
            yield f"| {title} of {_article(entity)} | | |"
            yield "|---|---|---|"
            yield from _words(words)
    yield ""
    heads = dict.fromkeys(field[3] for field in manager_fields.FIELDS)
    yield f"Columns: {_listed(head for head in heads if head not in manager_fields.EMPTY)}."
    yield ""
    yield f"Columns that are empty, as nothing of the kind can be set: {_listed(sorted(manager_fields.EMPTY))}."


def _report() -> Iterator[str]:
    yield ""
    yield "| report | | |"
    yield "|---|---|---|"
    yield from _commands(report_words.REPORTS)
    for report, words in report_words.CONDITIONS.items():
        yield ""
        yield f"| condition of {report} | | |"
        yield "|---|---|---|"
        yield from _words(words)
        yield ""
        heads = dict.fromkeys(field[3] for field in report_words.FIELDS[report])
        yield f"Columns: {_listed(heads)}."


def _words(words: Iterable[Word]) -> Iterator[str]:
    for word in words:
        status = {REFUSED: "**no**", HARMLESS: "no effect"}.get(word.key, "yes")
        yield f"| `{word.name}` | {status} | {_cell(word.note)} |"


def _article(noun: str) -> str:
    return f"an {noun}" if noun.startswith("a") else f"a {noun}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _options(rows: Sequence[Row]) -> Iterator[str]:
    yield "| option | | |"
    yield "|---|---|---|"
    for row in rows:
        short = f"`-{row.short}`, " if row.short else ""
        yield f"| {short}`{row.spelling}` | {_status(row)} | {_cell(row.note)} |"


def _status(row: Row) -> str:
    if row.treatment == DONE:
        return "yes"
    if row.treatment == REFUSED:
        return "**no**"
    if row.treatment == HARMLESS:
        return "no effect"
    if row.treatment.startswith("as:"):
        return f"as `--{row.treatment[3:]}`"
    values = [value or "no value" for value in row.treatment[5:].split("|")]
    return f"only {' or '.join(dict.fromkeys(values))}" + ("" if row.long == "exclusive" else ": no effect")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
