"""An allocation without a script, as the command has it that asks for it: granted, kept, released.

Steps: submit, wait until the nodes are there, keep it in a thread of its own as long as this process lives, release it.
Invariant: from its submission on an interrupted command gives its allocation back.
"""

from __future__ import annotations

import os
import socket
import threading
import time

from escli import exits
from escli.api import GIVE_UP_S, SUBMIT, is_away
from escli.errors import Interrupted
from escli.failures import CommandFailed
from escli.wire import decode, encode
from escli.wire_tables import SUBMIT_REPLY, SUBMIT_REQUEST
from eslurm.compat.environment import describes_a_job
from eslurm.compat.states import FINAL_STATES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from escli.api import Api
    from escli.interrupts import Interrupts

_SUBMIT_TIMEOUT_S = 60.0
_CALL_MARGIN_S = 10.0
_KEEP_POLL_S = 20
"""A command is heard of so often at least: a part of `policy.inactive_limit_s`."""
_WAIT_POLL_S = 2
"""While it waits for its nodes: so soon an interrupt is acted upon."""
_QUIET_S = 1
"""A job that begins within this time did not wait."""
_PAUSE_S = 0.5
_JOIN_S = 2.0
GONE = frozenset({"COMPLETING", *FINAL_STATES})


class Revoked(Exception):
    """The allocation has ended before it was granted: `text` says why."""

    def __init__(self, job_id: int, text: str) -> None:
        super().__init__(text)
        self.job_id = job_id
        self.text = text


class Busy(Exception):
    """The nodes are not free at once, and the allocation was given back."""


class Allocation:
    """`tell` gets a line for the user on each change, in Slurm's words; `announces`: its number, too, while it waits."""

    def __init__(self, api: Api, tell: Callable[[str], None], *, announces: bool = True) -> None:
        self.job_id = 0
        self.node_list = ""
        self.waited_s = 0.0
        self.variables: dict[str, str] = {}
        self._api = api
        self._tell = tell
        self._announces = announces
        self._keeper: Keeper | None = None

    def ask(self, job: Mapping[str, Any], *, attended: bool) -> None:
        """Submit the request. Raises CommandFailed."""
        job = {**job, "script": b"", "environment": b"", "no_script": True, "attended": attended}
        request = encode({"jobs": [job]}, SUBMIT_REQUEST)
        answer = self._api.send(SUBMIT, request, _SUBMIT_TIMEOUT_S, os.urandom(16))
        reply = decode(answer, SUBMIT_REPLY)
        for warning in reply["warnings"]:
            self._tell(f"warning: {warning}")
        job_ids = reply["job_ids"]
        if not job_ids:
            text = "the controller accepted the job but gave no id: is it of another version?"
            raise CommandFailed(exits.FAILED, text)
        self.job_id = int(job_ids[0])

    def wait(self, interrupts: Interrupts, immediate_s: float | None = None) -> None:
        """Wait until it holds its nodes. Raises `Interrupted` or `Busy` once it was given back; `Revoked`, CommandFailed."""
        began_s = time.monotonic()
        state, has_told = "", False
        while True:
            try:
                interrupts.check()
                state, reply = self._look(state, _QUIET_S if not has_told else _WAIT_POLL_S)
            except Interrupted:
                self.release(0)
                raise
            self.waited_s = time.monotonic() - began_s
            if reply is not None and state == "RUNNING":
                break
            if reply is not None and state in GONE:
                raise Revoked(self.job_id, reply.text)
            if immediate_s is not None and self.waited_s >= immediate_s:
                self.release(0)
                raise Busy
            if not has_told and self.waited_s >= _QUIET_S:
                has_told = True
                if self._announces:
                    self._tell(f"Pending job allocation {self.job_id}")
                self._tell(f"job {self.job_id} queued and waiting for resources")
        if has_told:
            self._tell(f"job {self.job_id} has been allocated resources")
        assert reply is not None
        self.node_list = reply.node_list
        pairs = [text.partition("=") for text in reply.environment]
        self.variables = {name: value for name, _, value in pairs}

    def _look(self, state: str, timeout_s: int) -> tuple[str, Any]:
        """The state once it is another one; None in the place of an answer that did not come."""
        reply = attend(self._api, self.job_id, state, timeout_s)
        if reply is None:
            time.sleep(_PAUSE_S)
            return "", None
        return reply.state, reply

    def keep(self) -> Keeper:
        """Keep it from now on, until this process ends."""
        self._keeper = Keeper(self._api, self.job_id)
        return self._keeper

    def release(self, code: int) -> bool:
        """Give it back: its command has ended with this code; False: its end had begun before. Raises CommandFailed."""
        from eslurm.v1 import controller_pb2 as pb

        request = pb.ReleaseJobRequest(job_id=self.job_id, exit_code=code)
        reply = self._api.call("ReleaseJob", request, request_id=os.urandom(16))
        if self._keeper is not None:
            self._keeper.close()
        return bool(reply.count)

    def environment(self, environ: Mapping[str, str], cwd: str) -> dict[str, str]:
        """The variables of a command that works in it: this process's, with the job's over them."""
        kept = {name: value for name, value in environ.items() if not describes_a_job(name)}
        host = os.uname().nodename
        for prefix in ("SLURM", "ESLURM"):
            kept |= {f"{prefix}_SUBMIT_DIR": cwd, f"{prefix}_SUBMIT_HOST": host}
        return kept | self.variables


def attend(api: Api, job_id: int, state: str, timeout_s: int) -> Any:
    """Say that the command is there, and wait for another state; None while no controller answers. Raises CommandFailed."""
    from eslurm.v1 import controller_pb2 as pb

    request = pb.AttendJobRequest(job_id=job_id, state=state, timeout_s=timeout_s)
    try:
        return api.call("AttendJob", request, timeout_s + _CALL_MARGIN_S)
    except CommandFailed as failure:
        if not is_away(failure):
            raise
        return None


class Keeper:
    """Says in a thread of its own that the command is there. `heard` is readable once the allocation has ended."""

    def __init__(self, api: Api, job_id: int) -> None:
        self.heard, self._tell = socket.socketpair()
        self.text = ""
        self._api = api.another()
        self._job_id = job_id
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="keeper", daemon=True)
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        """Check whether the allocation has ended, or nothing can be known of it any more."""
        return not self._thread.is_alive()

    def close(self) -> None:
        """The allocation was given back."""
        self._closed.set()
        self._thread.join(_JOIN_S)
        self.heard.close()

    def _keep(self) -> None:
        heard_s = time.monotonic()
        state = "RUNNING"
        try:
            with self._api as api:
                while state not in GONE and not self._closed.is_set():
                    reply = attend(api, self._job_id, state, _KEEP_POLL_S)
                    if reply is not None:
                        heard_s, state, self.text = time.monotonic(), reply.state, reply.text
                    elif time.monotonic() - heard_s > GIVE_UP_S:
                        break
                    else:
                        self._closed.wait(_PAUSE_S)
        except CommandFailed as failure:
            self.text = failure.text
        finally:
            self._tell.close()
