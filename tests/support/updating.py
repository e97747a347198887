"""`esctl update` on a world of the core: the words of a command line become the controller's message."""

from __future__ import annotations

import shlex
from typing import Any

from escli.admin.updates import job_update
from eslurm.api.requests import update_job
from eslurm.core.model.job import Principal
from eslurm.core.model.messages import UpdateJob
from eslurm.core.model.option_text import asked_words
from eslurm.core.state.cluster import State
from eslurm.v1 import controller_pb2 as pb


class StateApi:
    """Answers what the command looks up."""

    def __init__(self, state: State) -> None:
        self._state = state

    def call(self, method: str, request: Any) -> pb.JobsReply:
        assert method == "Jobs" and request.asked_too
        job = self._state.find_job(request.jobs[0].job_id)
        if job is None:
            return pb.JobsReply()
        asked = asked_words(job.spec.components[0])
        return pb.JobsReply(
            jobs=[pb.JobInfo(job_id=job.job_id, time_limit_s=job.spec.time_limit_s, asked=asked)]
        )


def read_update(state: State, words: str, by: Principal) -> UpdateJob:
    """The message for what follows `esctl update` in a shell. Raises OptionError, CommandFailed or Refused."""
    request = job_update(StateApi(state), shlex.split(words))  # type: ignore[arg-type]
    return update_job(pb.UpdateJobRequest.FromString(request.SerializeToString()), by, state.config)
