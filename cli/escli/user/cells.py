"""One question to several cells of the federation, and their answers in one table: `--cells all`, `--cells alpha,beta`.

All are asked at once, with one deadline. A cell that does not answer is a line on standard error, and the others are shown.
"""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor

from escli import exits, program
from escli.api import Api, find_endpoint
from escli.as_json import fields_of
from escli.cells import CellApi
from escli.failures import CommandFailed
from escli.tables import Column
from escli.user.federation import ask as ask_federation
from escli.user.federation import silence
from eslurm.compat.errors import OptionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from escli.options import Words

ALL = "all"
CELLS_S = 5.0
"""For the answer of another cell."""
AT_ONCE_MAX = 16
_NOT_WITH = ("cell", "packs", "satellites", "controllers", "federation")


class OfCell:
    """One cell and its answer; None: there is none, and `error` says why."""

    __slots__ = ("age_ms", "answer", "error", "name", "state")

    def __init__(self, name: str, state: str, age_ms: int) -> None:
        self.name = name
        self.state = state
        self.age_ms = age_ms
        self.answer: Any = None
        self.error = ""


def cells_named(given: Words) -> str:
    """The cells that `--cells` or `--clusters` names; empty when this is about one cell alone. Raises OptionError."""
    long = "cells" if given.has("cells") else "clusters"
    text = given.text(long)
    if long == "clusters" and text != ALL and "," not in text:
        return ""
    for other in _NOT_WITH:
        if given.has(other):
            way_out = "leave one of them out"
            raise OptionError(
                given.spelling(other), None, f"does not go with {given.spelling(long)}", way_out
            )
    if not all(text.split(",")):
        raise OptionError(given.spelling(long), text, "names no cells", "use e.g. --cells all")
    return text


def ask_cells(given: Words, command: str, ask: Callable[[Api], Any], text: str = "") -> list[OfCell]:
    """The cells in order of name, and what `ask` gets from each. Raises CommandFailed for a name that is no cell's.

    `text` names cells besides the cluster's own; empty: those that the options name.
    """
    endpoint = find_endpoint(given, os.environ)
    with Api(endpoint, command) as api:
        reply = ask_federation(api)
    known = {one.name: one for one in reply.cells if one.state != "left"}
    text = f"{text},{reply.cell}" if text not in ("", ALL) else text or cells_named(given)
    names = sorted(known) if text == ALL else list(dict.fromkeys(text.split(",")))
    alive = ", ".join(sorted(name for name, one in known.items() if one.state == "alive"))
    found: list[OfCell] = []
    for name in names:
        if name not in known:
            label = given.spelling(next(long for long in ("cells", "cell", "clusters") if given.has(long)))
            raise CommandFailed(exits.FAILED, f"{label} {name}: no such cell: alive are {alive or 'none'}")
        one = known[name]
        found.append(OfCell(name, one.state, one.age_ms))
        if one.state == "silent" and name != reply.cell:
            found[-1].error = f"silent, {silence(one)}" if silence(one) else "silent"

    def answer(cell: OfCell) -> None:
        api = (
            Api(endpoint, command)
            if cell.name == reply.cell
            else CellApi(endpoint, command, cell.name, "", CELLS_S)
        )
        try:
            with api:
                cell.answer = ask(api)
        except CommandFailed as failure:
            cell.error = failure.text

    asked = [cell for cell in found if not cell.error]
    with ThreadPoolExecutor(min(AT_ONCE_MAX, max(1, len(asked)))) as pool:
        list(pool.map(answer, asked))
    for cell in found:
        if cell.error:
            program.warn(command, f"cell {cell.name}: {cell.error}")
    return found


def joint(
    tables: Iterable[tuple[str, Sequence[Column], Sequence[Sequence[str]]]],
    *,
    width: int = 0,
) -> tuple[list[Column], list[list[str]]]:
    """The tables of several cells, which have the same columns, as one with the cell first; without any, an empty one."""
    found = list(tables)
    if not found:
        return [], []
    rows = [[name, *row] for name, _columns, part in found for row in part]
    return [Column("CELL", width=width), *found[0][1]], rows


def to_json(
    cells: Sequence[OfCell],
    field: str,
    records: Callable[[Any], Iterable[Any]],
    fields: Callable[[Any], dict[str, Any]] = fields_of,
) -> str:
    """The cells, and under `field` the records of their answers, each with its cell."""
    about = [
        {"name": one.name, "state": one.state, "age_ms": one.age_ms, "error": one.error or None}
        for one in cells
    ]
    found = [
        {"cell": one.name, **fields(record)}
        for one in cells
        if one.answer is not None
        for record in records(one.answer)
    ]
    return json.dumps({"cells": about, field: found}, indent=1) + "\n"
