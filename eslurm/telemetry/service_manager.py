"""Signs of a daemon for systemd (sd_notify): that it is ready, that it stops, and that its event loop turns.

Nothing is sent unless the service manager names its socket (NOTIFY_SOCKET). Invariant: no failure here ends a daemon.
"""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress

READY = "READY=1"
STOPPING = "STOPPING=1"
_TURNS = "WATCHDOG=1"


def tell(state: str) -> None:
    """Send the state to the service manager, if there is one."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path:
        return
    # Of an abstract socket: the kernel's spelling.
    address = f"\0{path[1:]}" if path.startswith("@") else path
    with (
        suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as channel,
    ):
        channel.sendto(state.encode(), address)


def watchdog_s() -> float:
    """Seconds within which a sign of life is expected; 0: none is, or of another process."""
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0
    try:
        return max(0, int(os.environ.get("WATCHDOG_USEC", ""))) / 1e6
    except ValueError:
        return 0.0


async def keep_watchdog() -> None:
    """Give signs of life while the event loop turns, twice as often as they are expected; for ever."""
    interval_s = watchdog_s() / 2
    while interval_s:
        tell(_TURNS)
        await asyncio.sleep(interval_s)
