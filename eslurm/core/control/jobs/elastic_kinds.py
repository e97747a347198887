"""Kinds of jobs whose nodes stay as they are, or to which a further node cannot be added.

Pure functions of a job's request; the text of a problem names the option.
"""

from __future__ import annotations

from eslurm.core.model.job import JobSpec
from eslurm.core.model.messages import RefusalCode, Refused
from eslurm.core.model.parts import user_parts


def further_problem(spec: JobSpec) -> str:
    """The reason why a node more is no further one of this job's; empty without one."""
    request = spec.components[0]
    if request.chunks:
        return "it asks for resource sets (--rset), and a further node has none of them"
    if request.place == "pack":
        return "it asks for all of its tasks on one node (place=pack), and a further node cannot be that one"
    return ""


def check_elastic(spec: JobSpec, *, in_pack: bool = False) -> None:
    """Raise `Refused` when a job that is to grow by itself cannot."""
    request = spec.components[0]
    problem = further_problem(spec)
    if user_parts(spec) > 1:
        problem = "the parts of a job keep their nodes"
    elif spec.gateway is not None:
        problem = "its gateways (--gw-num) have routes to the nodes of its start"
    elif in_pack:
        problem = "the jobs of a pack are planned together, for the nodes of their start"
    elif spec.cells:
        problem = "a job that another cell may take (--cell) keeps its nodes"
    elif not 0 < request.nodes_min < request.nodes_max:
        problem = "the job has one number of nodes: give a range, like --nodes=4-16"
    if problem:
        raise Refused(RefusalCode.INVALID, f"--elastic: {problem}")
