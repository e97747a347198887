"""The relay benchmark's own site: real processes, real links, every structure, and an exact answer from each."""

from __future__ import annotations

import asyncio
from pathlib import Path

import uvloop

from benchmarks.relay.bout import FPTREE, PULL, STAR, TREE, Bout, Ringside
from benchmarks.relay.plan import NONE, draw
from benchmarks.relay.site import running

NODES = 120


def test_every_structure_is_exact_and_its_cost_is_counted(tmp_path: Path) -> None:
    async def scenario() -> dict[str, Bout]:
        async with running(tmp_path, NODES, hosts=2, satellites=2) as site:
            ringside = Ringside(site, width=4)
            healthy = await ringside.run(TREE, NODES, NONE)
            failures = draw(NODES, 20, 1)
            bouts = {one: await ringside.run(one, NODES, failures) for one in (FPTREE, TREE, STAR, PULL)}
            assert ringside.late_acts == 0
            return bouts | {"healthy": healthy}

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        bouts = runner.run(scenario())
    for name, bout in bouts.items():
        assert bout.finished, name
        assert bout.wrong.total == 0, f"{name}: {bout.wrong}"
        assert bout.frames_per_node > 0, name
    # Half of the edges stay within one of the two processes; the star has none that does.
    assert 0 < bouts["healthy"].lists_per_node < 1
    assert bouts[STAR].lists_per_node > 1
