#!/usr/bin/env python3
"""A gateway daemon: it forwards TCP connections between modules whose nodes cannot reach each other.

It says its address on its first line of output, which is all that eslurm asks of such a daemon, and serves until it is
ended. A connection begins with a line, the name of the node that it is for; the rest is passed on, both ways. Connections go
to nodes in the file `FABRIC_HOSTS` only (lines `node address:port`), so nothing else is reached through the gateway.
"""

import asyncio
import os
import sys

BUFFER_BYTES = 64 * 1024
FIRST_LINE_S = 10


def read_hosts(path):
    """Read (address, port) by node."""
    hosts = {}
    with open(path) as file:
        for line in file:
            node, _, endpoint = line.strip().partition(" ")
            address, _, port = endpoint.rpartition(":")
            hosts[node] = (address, int(port or 0))
    return hosts


async def pass_on(reader, writer):
    """Copy one direction until it ends."""
    try:
        while data := await reader.read(BUFFER_BYTES):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.close()


async def forward(reader, writer, hosts):
    """Serve one connection."""
    try:
        line = await asyncio.wait_for(reader.readline(), FIRST_LINE_S)
        address, port = hosts[line.decode().strip()]
        far_reader, far_writer = await asyncio.open_connection(address, port)
    except (TimeoutError, OSError, KeyError, ValueError) as error:
        print(f"a connection is refused: {error!r}", file=sys.stderr, flush=True)
        writer.close()
        return
    await asyncio.gather(pass_on(reader, far_writer), pass_on(far_reader, writer))
    far_writer.close()
    writer.close()


async def main():
    """Listen at this node's own address, at any port."""
    hosts = read_hosts(os.environ["FABRIC_HOSTS"])
    address, port = hosts[os.environ["SLURMD_NODENAME"]]
    server = await asyncio.start_server(lambda reader, writer: forward(reader, writer, hosts), address, port)
    address, port = server.sockets[0].getsockname()[:2]
    print(f"{address}:{port}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
