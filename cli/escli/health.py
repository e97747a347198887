"""`eslurm health URL`: asks a daemon for its health; for health checks of containers and scripts.

Runs every few seconds on every host: imports nothing but sockets. Prints the answer's one line; 0 when all is well.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from urllib.parse import urlsplit

from escli import exits
from eslurm.core.model.wording import quoted

TIMEOUT_S = 5.0
PORT_DEFAULT = 80
ANSWER_BYTES_MAX = 65_536
HELP = """\
Usage: eslurm health URL

  Ask a daemon whether it does its duty: exit status 0 and one line if it does, 1 and why not if it does not.

  URL is where its --metrics-listen says: http://127.0.0.1:9464/health, or only 127.0.0.1:9464.

Options:
  -h, --help  Show this message and exit.
"""


def run(words: Sequence[str]) -> int:
    """The command; returns the exit code."""
    if any(word in ("-h", "--help") for word in words):
        sys.stdout.write(HELP)
        return exits.OK
    if len(words) != 1 or words[0].startswith("-"):
        sys.stderr.write("eslurm: health: give one URL: see `eslurm health --help`\n")
        return exits.USAGE
    text = words[0] if "://" in words[0] else f"http://{words[0]}"
    try:
        url = urlsplit(text)
        host, port = url.hostname, url.port or PORT_DEFAULT
    except ValueError:
        host = None
    if not host or url.scheme != "http":
        sys.stderr.write(
            f"eslurm: health: {quoted(words[0])} is no URL of a daemon: write http://HOST:PORT/health\n"
        )
        return exits.USAGE
    path = url.path if url.path not in ("", "/") else "/health"
    try:
        is_well, line = ask(host, port, path)
    except (OSError, ValueError) as error:
        sys.stderr.write(
            f"eslurm: {host}:{port} does not answer: {getattr(error, 'strerror', None) or error}\n"
        )
        return exits.FAILED
    sys.stdout.write(f"{line}\n")
    return exits.OK if is_well else exits.FAILED


def ask(host: str, port: int, path: str) -> tuple[bool, str]:
    """(is it healthy, its answer). Raises OSError, or ValueError for an invalid answer."""
    with socket.create_connection((host, port), TIMEOUT_S) as connection:
        connection.settimeout(TIMEOUT_S)
        request = f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n"
        connection.sendall(request.encode())
        answer = b""
        while len(answer) < ANSWER_BYTES_MAX and (part := connection.recv(4096)):
            answer += part
    head, found, body = answer.partition(b"\r\n\r\n")
    words = head.split(b" ", 2)
    if not found or len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        raise ValueError("what listens there speaks no HTTP")
    lines = body.decode(errors="replace").strip().splitlines()
    return words[1] == b"200", lines[0] if lines else f"HTTP status {words[1].decode()}"
