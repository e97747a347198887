"""Diagnosis of a failed connection: TLS on one side only, or certificates that do not match.

Invariant: an endpoint is probed only when gRPC's words leave it open, once in `ASK_EVERY_S`, and for `ASK_S` at most. A
busy daemon's refusal has the same words as one of another protocol.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from typing import NamedTuple

import msgspec

from eslurm.core.model.endpoint import split_endpoint
from eslurm.transport.tls import Tls, client_context

ASK_EVERY_S = 60.0
ASK_S = 1.0
ENDPOINTS_MAX = 1024
BROKEN_OFF = ("Socket closed", "onnection reset")
"""gRPC's words for a connection that was accepted and ended at once."""

SPEAKS_TLS = (
    "the daemon there speaks TLS and this one does not: start this one with --tls-certificate, --tls-key and --tls-ca,"
    " or that one without"
)
SPEAKS_PLAIN = (
    "this daemon speaks TLS and the one there does not: start that one with --tls-certificate, --tls-key and --tls-ca,"
    " or this one without"
)
NOT_LET_IN = (
    "the daemon there does not accept the certificate of this one: it has to be in force, good for clients, and from an"
    " authority in that daemon's --tls-ca"
)
OTHER_NAMES = (
    "the certificate there is for other names: list this one (or this address) in its subjectAltName, or tell all daemons"
    " with --tls-name what their certificates name"
)
_UNTRUSTED = re.compile(r"CERTIFICATE_VERIFY_FAILED: ([a-z][\w -]*)")


class Texts(NamedTuple):
    """The reasons that one end can find by itself, in its users' words."""

    other_names: str
    speaks_plain: str


DAEMON = Texts(OTHER_NAMES, SPEAKS_PLAIN)
COMMAND = Texts(
    "the certificate there is for other names: call the controller as its certificate does, or say in ESLURM_TLS_NAME"
    " what that names",
    "no TLS is spoken there: is this a controller's port, and has the cluster TLS? Without it tokens are taken on the"
    " controller's own host only, and --tls-ca is left away",
)


def reason_in(text: str, texts: Texts = DAEMON) -> str:
    """The meaning of gRPC's text for a failed connection; empty when it has nothing to do with TLS."""
    if "Hostname Verification" in text:
        return texts.other_names
    if "CERTIFICATE_VERIFY_FAILED" in text:
        found = _UNTRUSTED.search(text)
        why = f" ({found[1].strip()})" if found else ""
        return (
            f"the certificate there is not trusted{why}: it has to be in force, good for servers, and from an authority"
            " in --tls-ca"
        )
    return texts.speaks_plain if "WRONG_VERSION_NUMBER" in text else ""


class _Asked(msgspec.Struct, frozen=True):
    until_s: float
    reason: str


class TlsDiagnosis:
    """Finds the reason for one process, which speaks TLS or does not."""

    def __init__(self, tls: Tls | None) -> None:
        self._tls = tls
        self._asked: dict[str, _Asked] = {}

    async def find(self, endpoint: str, text: str) -> str:
        """The reason why a connection to `endpoint` failed with gRPC's `text`; empty when it is not TLS."""
        said = reason_in(text)
        if said or not any(words in text for words in BROKEN_OFF):
            return said
        now_s = asyncio.get_running_loop().time()
        asked = self._asked.get(endpoint)
        if asked is None or now_s >= asked.until_s:
            self.forget(endpoint)
            # Before the answer: concurrent dials do not probe as well.
            self._asked[endpoint] = _Asked(now_s + ASK_EVERY_S, "")
            if len(self._asked) > ENDPOINTS_MAX:
                del self._asked[next(iter(self._asked))]
            asked = _Asked(now_s + ASK_EVERY_S, await self._ask(endpoint))
            self._asked[endpoint] = asked
        return asked.reason

    def forget(self, endpoint: str) -> None:
        """Forget the last diagnosis of an endpoint."""
        self._asked.pop(endpoint, None)

    async def _ask(self, endpoint: str) -> str:
        try:
            context = client_context() if self._tls is None else self._tls.context()
            async with asyncio.timeout(ASK_S):
                return await self._shake_hands(endpoint, context)
        except ssl.SSLError as error:
            return reason_in(str(error)) if self._tls is not None else ""
        except (OSError, ValueError):
            # As for a daemon that is gone by now, or has no room for connections.
            return ""

    async def _shake_hands(self, endpoint: str, context: ssl.SSLContext) -> str:
        if self._tls is None:
            context.verify_mode = ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        host, port = split_endpoint(endpoint)
        reader, writer = await asyncio.open_connection(host, port, ssl=context)
        try:
            if self._tls is None:
                return SPEAKS_TLS
            # A server that accepts us speaks first.
            return "" if await reader.read(1) else NOT_LET_IN
        except ConnectionResetError:
            return NOT_LET_IN
        finally:
            writer.transport.abort()
