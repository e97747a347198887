"""Endpoints as people write them: HOST:PORT."""

from __future__ import annotations

from eslurm.core.model.wording import quoted

PORT_MAX = 65_535


def split_endpoint(endpoint: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[v6]:port`. Raises ValueError that names the endpoint."""
    host, _, port = endpoint.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    is_number = port.isascii() and port.isdigit() and len(port) <= len(str(PORT_MAX))
    if not is_number or int(port) > PORT_MAX or not host or not host.isprintable() or " " in host:
        raise ValueError(f"{quoted(endpoint)} is no address: write HOST:PORT")
    return host, int(port)
