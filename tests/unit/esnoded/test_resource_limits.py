"""Limits of a task: those of the submitting process, as far as the host allows them."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Mapping

import pytest

from eslurm.compat.resource_limits import PREFIX
from esnoded.task.resource_limits import limit_child, limits_of_children

_SAY = """
import json, resource, sys
from esnoded.task.resource_limits import set_limits
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 512))
resource.setrlimit(resource.RLIMIT_MEMLOCK, (4096, 8192))
set_limits(json.loads(sys.argv[1]))
print(*(resource.getrlimit(getattr(resource, "RLIMIT_" + name)) for name in sys.argv[2:]))
"""


def limits_with(variables: Mapping[str, str], *names: str) -> str:
    """The limits of a process of its own, which has 256 of 512 files and 4 of 8 KiB of locked memory."""
    told = json.dumps({PREFIX + name: value for name, value in variables.items()})
    return subprocess.run(
        [sys.executable, "-c", _SAY, told, *names], capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("100", "(100, 512)"),
        ("400", "(400, 512)"),
        ("100000", "(512, 512)"),
        ("-1", "(512, 512)"),
        ("x", "(256, 512)"),
    ],
)
def test_a_limit_is_taken_up_to_what_the_host_allows(asked: str, found: str) -> None:
    assert limits_with({"NOFILE": asked}, "NOFILE") == found


@pytest.mark.parametrize(
    ("asked", "found"), [("1024", "(4096, 8192)"), ("6000", "(6000, 8192)"), ("-1", "(8192, 8192)")]
)
def test_locked_memory_only_rises(asked: str, found: str) -> None:
    assert limits_with({"MEMLOCK": asked}, "MEMLOCK") == found


def test_a_number_that_no_kernel_takes_changes_nothing() -> None:
    before = limits_with({}, "CORE")
    assert limits_with({"CORE": "99999999999999999999"}, "CORE") in (before, "(-1, -1)")


def test_what_is_spawned_has_them_and_this_process_has_its_own_again() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE), resource.getrlimit(resource.RLIMIT_FSIZE)
    env = {f"{PREFIX}NOFILE": "77", f"{PREFIX}FSIZE": "12345"}
    read_fd, write_fd = os.pipe()
    words = ["/bin/sh", "-c", "read line <&8; ulimit -n; ulimit -f"]
    out_fd, told_fd = os.pipe()
    actions = [(os.POSIX_SPAWN_DUP2, read_fd, 8), (os.POSIX_SPAWN_DUP2, told_fd, 1)]
    with limits_of_children(env):
        pid = os.posix_spawn("/bin/sh", words, {}, file_actions=actions)
    limit_child(pid, env)
    os.write(write_fd, b"go\n")
    os.waitpid(pid, 0)
    for fd in (read_fd, write_fd, told_fd):
        os.close(fd)
    with open(out_fd) as told:
        assert told.read().split() == ["77", str(12345 // 512)]
    assert (resource.getrlimit(resource.RLIMIT_NOFILE), resource.getrlimit(resource.RLIMIT_FSIZE)) == before
