"""Questions, calls and answers of sacctmgr: a change is made when its question is answered with yes."""

from __future__ import annotations

import json
import os
import sys

from escli import exits
from escli.failures import CommandFailed
from escli.slurm import frame
from eslurm.compat.slurm.associations import Site

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from eslurm.compat.slurm.manager_steps import Step

DECIDE_S = 30
"""Time for an answer to a question."""
_LEVELS = {"Administrator": "administrators", "Operator": "operators"}
"""Slurm's words for rights, and the keys of the configuration."""
_NAMED_MAX = 20
"""Jobs that are named when they are in the way."""


class Aborted(frame.Failed):
    """A question is answered with no before anything was to be changed."""


class Asker:
    """Asks before changes, unless they are immediate."""

    def __init__(self, *, is_immediate: bool) -> None:
        self.is_immediate = is_immediate

    def confirm(self, question: str) -> None:
        """Ask; raise Aborted unless the answer is yes."""
        if not self.agrees(question):
            sys.stdout.write("Aborted\n")
            raise Aborted(code=exits.OK)

    def agrees(self, question: str) -> bool:
        """Ask, and wait for a key: y or n."""
        if self.is_immediate:
            return True
        sys.stdout.write(f"{question} (You have {DECIDE_S} seconds to decide)\n")
        answer = ""
        with _single_keys():
            while answer not in ("y", "n", "\n"):
                if answer:
                    sys.stdout.write("Y or N please\n")
                sys.stdout.write("(N/y): ")
                sys.stdout.flush()
                key = _key()
                if key is None:
                    sys.stdout.write("timeout\n")
                    return False
                sys.stdout.write("\n")
                if not key:
                    return False
                answer = key.lower()
        return answer == "y"


def _single_keys() -> Any:
    """A terminal that gives each key as it is pressed, until the context ends."""
    import contextlib

    @contextlib.contextmanager
    def keys() -> Any:
        import termios

        before = termios.tcgetattr(0)
        now = termios.tcgetattr(0)
        now[3] &= ~termios.ICANON
        try:
            termios.tcsetattr(0, termios.TCSANOW, now)
            yield
        finally:
            termios.tcsetattr(0, termios.TCSANOW, before)

    return keys() if os.isatty(0) else contextlib.nullcontext()


def _key() -> str | None:
    """A character of standard input; empty at its end, None when none comes in time."""
    import select

    if not select.select([0], [], [], DECIDE_S)[0]:
        return None
    return os.read(0, 1).decode(errors="replace")


def apply(api: Any, steps: Sequence[Step], asker: Asker) -> int:
    """Make the changes of each step after its question; returns the exit code."""
    code = exits.OK
    for step in steps:
        if not asker.is_immediate:
            sys.stdout.write(step.text)
            if not asker.agrees("Would you like to commit changes?"):
                sys.stdout.write(" Changes Discarded\n")
                continue
        try:
            _make(api, step)
        except CommandFailed as failure:
            if failure.code == exits.UNREACHABLE:
                raise
            raise frame.Failed(f"{step.trouble}{failure.text}") from None
        if asker.is_immediate:
            sys.stdout.write(step.text)
    return code


def _make(api: Any, step: Step) -> None:
    from eslurm.v1 import controller_pb2 as pb

    request = pb.ChangePoliciesRequest()
    for one in step.changes:
        change = request.changes.add(action=one.action, kind=one.kind, name=one.name)
        for key, value in one.settings:
            change.settings.add(key=key, value=value)
    if not request.changes:
        return
    reply = api.call("ChangePolicies", request, request_id=os.urandom(16))
    for note in (*(problem.text for problem in reply.problems), *reply.notes):
        frame.warn("sacctmgr", note)


def check_idle(api: Any, cluster: str, users: Sequence[str], accounts: Sequence[str] | None) -> None:
    """Raise Failed when jobs of the users, in these accounts if any are named, wait or run."""
    from eslurm.compat.slurm.words import ENDED
    from eslurm.v1 import controller_pb2 as pb

    active = [
        info
        for user in users
        for info in api.call("Jobs", pb.JobsRequest(user=user)).jobs
        if info.state not in ENDED and info.user == user and (accounts is None or info.account in accounts)
    ]
    if active:
        lines = [
            f"  JobID = {info.job_id:<10} C = {cluster:<10} A = {info.account:<10} U = {info.user:<9}"
            for info in active[:_NAMED_MAX]
        ]
        raise frame.Failed(
            " Error with request: Job(s) active, cancel job(s) before remove",
            *lines,
            *([f"  and {len(active) - _NAMED_MAX} more"] if len(active) > _NAMED_MAX else ()),
        )


def levels_of(api: Any, users: Iterable[str]) -> dict[str, str]:
    """The rights of users, as far as the configuration may be seen: Administrator, Operator or None."""
    from escli.slurm.ended_runs import uid_of
    from eslurm.v1 import controller_pb2 as pb

    try:
        config = json.loads(api.call("Config", pb.ConfigRequest()).json or "{}")
    except CommandFailed:
        config = {}
    numbers = {level: config.get(key, ()) for level, key in _LEVELS.items()}
    return {
        user: next((level for level, uids in numbers.items() if uid_of(user) in uids), "None")
        for user in users
    }


def site_of(api: Any) -> Site:
    """The site's policies in Slurm's kinds."""
    from eslurm.v1 import controller_pb2 as pb

    found = api.call("Policies", pb.PoliciesRequest()).policies
    return Site((one.kind, one.name, json.loads(one.json or "{}")) for one in found)
