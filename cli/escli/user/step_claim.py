"""A step's claim to cores, memory and GPUs of its job, from the options of `esrun` inside the job.

With -n, -c, `--exact` or `--exclusive` a step takes the cores of its tasks; without them all cores that the job has on its
nodes. `--overlap` takes nothing. So does by default a step that another step of the job starts: it would wait for the one
that waits for it.
"""

from __future__ import annotations

from escli.user.draft_resources import claim_amounts
from eslurm.compat.durations import parse_delay, parse_time_limit
from eslurm.compat.errors import OptionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from escli.options import Words

LIMITS = frozenset({"immediate", "time"})
"""Options of jobs that inside a job bound its step."""
CLAIMS = frozenset({"mem", "mem-per-cpu", "gres", "gpus", "gpus-per-node", "gpus-per-task", "exclusive"})
"""Options of jobs that inside a job are of its step."""
_BY_SIZE = ("ntasks", "cpus-per-task", "exact", "exclusive")


class Claim:
    """The claim of a step to its job: `fields` of the request, None: nothing. `immediate_s`: how long it may wait for its
    turn; None: as long as it takes. `time_limit_s`: how long it may run then; 0: as long as its job.
    """

    __slots__ = ("fields", "immediate_s", "time_limit_s")

    def __init__(
        self, fields: Mapping[str, Any] | None, immediate_s: float | None = None, time_limit_s: int = 0
    ) -> None:
        self.fields = fields
        self.immediate_s = immediate_s
        self.time_limit_s = time_limit_s

    def put(self, request: Any) -> None:
        """Say it in a `CreateStepRequest`."""
        from eslurm.v1 import controller_pb2 as pb

        if self.fields is not None:
            request.claim.CopyFrom(pb.StepClaim(**self.fields))
        request.immediate = self.immediate_s == 0
        request.time_limit_s = self.time_limit_s


NOTHING = Claim(None)
"""Of a step that shares what other steps have."""
ALL = Claim({"whole": True})
"""Of the step that a job is for, whose options were those of the job."""


def read_claim(given: Words, environ: Mapping[str, str], job_id: int) -> Claim:
    """The claim of a step in a job. Raises OptionError."""
    terms = _immediate_s(given), _time_limit_s(given)
    if given.has("overlap"):
        for long in ("exact", *sorted(CLAIMS)):
            if given.has(long):
                text = "excludes --overlap, which takes nothing of the job"
                raise OptionError(given.spelling(long), given.text(long) or None, text, "give one of them")
        return Claim(None, *terms)
    if is_nested(environ, job_id) and not any(given.has(long) for long in ("exact", *CLAIMS)):
        return Claim(None, *terms)
    by_size = any(given.has(long) for long in _BY_SIZE)
    return Claim({"whole": not by_size, **claim_amounts(given)}, *terms)


def is_nested(environ: Mapping[str, str], job_id: int) -> bool:
    """Check whether these variables are those of a step of the job."""
    return bool(environ.get("ESLURM_STEP_ID")) and environ.get("ESLURM_JOB_ID") == str(job_id)


def _time_limit_s(given: Words) -> int:
    return parse_time_limit(given.text("time"), given.spelling("time")) if given.has("time") else 0


def _immediate_s(given: Words) -> float | None:
    if not given.has("immediate"):
        return None
    text = given.text("immediate")
    return float(parse_delay(text, given.spelling("immediate"))) if text else 0.0
