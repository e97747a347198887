"""Requests that an agent without privileges may send to a supervisor before version 0.2: all but starts.

Such a supervisor starts any command as any user. Invariant: only requests that this module knows pass.
"""

from __future__ import annotations

import select
import socket

import msgspec

from esnoded.stepd import wire

_ALLOWED = (
    wire.Hello,
    wire.Signal,
    wire.Terminate,
    wire.ListSteps,
    wire.Acknowledge,
    wire.Contact,
    wire.Suspend,
    wire.SetLimit,
)
_READ_BYTES = 256 * 1024

_decoder = msgspec.msgpack.Decoder(wire.Request)


def drain(agent: socket.socket, supervisor: socket.socket) -> None:
    """Pass requests on, and answers back, until either side ends."""
    agent.setblocking(True)
    supervisor.setblocking(True)
    frames = wire.FrameBuffer()
    poller = select.poll()
    for each in (agent, supervisor):
        poller.register(each, select.POLLIN)
    while True:
        ready = {fd for fd, _mask in poller.poll()}
        try:
            if supervisor.fileno() in ready:
                data = supervisor.recv(_READ_BYTES)
                agent.sendall(data)
                if not data:
                    return
            if agent.fileno() in ready:
                data = agent.recv(_READ_BYTES)
                if not data:
                    return
                for body in frames.feed(data):
                    request = _decoder.decode(body)
                    if isinstance(request, _ALLOWED):
                        # Encoded anew: what was not understood does not pass.
                        supervisor.sendall(wire.encode_frame(request))
        except (OSError, wire.WireError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return
