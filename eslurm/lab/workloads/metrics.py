"""Metrics of a run in one line: utilisation, waits, slowdown, loss of capacity."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from eslurm.core.model.units import SECOND_US
from eslurm.lab.workloads.loop import Ran, Result

TAU_S: Final = 10
"""Jobs shorter than this count as so long in the slowdown (Feitelson et al. 1997)."""


class Metrics(msgspec.Struct, frozen=True):
    """Of one run. Times in seconds, shares from 0 to 1; processors are those the jobs asked for."""

    policy: str
    jobs: int
    utilisation: float
    """Processor time used by jobs, of all processor time from the first submission to the last end."""
    wait_mean_s: float
    slowdown_mean: float
    """Mean bounded slowdown: max(1, (wait + run) / max(run, 10 s))."""
    wait_p95_s: float
    """The wait that 95 % of the jobs do not exceed."""
    wait_max_s: float
    wait_weighted_s: float
    """Mean wait with each job counted by its processor time: what the work waits, not what jobs wait."""
    loss_of_capacity: float
    """Share of processor time that is idle while at least one waiting job asks for no more processors than are idle.

    sum(n_i * (t_(i+1) - t_i) * d_i) / (N * (t_m - t_1)) over the intervals between events, where n_i are the idle
    processors and d_i is 1 when such a job waits, else 0: Zhang, Franke, Moreira and Sivasubramaniam (JSSPP 2001) in the
    form of Leung, Sabin and Sadayappan (ICPP workshops 2010). Which nodes the processors are on is not asked.
    """
    makespan_s: float
    cycles: int
    waiting_max: int


def measure(result: Result) -> Metrics:
    """The figures of a run; of one without jobs all are 0."""
    ran = result.ran
    if not ran:
        return Metrics(result.policy, 0, *(0.0,) * 8, cycles=result.cycles, waiting_max=0)
    begin_us = min(one.job.submit_us for one in ran)
    makespan_us = max(one.end_us for one in ran) - begin_us
    capacity_us = result.machine.processors * makespan_us
    areas_us = [area_us(one) for one in ran]
    return Metrics(
        policy=result.policy,
        jobs=len(ran),
        utilisation=sum(areas_us) / capacity_us,
        **_waits_of(ran, areas_us),
        loss_of_capacity=result.lost_us / capacity_us,
        makespan_s=makespan_us / SECOND_US,
        cycles=result.cycles,
        waiting_max=result.waiting_max,
    )


class Part(msgspec.Struct, frozen=True):
    """Of the jobs of one user, account, QOS, ... `share` is theirs of the processor time that was used; times as above."""

    name: str
    jobs: int
    share: float
    wait_mean_s: float
    slowdown_mean: float
    wait_p95_s: float
    wait_max_s: float
    wait_weighted_s: float


def measure_by(result: Result, name_of: Callable[[Ran], str]) -> list[Part]:
    """The figures of the jobs of each name, those that used most in front."""
    apart: dict[str, list[Ran]] = {}
    for one in result.ran:
        apart.setdefault(name_of(one), []).append(one)
    used_us = sum(map(area_us, result.ran))
    parts = [_part(name, ran, used_us) for name, ran in apart.items()]
    return sorted(parts, key=lambda part: (-part.share, part.name))


def _part(name: str, ran: Sequence[Ran], used_us: int) -> Part:
    areas_us = [area_us(one) for one in ran]
    return Part(name=name, jobs=len(ran), share=sum(areas_us) / used_us, **_waits_of(ran, areas_us))


def _waits_of(ran: Sequence[Ran], areas_us: Sequence[int]) -> dict[str, float]:
    """The figures of waiting that a run and a part of it have alike."""
    weighted = sum(area * one.wait_us for area, one in zip(areas_us, ran, strict=True))
    waits = sorted(one.wait_us for one in ran)
    return {
        "wait_mean_s": sum(waits) / len(waits) / SECOND_US,
        "slowdown_mean": math.fsum(map(slowdown, ran)) / len(ran),
        "wait_p95_s": percentile(waits, 0.95) / SECOND_US,
        "wait_max_s": waits[-1] / SECOND_US,
        "wait_weighted_s": weighted / sum(areas_us) / SECOND_US,
    }


def area_us(one: Ran) -> int:
    """Processor microseconds of a job."""
    return one.job.processors * one.run_us


def slowdown(one: Ran) -> float:
    """Bounded slowdown of one job."""
    return max(1.0, (one.wait_us + one.run_us) / max(one.run_us, TAU_S * SECOND_US))


def percentile(ordered: Sequence[int], share: float) -> int:
    """The smallest value that at least `share` of the values do not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
