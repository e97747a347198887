"""The verbs of scontrol about the cluster itself: `token`, `takeover`, states of partitions, daemons and jobs of a host."""

from __future__ import annotations

import os
import socket

from escli import exits
from escli.slurm import frame
from eslurm.compat.errors import whole_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from escli.api import Api

_LIFE_S = 1800
"""Slurm's life of a token that asks for none."""
_LIFE_MAX_S = 2**31 - 1
_LOCAL = ("localhost", "127.0.0.1", "::1", "[::1]")
_ON_NODES = ("LAUNCHING", "RUNNING", "COMPLETING", "SUSPENDED")


def token(api: Api, words: Sequence[str]) -> int:
    """`scontrol token [lifespan=SECONDS] [username=USER]`: a token, in the variable that Slurm's clients read."""
    from eslurm.v1 import controller_pb2 as pb

    values = {key.lower(): value for key, _, value in (word.partition("=") for word in words)}
    for key in values:
        if key not in ("lifespan", "username"):
            raise frame.Failed(f"scontrol: error: token: {key} is not supported: use lifespan= and username=")
    life_s = _life_s(values.get("lifespan", ""))
    request = pb.CreateTokenRequest(user=values.get("username", ""), life_s=life_s)
    reply = api.call("CreateToken", request, request_id=os.urandom(16))
    frame.print_line(f"SLURM_JWT={reply.token}")
    return exits.OK


def _life_s(text: str) -> int:
    if not text:
        return _LIFE_S
    seconds = _LIFE_MAX_S if text.lower() == "infinite" else whole_number(text, 10)
    if not 0 < seconds <= _LIFE_MAX_S:
        raise frame.Failed(f"scontrol: error: Invalid lifespan={text}: use seconds, e.g. lifespan=3600")
    return seconds


def takeover(api: Api, words: Sequence[str]) -> int:
    """`scontrol takeover [INDEX]`: let the standby of this number lead; 1 is the first one."""
    from escli.user.controllers import hand_over, standbys

    index = whole_number(words[0], 3) if words else 1
    names = standbys(api)
    if not 1 <= index <= len(names):
        raise frame.Failed(
            f"slurm_takeover error: there is no backup controller {words[0] if words else ''}".rstrip()
        )
    hand_over(api, names[index - 1])
    return exits.OK


def update_partition(api: Api, words: Sequence[str]) -> int:
    """`scontrol update PartitionName=NAME State=UP|DOWN|DRAIN|INACTIVE`."""
    from eslurm.v1 import controller_pb2 as pb

    values = {key.lower(): value for key, _, value in (word.partition("=") for word in words)}
    for word in words:
        if word.partition("=")[0].lower() not in ("partitionname", "state"):
            raise frame.Failed(f"Update of this parameter is not supported: {word}", "Request aborted")
    state = values.get("state", "").upper()
    if state not in ("UP", "DOWN", "DRAIN", "INACTIVE"):
        raise frame.Failed(
            f"Invalid input: {f'State={state}' if state else 'State='}",
            "Acceptable State values are UP, DOWN, DRAIN and INACTIVE",
        )
    names = [name for name in values["partitionname"].split(",") if name]
    request = pb.UpdatePartitionsRequest(names=names, state=state)
    reply = api.call("UpdatePartitions", request, request_id=os.urandom(16))
    for problem in reply.problems:
        frame.print_error(f"slurm_update error: {problem.text}")
    return exits.FAILED if reply.problems else exits.OK


def show_daemons(api: Api) -> int:
    """The daemons that this host has, by Slurm's names."""
    from eslurm.v1 import controller_pb2 as pb

    here = _own_names()
    controllers = api.call("Controllers", pb.ControllersRequest()).controllers
    nodes = api.call("Nodes", pb.NodesRequest()).nodes
    found = ["slurmctld"] * any(map(here, controllers)) + ["slurmd"] * any(map(here, nodes))
    frame.print_line(" ".join(found))
    return exits.OK


def _own_names() -> Any:
    """The test whether a daemon, by its name or the host of its endpoint, is of this host."""
    names = {socket.gethostname(), socket.gethostname().partition(".")[0], *_LOCAL}
    return lambda one: one.name in names or one.endpoint.rpartition(":")[0] in names


def list_jobs(api: Api, words: Sequence[str]) -> int:
    """`scontrol listjobs [NODE]`: the jobs on a node, this host's if none is named."""
    from eslurm.v1 import controller_pb2 as pb

    node = words[0] if words else os.environ.get("SLURMD_NODENAME") or _host_node(api)
    reply = api.call("Nodes", pb.NodesRequest(names=[node]))
    jobs = [job for one in reply.nodes for job in one.jobs]
    if not jobs:
        frame.print_error(f"scontrol: There are no jobs running on node {node}")
        return exits.FAILED
    _print_column("JOBID", map(str, sorted(jobs)))
    return exits.OK


def _host_node(api: Api) -> str:
    """The node that this host is. Raises Failed when it is none, or several."""
    from eslurm.v1 import controller_pb2 as pb

    here = _own_names()
    found = [node.name for node in api.call("Nodes", pb.NodesRequest()).nodes if here(node)]
    if len(found) != 1:
        why = f"this host has {len(found)} nodes" if found else "this host is no node"
        raise frame.Failed(f"scontrol: error: {why}: name one, e.g. scontrol listjobs cn1")
    return str(found[0])


def _print_column(head: str, rows: Iterable[str]) -> None:
    frame.print_line(f"{head:<8}")
    for row in rows:
        frame.print_line(f"{row:<8}")
