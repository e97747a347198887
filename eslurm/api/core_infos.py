"""Cores that a running job does not use, leaves to others, or has borrowed, for the messages that commands show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from eslurm.core.model.job import Attempt, Job
from eslurm.core.model.lending import cooperation_of
from eslurm.core.model.units import SECOND_US
from eslurm.core.state.core_reports import CoreReports
from eslurm.v1 import controller_pb2 as pb


class CoresShown(Protocol):
    """The inputs beside the job's record."""

    @property
    def reports(self) -> CoreReports:
        """The latest words of applications: soft state, newer than the record."""
        ...

    @property
    def loans(self) -> Mapping[tuple[int, int, int], Mapping[tuple[int, int], int]]:
        """Borrowers by owner and node."""
        ...

    def node_names(self, numbers: Iterable[int]) -> list[str]:
        """Names of nodes for output, see `names_of`."""
        ...


def shares_cores(job: Job) -> bool:
    """Check whether its cores may be shared: its line then changes without its record."""
    return job.attempt is not None and (cooperation_of(job.spec.cooperate).lends or bool(job.spec.borrow))


def add_cores(shown: CoresShown, job: Job, attempt: Attempt, info: pb.JobInfo) -> None:
    """Add the cores of a job that cooperates, and what a job has borrowed."""
    key = job.job_id, attempt.number
    texts = []
    if cooperation_of(job.spec.cooperate).lends:
        cores = info.cores
        cores.SetInParent()
        remaining_s = -1
        for node in attempt.nodes:
            report = shown.reports.find((*key, node))
            if report is not None:
                cores.idle += report.idle
                cores.reported_us = max(cores.reported_us, report.at_us)
                if report.remaining_s >= 0:
                    remaining_s = max(0, remaining_s) + report.remaining_s
        for one in attempt.exclusions:
            cores.excluded += one.cores
            cores.lent += sum(shown.loans.get((*key, one.node), {}).values())
        if remaining_s >= 0:
            cores.remaining_s = remaining_s
        if attempt.more is not None:
            cores.lent_core_s = attempt.more.lent_core_us // SECOND_US
            cores.asked = attempt.more.asked[0]
        if cores.idle or cores.excluded:
            texts.append(f"{cores.idle} of its cores idle, {cores.excluded} excluded, {cores.lent} lent")
    for loan in attempt.more.loans if attempt.more is not None else ():
        (name,) = shown.node_names([loan.node])
        info.loans.add(
            owner=loan.owner, node=name, cores=loan.cores, from_us=loan.from_us, until_us=loan.until_us
        )
    borrowed = sum(loan.cores for loan in attempt.loans)
    if borrowed:
        owners = ", ".join(map(str, sorted({loan.owner for loan in attempt.loans})))
        texts.append(f"{borrowed} of its cores borrowed from {owners}")
    if texts:
        info.reason_text = "; ".join(filter(None, (info.reason_text, *texts)))
