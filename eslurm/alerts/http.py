"""One GET, for alert sources.

Invariant: nothing is read without a bound in bytes and in time. An asyncio client rather than urllib in a thread: a thread
that waits for a host which trickles bytes, or for a name server, cannot be ended and would hold up the end of the
controller; a coroutine is cancelled.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from urllib.parse import quote, unquote, urlsplit

import msgspec

from eslurm.core.model.wording import quoted
from eslurm.telemetry.http import HEAD_BYTES_MAX, Head, HttpError, read_body, read_head

INTERIM_REPLIES_MAX = 5
# What may stand in a URL unescaped; the percent sign, so that what is escaped already stays.
_URL_SAFE = "/%:@!$&'()*+,;=?~"


class FetchError(Exception):
    """The page is not available. The text has the reason and names no credentials."""


class Target(msgspec.Struct, frozen=True):
    """Address of a page. `name` is for logs: it carries no credentials and no query."""

    name: str
    host: str
    port: int
    path: str
    headers: tuple[tuple[str, str], ...]
    tls: ssl.SSLContext | None = None


def parse_url(url: str) -> Target:
    """A URL of http or https, with credentials for basic authentication if it has them. Raises ValueError."""
    parts = urlsplit(url.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{quoted(_without_credentials(url))} is no URL such as http://host:9090")
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    port = parts.port or (443 if tls else 80)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    path = quote(parts.path or "/", safe=_URL_SAFE)
    query = f"?{quote(parts.query, safe=_URL_SAFE)}" if parts.query else ""
    headers = [("Host", f"{host}:{port}")]
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers.append(("Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}"))
    name = f"{parts.scheme}://{host}:{port}{path.rstrip('/')}"
    return Target(name, parts.hostname, port, path + query, tuple(headers), tls)


def _without_credentials(url: str) -> str:
    scheme, slashes, rest = url.partition("//")
    return scheme + slashes + rest.rpartition("@")[2] if slashes else url.rpartition("@")[2]


async def get(target: Target, timeout_s: float, body_bytes_max: int) -> bytes:
    """The page's body, within `timeout_s` in all. Raises `FetchError`."""
    try:
        async with asyncio.timeout(timeout_s):
            return await _get(target, body_bytes_max)
    except TimeoutError:
        raise FetchError(f"no answer within {timeout_s:g} s") from None
    except ssl.SSLError as error:
        raise FetchError(f"TLS: {error.reason or error}") from None
    except OSError as error:
        raise FetchError(error.strerror or str(error)) from None
    except UnicodeError:
        raise FetchError(f"'{target.host}' cannot be a host's name") from None
    except HttpError as error:
        raise FetchError(str(error)) from None


async def _get(target: Target, body_bytes_max: int) -> bytes:
    reader, writer = await asyncio.open_connection(
        target.host, target.port, ssl=target.tls, limit=HEAD_BYTES_MAX
    )
    try:
        fields = (*target.headers, ("Accept", "application/json"), ("Accept-Encoding", "identity"))
        lines = [f"GET {target.path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields)]
        writer.write("\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1"))
        head = await _read_reply_head(reader)
        encoding = head.fields.get("content-encoding", "identity")
        if encoding != "identity":
            raise HttpError(502, f"answers in an encoding that was not requested: {encoding[:40]!r}")
        return await read_body(reader, head.fields, body_bytes_max, until_end=True)
    finally:
        # Not a polite close: a peer that reads nothing would keep the descriptor open.
        writer.transport.abort()


async def _read_reply_head(reader: asyncio.StreamReader) -> Head:
    for _ in range(INTERIM_REPLIES_MAX):
        head = await read_head(reader)
        protocol, status, reason = head.line
        if not protocol.startswith("HTTP/1.") or not status.isascii() or not status.isdigit():
            raise HttpError(502, "answers something that is not HTTP")
        if status.startswith("3"):
            where = _without_credentials(head.fields.get("location", "?"))[:200]
            raise HttpError(502, f"redirects ({status}) to {where}: name that address instead")
        if status == "200":
            return head
        if not status.startswith("1"):
            raise HttpError(502, f"answers {status} {reason[:80]}".rstrip())
    raise HttpError(502, "answers nothing but interim replies")
