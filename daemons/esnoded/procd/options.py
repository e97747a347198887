"""Root's options for the step supervisor, in a file that only root can write."""

from __future__ import annotations

from typing import Literal

import msgspec

JOB_PROCESSES = 32_768


class Options(msgspec.Struct, frozen=True):
    """`ring` is a file with the site's public keys, `nodes` the host list of the nodes that this host is.

    The supervisor runs as `uid` and `gid` when root starts it; -1: as root. `prolog` and `epilog` are programs that run
    before and after each attempt on this host, as root or as the job's user (`phase_user`), for `phase_limit_s` at most;
    empty: none. `task_prolog` and `task_epilog` run before and after each task as its user. `gateway_daemon` is the program
    of a job's gateways that names none of its own; it runs as the job's user. `containment` says whether steps have control
    groups: where the host has them, never, or else the supervisor does not start. `job_processes` is the greatest number of
    processes and threads of a job on a node, 0: any. Where memory runs out, a step ends or with `oom_ends` its whole job.
    With `bind_cores` each job has cores of its own. Set-user-id programs gain no rights in users' jobs, unless
    `allow_set_user_id`. `private_dirs` are each job's own on a node and hold `private_dirs_mib` each, 0: half of the memory.
    Both need root.
    """

    nodes: str
    ring: str
    min_uid: int = 1000
    allow_root_jobs: bool = False
    idle_exit_s: float = 600.0
    uid: int = -1
    gid: int = -1
    prolog: str = ""
    epilog: str = ""
    phase_user: Literal["root", "job"] = "root"
    phase_limit_s: float = 300.0
    task_prolog: str = ""
    task_epilog: str = ""
    gateway_daemon: str = ""
    containment: Literal["auto", "none", "required"] = "auto"
    job_processes: int = JOB_PROCESSES
    oom_ends: Literal["step", "job"] = "step"
    bind_cores: bool = False
    allow_set_user_id: bool = False
    private_dirs: tuple[str, ...] = ()
    private_dirs_mib: int = 0


def read_options(path: str) -> Options:
    """Raises OSError, `msgspec.MsgspecError`."""
    with open(path, "rb") as file:
        return msgspec.json.decode(file.read(), type=Options)
