#!/usr/bin/env python3
"""One rank of a job over two modules: it meets each node of the other module through a gateway.

The file of routes says which gateway serves which pair of nodes (`$ESLURM_GATEWAY_ROUTES`: lines `ip:port nodeA nodeB`).
A rank ends when it has greeted all its partners and has been greeted by all of them.
"""

import asyncio
import os
import sys

from forward import read_hosts

PATIENCE_S = 60
PAUSE_S = 0.1


def read_routes(path, node):
    """Read the gateway's (address, port) by partner."""
    partners = {}
    with open(path) as file:
        for line in file:
            gateway, one, other = line.split()
            if one == node:
                address, _, port = gateway.rpartition(":")
                partners[other] = (address, int(port))
    return partners


async def greet(node, partner, gateway):
    """Exchange a line with a partner; it may not listen yet."""
    while True:
        try:
            reader, writer = await asyncio.open_connection(*gateway)
            writer.write(f"{partner}\n{node}\n".encode())
            answer = (await reader.readline()).decode().split()
            writer.close()
            if answer == [partner, "greets", node]:
                return
        except OSError:
            pass
        await asyncio.sleep(PAUSE_S)


async def main():
    """Listen, greet, and wait for the others."""
    node = os.environ["SLURMD_NODENAME"]
    partners = read_routes(os.environ["ESLURM_GATEWAY_ROUTES"], node)
    greeted = set()
    all_greeted = asyncio.Event()

    async def answer(reader, writer):
        caller = (await reader.readline()).decode().strip()
        writer.write(f"{node} greets {caller}\n".encode())
        await writer.drain()
        writer.close()
        greeted.add(caller)
        if greeted >= partners.keys():
            all_greeted.set()

    address, port = read_hosts(os.environ["FABRIC_HOSTS"])[node]
    server = await asyncio.start_server(answer, address, port)
    async with server:
        waits = [greet(node, partner, gateway) for partner, gateway in partners.items()]
        await asyncio.wait_for(asyncio.gather(all_greeted.wait(), *waits), PATIENCE_S)
    for partner, (address, port) in sorted(partners.items()):
        print(f"{node} and {partner} have met through {address}:{port}")


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except TimeoutError:
        sys.exit(f"{os.environ['SLURMD_NODENAME']}: not all partners were met within {PATIENCE_S} s")
