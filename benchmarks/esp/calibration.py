"""The times that a cluster takes for launches, ends and reports of ESP's jobs, measured before ESP runs on it.

Jobs follow each other on the same nodes, eight at a time, as in ESP; then one job of all nodes lends half of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from benchmarks.esp.live import OFF, Ran, Site, borrowers
from benchmarks.figures import median
from eslurm.core.model.lending import REPORT
from eslurm.core.model.units import SECOND_US
from eslurm.lab.applications.application import Program
from eslurm.lab.applications.costs import from_seconds
from eslurm.lab.applications.esp_run import job_of
from eslurm.lab.applications.two_level import Item
from eslurm.lab.workloads.machine import uniform

SLOTS = 8
ROUNDS = 4
WORK_S = 2.0
LONG_S = 6.0
LIMIT_S = 60


class Overhead(msgspec.Struct, frozen=True):
    """Seconds as the simulator takes them (`Setting`)."""

    launch_s: float
    finish_s: float
    report_s: float


def calibrate(site: Site) -> Overhead:
    """Measure; about twenty seconds."""
    machine = uniform(site.nodes, 1)
    hosts = max(1, site.nodes // SLOTS)
    even = Program(from_seconds([WORK_S] * hosts), "STATIC")
    chain = [
        Item(job_of(number, 0, hosts, LIMIT_S, machine), even, "even")
        for number in range(1, SLOTS * ROUNDS + 1)
    ]
    ran = site.run(chain, OFF, 0)
    finish_s = median((one.ended_us - one.record.end_us) / SECOND_US for one in ran)
    launch_s = median(_turnovers(ran)) / SECOND_US - finish_s
    half = site.nodes // 2
    uneven = Program(from_seconds([WORK_S] * (site.nodes - half) + [LONG_S] * half), "STATIC")
    lender = Item(job_of(1, 0, site.nodes, LIMIT_S, machine), uneven, "lender")
    takers = [
        Item(job_of(number, 0, hosts, LIMIT_S, machine), even, "even") for number in range(2, SLOTS // 2 + 1)
    ]
    owner, *others = site.run([lender, *takers], REPORT, 0)
    began_us = [one.record.begin_us for one in borrowers([owner, *others])]
    if not began_us:
        raise RuntimeError("no job has borrowed a core of the one that lends half of its own")
    report_s = (median(began_us) - owner.record.reported_us) / SECOND_US - launch_s
    return Overhead(launch_s, finish_s, max(report_s, 0.0))


def _turnovers(ran: Sequence[Ran]) -> list[int]:
    """Microseconds from the last task of a job to the first one of the next on the same nodes."""
    found = []
    for one in ran:
        before = [
            other.record.end_us
            for other in ran
            if other.record.end_us < one.record.begin_us and set(other.nodes) & set(one.nodes)
        ]
        if before:
            found.append(one.record.begin_us - max(before))
    return found
