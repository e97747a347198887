"""64 workers that join, compute, fail, are killed and speak out of turn, beside a model that counts each iteration."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from eslurm.loops.coordinator import Coordinator, Grant
from eslurm.loops.techniques import TECHNIQUES, technique_of

OPTIONS = {"FSC": {"sigma": 0.1, "h": 0.05}, "FAC": {"mu": 1.0, "sigma": 0.5}}
WORKERS = 64


@given(
    st.sampled_from(sorted(TECHNIQUES)),
    st.integers(0, 5000),
    st.integers(0, 2**32),
    st.floats(0, 0.5),
    st.floats(0, 0.3),
)
def test_nothing_is_lost_and_nothing_doubled(
    name: str, n: int, seed: int, deaths: float, failures: float
) -> None:
    draw = random.Random(seed)
    loop = Coordinator(technique_of(name, n, WORKERS, **OPTIONS.get(name, {})), retries=10**9)
    counts = [0] * n
    holding: dict[int, Grant] = {}
    ended: list[Grant] = []
    next_worker, now = 1, 0.0
    while not loop.is_done:
        now += draw.random()
        while loop.present < WORKERS and (not loop.present or draw.random() < 0.8):
            assert loop.joined(next_worker, "w")
            next_worker += 1
        for grant in loop.grants(now):
            assert grant.worker not in holding
            assert 0 <= grant.start < grant.stop <= n
            holding[grant.worker] = grant
        assert holding, "a loop that is not done has a chunk with a worker"
        grant = holding.pop(draw.choice(sorted(holding)))
        fate = draw.random()
        if fate < deaths:
            loop.lost(grant.worker, now)
        elif fate < deaths + failures:
            loop.failed(grant.worker, grant.number, "no", now)
        else:
            positions = loop.finished(grant.worker, grant.number, draw.random(), now)
            assert positions == range(grant.start, grant.stop)
            for at in positions:
                counts[at] += 1
        ended.append(grant)
        # A word that comes twice or late, or from another worker.
        old = draw.choice(ended)
        other = draw.choice([old.worker, grant.worker, next_worker])
        assert loop.finished(other, old.number, 1.0, now) is None
        loop.failed(other, old.number, "no", now)
    assert counts == [1] * n
    assert sum(each.stop - each.start for each in loop.record.chunks if each.outcome == "done") == n
    assert loop.given_up is None
