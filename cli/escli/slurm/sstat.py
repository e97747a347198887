"""`sstat`: what the steps of running jobs use now.

As with Slurm's, a job or a step that does not run is a line on standard error, and no failure of the command.
"""

from __future__ import annotations

import sys

from escli import exits
from escli.failures import CommandFailed
from escli.slurm import frame
from eslurm.compat.errors import OptionError
from eslurm.compat.slurm import fitted, usage_fields
from eslurm.compat.slurm.small_options import SSTAT
from eslurm.compat.slurm.usage_fields import Use, step_label

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    from escli.api import Api
    from escli.slurm.frame import Context
    from eslurm.compat.slurm.getopt import Options

ROWS = SSTAT
_BATCH = -1
_STEPS_PER_CALL = 16
_ERROR = "sstat: error: "


def run(context: Context, given: Options) -> int:
    """The command; returns the exit code."""
    widths = usage_fields.widths_of(context.release)
    if given.has("helpformat"):
        sys.stdout.write(fitted.listed_names(list(widths)))
        return exits.OK
    heads = fitted.columns(_format(given), widths)
    words = list(dict.fromkeys([*given.listed("jobs"), *_words(given.rest[:1])]))
    if not words:
        raise frame.Failed(f"{_ERROR}You didn't give me any jobs to stat.")
    names = [name for name, _ in heads]
    write = str if given.has("noconvert") else usage_fields.scaled
    with context.open_api() as api:
        uses = [
            Use(step, usage, write)
            for ref, steps in _chosen(api, words, is_all=given.has("allsteps"))
            for step, usage in _measured(api, ref, steps, has_pids="Pids" in names)
        ]
    if given.has("pidformat"):
        uses = [line for one in uses for line in one.by_node()]
    is_parsable = given.has("parsable") or given.has("parsable2")
    shapes = [row.long for row, _, _ in given.found if row.long in ("parsable", "parsable2")]
    lines = fitted.lines(
        heads,
        [usage_fields.row_of(names, one) for one in uses],
        has_header=not given.has("noheader"),
        ending=given.last("delimiter") or "|" if is_parsable else None,
        is_ended=shapes[-1:] == ["parsable"],
    )
    sys.stdout.write("".join(lines))
    return exits.OK


def _format(given: Options) -> str:
    chosen = [
        usage_fields.PIDS if row.long == "pidformat" else value
        for row, value, _ in given.found
        if row.long in ("format", "pidformat")
    ]
    return ",".join(chosen) or usage_fields.DEFAULT


def _words(rest: Iterable[str]) -> list[str]:
    return [word for text in rest for word in text.split(",") if word]


def _chosen(api: Api, words: Sequence[str], *, is_all: bool) -> Iterator[tuple[Any, list[Any]]]:
    """The live steps that the words name, by job, with the reference of the job. Raises Failed."""
    from escli.job_refs import job_refs
    from eslurm.v1 import controller_pb2 as pb

    try:
        named = [(word, ref) for word in words for ref in job_refs([word.partition(".")[0]], "--jobs")]
    except OptionError as error:
        raise frame.Failed(f"{_ERROR}{error}") from None
    live = api.call("Steps", pb.StepsRequest(jobs=[ref for _, ref in named])).steps
    for word, ref in named:
        jobs: dict[int, list[Any]] = {}
        for step in live:
            if _is_of(step, ref):
                jobs.setdefault(step.job_id, []).append(step)
        _, dot, number = word.partition(".")
        found = False
        for job_id, steps in jobs.items():
            if dot:
                steps = [step for step in steps if step_label(step).rpartition(".")[2] == number]
            elif not is_all:
                steps = [step for step in steps if not step.is_batch][:1]
            if steps:
                found = True
                yield pb.JobRef(job_id=job_id, cell=ref.cell), steps
        if not found:
            text = f"StepId={word} not found running." if dot else f"No steps running for job {word}"
            frame.print_error(_ERROR + text)


def _is_of(step: Any, ref: Any) -> bool:
    if ref.HasField("task"):
        return bool(step.array_job_id == ref.job_id and step.array_task == ref.task)
    return ref.job_id in (step.job_id, step.array_job_id)


def _measured(api: Api, ref: Any, steps: Sequence[Any], *, has_pids: bool) -> Iterator[tuple[Any, Any]]:
    """The steps that their nodes have measured, with what they use; what is missing is said on standard error."""
    from eslurm.v1 import controller_pb2 as pb

    for at in range(0, len(steps), _STEPS_PER_CALL):
        part = {_BATCH if step.is_batch else step.step: step for step in steps[at : at + _STEPS_PER_CALL]}
        try:
            reply = api.call("StepUsage", pb.StepUsageRequest(job=ref, steps=part, processes=has_pids))
        except CommandFailed as failure:
            if failure.code == exits.UNREACHABLE:
                raise
            for step in part.values():
                _tell_trouble(step, failure.text)
            continue
        found = {usage.step: usage for usage in reply.steps}
        silence = "; ".join(f"{one.node_names}: {one.why}" for one in reply.silent)
        for number, step in part.items():
            usage = found.get(number)
            if usage is None:
                _tell_trouble(step, silence or "it has ended")
                continue
            if silence and usage.node_names != step.node_names:
                _tell_trouble(step, silence)
            if usage.is_partial:
                _tell_trouble(step, "it has more processes than are looked at")
            yield step, usage


def _tell_trouble(step: Any, why: str) -> None:
    frame.print_error(f"{_ERROR}problem getting step_layout for StepId={step_label(step)}: {why}")
