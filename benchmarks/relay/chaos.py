"""Faults in the middle of a broadcast: a head that vanishes after its acknowledgement, killed satellites.

Invariant: the moment is given by the protocol (an acknowledgement), not by a clock.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from benchmarks.figures import Figures, median
from benchmarks.processes import Daemon
from benchmarks.relay.bout import TREE, Bout, Ringside
from benchmarks.relay.plan import NONE, Failures, Wrong
from benchmarks.relay.site import SATELLITES, Site

NODES = 4096
KILLED, KILLED_QUICK = (1, 2, 3, SATELLITES), (3, SATELLITES)
"""With the last satellite gone, the root takes over what is left."""


async def measure(figures: Figures, ringside: Ringside, *, quick: bool) -> None:
    """head_dies_after_ack_4096_s; broadcast_4096_<k>killed_s, wrong_4096_killed_satellites, reallocations and takeovers."""
    rounds = 1 if quick else 3
    vanishing = Failures(vanishing=(1,))
    bouts = [await ringside.run(TREE, NODES, vanishing) for _ in range(rounds)]
    figures.add(f"head_dies_after_ack_{NODES}_s", median(bout.took_s for bout in bouts), "s", rounds)
    figures.add(f"wrong_{NODES}_head_dies", _wrong(bouts), "nodes", rounds)
    killed: list[Bout] = []
    for count in KILLED_QUICK if quick else KILLED:
        bouts = [await _kill(ringside, count) for _ in range(rounds)]
        killed += bouts
        figures.add(f"broadcast_{NODES}_{count}killed_s", median(bout.took_s for bout in bouts), "s", rounds)
    figures.add(f"wrong_{NODES}_killed_satellites", _wrong(killed), "nodes", len(killed))
    for name, count in (
        ("reallocations", sum(bout.reallocations for bout in killed)),
        ("takeovers", sum(bout.takeovers for bout in killed)),
    ):
        figures.add(f"{name}_{NODES}_killed_satellites", count, "shares", len(killed))


async def _kill(ringside: Ringside, count: int) -> Bout:
    """Kill that many satellites as soon as the first of them says that it has its share."""
    site = ringside.site
    await ringside.fail(NONE)
    killed: list[Daemon] = []

    def kill(process: str) -> None:
        names = [process.partition(".")[0]]
        names += [daemon.name for daemon in site.satellites if daemon.name not in names]
        for daemon in site.satellites:
            if daemon.name in names[:count]:
                daemon.kill()
                killed.append(daemon)

    site.root.on_satellite_ack = kill
    bout = await ringside.run(TREE, NODES, NONE)
    await _start_again(site, killed)
    return bout


async def _start_again(site: Site, killed: Sequence[Daemon]) -> None:
    """All satellites are there as before."""
    loop = asyncio.get_running_loop()
    for daemon in killed:
        await loop.run_in_executor(None, daemon.start)
    await site.root.wait_for_satellites(len(site.satellites))


def _wrong(bouts: list[Bout]) -> int:
    wrong = sum((bout.wrong for bout in bouts), Wrong())
    if wrong.total:
        sys.stderr.write(f"bench: {wrong}\n")
    return wrong.total
