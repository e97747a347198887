"""The port to an audit log: it takes a line without waiting."""

from __future__ import annotations

from typing import Protocol

import msgspec


class AuditLine(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One change or refusal. Empty fields are left out.

    `identified` is how the caller is known: socket, token, agent, login. `result` is ok, refused, partly (some of the
    things named), unknown (the caller went away) or repeated (lines left out, `count` of them); `what` is a short summary.
    """

    time: str
    user: str = ""
    uid: int = -1
    identified: str = ""
    token: str = ""
    origin: str = ""
    """Origin of the call: an address, a node, a login host; empty: this host."""
    method: str = ""
    what: str = ""
    result: str = ""
    status: str = ""
    reason: str = ""
    count: int = 0
    request_id: str = ""
    retry: bool = False


class AuditSink(Protocol):
    """Destination of audit lines."""

    def write(self, line: AuditLine) -> None:
        """Take a line, or count it as lost. Never waits, never raises."""
        ...


class NoAudit:
    """Drops all lines."""

    def write(self, line: AuditLine) -> None:
        """See `AuditSink.write`."""
