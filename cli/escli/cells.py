"""Calls to other cells of the federation: the cluster's own leader passes them on, and passes the answers back."""

from __future__ import annotations

import os
import re

from escli import exits
from escli.api import SOCKET, Api, Raw, RawMethod
from escli.endpoint import Endpoint
from escli.failures import CommandFailed
from escli.wire import WireError, decode, encode
from escli.wire_tables import CALL_CELL_REPLY, CALL_CELL_REQUEST
from eslurm.compat.errors import OptionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from escli.options import Words

HERE = "here"
"""In place of a cell's name: the cluster's own."""
ANY_CELL = "any"
ANY = (ANY_CELL, "all")
"""In place of cells' names: all of the federation. Slurm's word is `all`."""
CALL_CELL = 46
OF_ROOT = "root's commands"
"""Beginning of the refusal of a call that root makes to another cell."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


def cell_api(given: Words, endpoint: Endpoint, command: str) -> Api:
    """The API of the cell that `--cell` or `--clusters` names. Raises OptionError."""
    cell, spelling = named_cell(given)
    return CellApi(endpoint, command, cell, f"{spelling} {cell}") if cell != HERE else Api(endpoint, command)


def movable_among(given: Words) -> list[str]:
    """The cells any of which may run the job: several names, or `any`; empty: one is named, or none. Raises OptionError."""
    long = "cell" if given.has("cell") else "clusters"
    text = given.text(long)
    if not given.has(long) or (text not in ANY and "," not in text):
        return []
    if given.has("cell") and given.has("clusters"):
        raise OptionError(
            given.spelling("clusters"), given.text("clusters"), "means the same as --cell", "give one of them"
        )
    if text in ANY:
        return [ANY_CELL]
    names = text.split(",")
    wrong = next((name for name in names if name in (*ANY, HERE) or not _NAME.fullmatch(name)), None)
    if wrong is not None:
        raise OptionError(
            given.spelling(long),
            text,
            f"has '{wrong}', which is no cell",
            "name those of `esinfo --federation`",
        )
    return names


def named_cell(given: Words) -> tuple[str, str]:
    """The one cell that is named, and by which option. Raises OptionError."""
    if given.has("cell") and given.has("clusters"):
        raise OptionError(
            given.spelling("clusters"), given.text("clusters"), "means the same as --cell", "give one of them"
        )
    long = "cell" if given.has("cell") else "clusters"
    name = given.text(long)
    if name in ANY or not _NAME.fullmatch(name):
        raise OptionError(
            given.spelling(long), name, "does not name one cell", "name one of `esinfo --federation`"
        )
    return name, given.spelling(long)


class CellApi(Api):
    """Calls that another cell answers. `label`, if any, stands before its refusals; no call takes longer than `most_s`."""

    def __init__(
        self, endpoint: Endpoint, command: str, cell: str, label: str, most_s: float | None = None
    ) -> None:
        super().__init__(endpoint, command)
        self._cell = cell
        self._label = label
        self._most_s = most_s

    def another(self) -> Api:
        return CellApi(self._endpoint, self._command, self._cell, self._label, self._most_s)

    def _call(self, method: Any, request: Any, timeout_s: float, request_id: bytes | None) -> Any:
        if self._most_s is not None:
            timeout_s = min(timeout_s, self._most_s)
        body = {"cell": self._cell, "method": method.name, "request": request.SerializeToString()}
        passing = RawMethod("CallCell", CALL_CELL, method.mutating)
        try:
            reply = super()._call(passing, Raw(encode(body, CALL_CELL_REQUEST)), timeout_s, request_id)
        except CommandFailed as failure:
            text = self._labelled(failure.text + self._for_root(failure))
            raise CommandFailed(failure.code, text) from None
        try:
            return _decoded(method, decode(reply.data, CALL_CELL_REPLY)["reply"])
        except WireError:
            text = self._labelled("its answer makes no sense to this release of the command")
            raise CommandFailed(exits.FAILED, text) from None

    def _labelled(self, text: str) -> str:
        return f"{self._label}: {text}" if self._label else text

    def _for_root(self, failure: CommandFailed) -> str:
        """The line by which root's command reaches a cell of `eslurm up --cells`, which no other cell passes it on to."""
        if failure.code != exits.FAILED or os.geteuid() or not failure.text.startswith(OF_ROOT):
            return ""
        own = os.path.dirname(os.path.realpath(self.path))
        directory = os.path.join(os.path.dirname(own), self._cell)
        if not os.path.exists(os.path.join(directory, SOCKET)):
            return ""
        return f"; its own is here: ESLURM_STATE_DIR={directory} {self._command} ..."

    def _not_ready(self, why: str, timeout_s: float) -> str:
        return why


def _decoded(method: Any, data: bytes) -> Any:
    """The reply within. Raises WireError."""
    if isinstance(method, RawMethod):
        return method.reply.FromString(data)
    from google.protobuf.message import DecodeError

    try:
        return method.reply.FromString(data)
    except DecodeError as error:
        raise WireError(str(error)) from None
