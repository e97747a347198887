"""`escancel`: end jobs, or send them a signal."""

from __future__ import annotations

import os

from escli import changes, program
from escli.job_refs import job_refs, split_jobs
from escli.open_api import open_api
from escli.user.esqueue import chosen_user
from eslurm.compat.errors import OptionError
from eslurm.compat.states import LIVE_STATES, parse_states

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from escli.options import Words

COMMAND = "escancel"
_FILTERS = ("user", "me", "partition", "name", "state")


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return program.run(COMMAND, _cancel, argv)


def _cancel(given: Words) -> int:
    request = _request(given)
    with open_api(given, COMMAND) as api:
        request.user = chosen_user(given, api)
        reply = api.call("Cancel", request, request_id=os.urandom(16))
    return changes.report(
        COMMAND,
        reply,
        as_json=given.has("json"),
        quiet=given.has("quiet"),
        nothing="" if given.rest else "no job matches",
    )


def _request(given: Words) -> Any:
    from eslurm.v1 import controller_pb2 as pb

    filters = [f"--{name}" for name in _FILTERS if given.has(name)]
    if not given.rest and not filters:
        raise OptionError("JOB", None, "is missing", "use e.g. escancel 17, escancel 17_4 or escancel --me")
    if given.rest and filters:
        raise OptionError(filters[0], given.rest[0], "is a job beside a choice of jobs", "give one of them")
    if given.has("lost") and (filters or given.has("signal")):
        raise OptionError(
            given.spelling("lost"),
            None,
            "gives single jobs up with their cell",
            "name these jobs: escancel --lost 17",
        )
    return pb.CancelRequest(
        jobs=job_refs([word for words in given.rest for word in split_jobs(words)], "JOB"),
        name=given.text("name"),
        partition=given.text("partition"),
        state=_state(given),
        signal=_signal(given),
        lost=given.has("lost"),
        cron=given.has("cron"),
    )


def _state(given: Words) -> str:
    if not given.has("state"):
        return ""
    text, option = given.text("state"), given.spelling("state")
    states = parse_states(text, option)
    if len(states) != 1 or states[0] not in LIVE_STATES:
        raise OptionError(option, text, "is not one state of a live job", "use e.g. --state PENDING")
    return states[0]


def _signal(given: Words) -> int:
    """The number of the signal to send; 0 to end the jobs."""
    if not given.has("signal"):
        return 0
    from eslurm.compat.signals import parse_signal

    return parse_signal(given.text("signal"), given.spelling("signal"))
