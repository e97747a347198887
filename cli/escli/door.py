"""The way from a command to the controller: which socket, and what its failures mean to a person.

Imports nothing at start but what every command needs; the client is imported when it is called.
"""

from __future__ import annotations

import os

from escli import exits
from escli.failures import CommandFailed
from escli.program import warn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from escli.options import Words
    from eslurm.rpc.unix_client import Client

SYSTEM_SOCKET = "/run/eslurm/esctld.sock"
TIMEOUT_S = 30.0
_DEADLINE_EXCEEDED = 4
_UNAVAILABLE = 14
_PATIENCE_FIRST_S = 1.0
_PATIENCE_S = 10.0


def find_socket(option: str, environ: Mapping[str, str]) -> str:
    """The socket to talk to: `--socket`, ESLURM_SOCKET, this user's own cluster, or the machine's.

    Raises CommandFailed (unreachable) when there is none.
    """
    named = option or environ.get("ESLURM_SOCKET", "")
    if named:
        if not os.path.exists(named):
            where = "--socket" if option else "ESLURM_SOCKET"
            raise CommandFailed(
                exits.UNREACHABLE, f"there is no socket {named} ({where}): is its cluster up?"
            )
        return named
    own = os.path.join(state_dir(environ), "esctld.sock")
    for path in (own, SYSTEM_SOCKET):
        if os.path.exists(path):
            return path
    raise CommandFailed(
        exits.UNREACHABLE, f"no cluster here (no {own}): start one with `eslurm up`, or name its --socket"
    )


def state_dir(environ: Mapping[str, str]) -> str:
    """Where this user's own cluster keeps its state: ESLURM_STATE_DIR, or `~/.local/state/eslurm`."""
    return environ.get("ESLURM_STATE_DIR") or os.path.expanduser("~/.local/state/eslurm")


def open_door(given: Words, command: str) -> Door:
    """The door that a command's options and its process's environment name."""
    return Door(find_socket(given.text("socket"), os.environ), command)


class Raw:
    """An encoded message in the place of a protobuf one: it only lends its bytes to the client."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def SerializeToString(self) -> bytes:
        return self.data

    @classmethod
    def FromString(cls, data: bytes) -> Raw:
        return cls(data)


class RawMethod:
    """A method whose messages stay encoded, so that the protobuf runtime need not be imported."""

    __slots__ = ("mutating", "name", "number")
    request = Raw
    reply = Raw

    def __init__(self, name: str, number: int, mutating: bool) -> None:
        self.name = name
        self.number = number
        self.mutating = mutating


SUBMIT = RawMethod("Submit", 2, True)


class Door:
    """Calls of one command. Each raises CommandFailed with the text and exit code to end with."""

    def __init__(self, path: str, command: str) -> None:
        self.path = path
        self._command = command
        self._client: Client | None = None

    def __enter__(self) -> Door:
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._client is not None:
            self._client.close()

    def send(self, method: RawMethod, request: bytes, timeout_s: float, request_id: bytes) -> bytes:
        """One call with messages that the caller encodes and decodes. Every retry is the same `request_id`'s."""
        reply: bytes = self._call(method, Raw(request), timeout_s, request_id).data
        return reply

    def call(
        self, method: str, request: Any, timeout_s: float = TIMEOUT_S, request_id: bytes | None = None
    ) -> Any:
        """One call with protobuf messages."""
        from eslurm.rpc.methods import BY_NAME

        return self._call(BY_NAME[method], request, timeout_s, request_id)

    def _call(self, method: Any, request: Any, timeout_s: float, request_id: bytes | None) -> Any:
        from eslurm.ports.door import DoorRefused, DoorUnreachable

        try:
            return self._patiently(method, request, timeout_s, request_id)
        except DoorRefused as refusal:
            if refusal.status == _DEADLINE_EXCEEDED:
                raise _unknown_outcome(method, f"no answer within {timeout_s:g} s") from None
            if refusal.status == _UNAVAILABLE:
                text = f"the controller was not ready within {timeout_s:g} s: {refusal.text}"
                if method.mutating:
                    raise _unknown_outcome(method, text) from None
                raise CommandFailed(exits.UNREACHABLE, text) from None
            raise CommandFailed(exits.FAILED, refusal.text) from None
        except DoorUnreachable as silence:
            if silence.maybe_done and method.mutating:
                raise _unknown_outcome(method, str(silence)) from None
            text = f"{silence} (`eslurm status` tells more, `eslurm up` starts a cluster)"
            raise CommandFailed(exits.UNREACHABLE, text) from None

    def _patiently(self, method: Any, request: Any, timeout_s: float, request_id: bytes | None) -> Any:
        """Call; when nobody is there at first, say so once and go on trying: a controller starts in seconds."""
        from eslurm.ports.door import DoorUnreachable
        from eslurm.rpc.unix_client import Client

        if request_id is None and method.mutating:
            request_id = os.urandom(16)
        first = self._client is None
        client = self._client = self._client or Client(self.path, _PATIENCE_FIRST_S)
        try:
            return client.call(method, request, timeout_s, request_id)
        except DoorUnreachable as silence:
            if not first or silence.maybe_done:
                raise
        warn(self._command, "the controller does not answer (is it starting?); trying again")
        client.close()
        client = self._client = Client(self.path, min(timeout_s, _PATIENCE_S))
        return client.call(method, request, timeout_s, request_id)


def _unknown_outcome(method: Any, why: str) -> CommandFailed:
    hint = ": it may have taken effect, look before you repeat it" if method.mutating else ""
    return CommandFailed(exits.UNKNOWN_OUTCOME, f"{why}{hint}")
