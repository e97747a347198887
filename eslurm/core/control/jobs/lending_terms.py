"""Limits of jobs that lend cores, or accept lent ones. A refusal names the option and the way out."""

from __future__ import annotations

from eslurm.core.model.job import JobSpec
from eslurm.core.model.lending import cooperation_of, terms_of
from eslurm.core.model.messages import RefusalCode, Refused


def check_lending(spec: JobSpec) -> None:
    """Raise `Refused` when the options cannot be understood, or do not go with the rest of the job."""
    try:
        lends = cooperation_of(spec.cooperate).lends
        borrows = terms_of(spec.borrow) is not None
    except ValueError as error:
        raise Refused(RefusalCode.INVALID, str(error)) from None
    option = "--borrow" if borrows else "--cooperate"
    problem = ""
    if (lends or borrows) and len(spec.components) > 1:
        problem = "a job of several parts, or with gateways, neither lends cores nor borrows them"
    elif (lends or borrows) and spec.span:
        problem = "a job over several cells (--span) neither lends cores nor borrows them"
    elif borrows and spec.array is not None:
        problem = "the tasks of an array do not borrow cores: submit single jobs"
    elif borrows and spec.components[0].exclusive:
        problem = "--exclusive asks for whole nodes, and what is lent are cores"
    elif borrows and spec.start_at_us:
        problem = "a fixed start (--start-at) counts on no lent cores"
    if problem:
        raise Refused(RefusalCode.INVALID, f"{option}: {problem}: leave one of them out")
