"""Control groups (cgroup v2) of steps: what needs root's rights.

Root makes one directory of groups and gives it to the supervisor, which makes a group in it for each job and step, sets
limits and kills (`esnoded.stepd.groups`). A process of a step enters its group before it becomes the user. Invariant: no
process leaves the group of its step, and all processes in the directory are of steps.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

from eslurm.core.model.step_key import StepKey
from eslurm.security.account import Account
from eslurm.telemetry.clocks import boot_us

CONTROLLERS = ("memory", "pids", "cpu", "cpuset")
DAEMONS = "daemons"
"""The group in which a service manager starts the agent (`DelegateSubgroup`), beside that of steps.

A group with processes of its own cannot limit those below it.
"""
PROTECTED = -900
"""The daemons' `oom_score_adj`: what runs out of memory are jobs."""
_GIVEN = ("cgroup.procs", "cgroup.subtree_control", "cgroup.kill", "cgroup.freeze")
_PATIENCE_US = 2_000_000
_LOOK_AGAIN_S = 0.01


def own_group() -> str:
    """The directory of this process's group; empty on a host without cgroup v2. Raises OSError."""
    with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
        path = next((line[3:].rstrip("\n") for line in file if line.startswith("0::")), "")
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            fields, _, rest = line.partition(" - ")
            root, mounted = fields.split(" ")[3:5]
            if rest.startswith("cgroup2 ") and path.startswith(root):
                return os.path.normpath(mounted + "/" + path[len(root) :])
    return ""


def delegate(name: str, account: Account | None) -> str:
    """Make a directory of groups beside the daemons, for the user of the supervisor; its path. Raises OSError."""
    own = own_group()
    if not own:
        raise FileNotFoundError("this host has no cgroup v2")
    parent = os.path.dirname(own) if os.path.basename(own) == DAEMONS else own
    # Without them groups still kill and count.
    for controller in CONTROLLERS:
        with suppress(OSError):
            write(f"{parent}/cgroup.subtree_control", f"+{controller}")
    path = f"{parent}/{name}"
    os.mkdir(path, 0o755)
    write(f"{path}/cgroup.max.depth", "2")
    if account is not None:
        for file in ("", *(one for one in _GIVEN if os.path.exists(f"{path}/{one}"))):
            os.chown(f"{path}/{file}", account.uid, account.gid, follow_symlinks=False)
    return path


def path_of(base: str, key: StepKey) -> str:
    """The group of a step, in that of its job on its node; prologs and epilogs are in one without limits."""
    kind = "phases" if key.is_phase else "job"
    return f"{base}/{kind}_{key.job_id}.{key.attempt}.{key.node}/step_{key.step}"


def enter(path: str) -> None:
    """Move this process into a group that the supervisor has made. Raises OSError."""
    with suppress(OSError):
        # Who started this may have had more than that, which only root can take away.
        write("/proc/self/oom_score_adj", "0")
    write(f"{path}/cgroup.procs", "0")


def end_all(base: str) -> bool:
    """Kill all processes below a directory of groups and remove it; says whether that is done. Raises OSError."""
    give_up_us = boot_us() + _PATIENCE_US
    while True:
        with suppress(FileNotFoundError):
            write(f"{base}/cgroup.kill", "1")
        for directory, _, _ in os.walk(base, topdown=False):
            with suppress(OSError):
                os.rmdir(directory)
        if not os.path.isdir(base) or boot_us() > give_up_us:
            return not os.path.isdir(base)
        time.sleep(_LOOK_AGAIN_S)


def write(path: str, text: str) -> None:
    """Write a file of the kernel's. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
