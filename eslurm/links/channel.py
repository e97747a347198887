"""The channel to a process that is dialled by the name of its endpoint."""

from __future__ import annotations

import asyncio

import grpc.aio

from eslurm.transport.options import grpc_target, link_channel_options
from eslurm.transport.tls import Tls


class Unresolved(Exception):
    """The endpoint is malformed, or its name has no address; the text names the endpoint."""


async def open_channel(endpoint: str, tls: Tls | None, timeout_s: float) -> grpc.aio.Channel:
    """A channel that connects at its first call. Raises `Unresolved`, after `timeout_s` at the latest."""
    try:
        async with asyncio.timeout(timeout_s):
            target = await grpc_target(endpoint)
    except (ValueError, OSError) as error:
        raise Unresolved(f"{endpoint}: {str(error) or 'the name was not resolved in time'}") from None
    options = link_channel_options()
    if tls is None:
        return grpc.aio.insecure_channel(target, options)
    # The target is an address by now; the certificate names what was dialled.
    options.append(("grpc.default_authority", tls.files.name or endpoint))
    return grpc.aio.secure_channel(target, tls.channel_credentials(), options)
