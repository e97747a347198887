"""A command's calls to the controllers: the choice of endpoints, and their failures as messages.

Imports nothing at start but what every command needs; the client is imported at the first call, and the code for
controllers of another host (`escli.remote`) only on demand.
"""

from __future__ import annotations

import os
import time

from escli import exits
from escli.endpoint import Endpoint
from escli.failures import CommandFailed
from escli.parts import in_parts, join
from escli.program import warn
from eslurm.compat.errors import OptionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from escli.options import Words
    from eslurm.api.client import ApiClient

SOCKET = "esctld.sock"
"""The first controller's; those of others are called `esctld-NAME.sock`."""
SYSTEM_SOCKET = "/run/eslurm/esctld.sock"
TIMEOUT_S = 30.0
GIVE_UP_S = 600.0
"""Time for which a waiting command goes on while no controller answers."""
_DEADLINE_EXCEEDED = 4
_RESOURCE_EXHAUSTED = 8
_UNAVAILABLE = 14
_UNAUTHENTICATED = 16
_SENT_AWAY = (_RESOURCE_EXHAUSTED, _UNAUTHENTICATED)
"""Statuses given before the call's request id is looked up."""
_PATIENCE_FIRST_S = 1.0
_PATIENCE_S = 10.0
REMOTE_ONLY = ("token-file", "tls-ca")
"""Options that say how to call the controllers of another host."""
_OTHERS_BEGIN = "esctld-"
_OTHERS_END = ".sock"


def find_sockets(option: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The API sockets: `--socket`, ESLURM_SOCKET (several as `a:b`), this user's own cluster, or the machine's.

    Of a cluster's own directory only as many as are needed to find an existing one: see `sockets_in`. Raises CommandFailed
    (unreachable) when there is none.
    """
    named = option or environ.get("ESLURM_SOCKET", "")
    if named:
        paths = tuple(path for path in named.split(":") if path)
        # Within a job the socket's daemon is only being restarted: the client waits for it.
        in_job = not option and "SLURM_JOB_ID" in environ
        if not in_job and not any(map(os.path.exists, paths)):
            where = "--socket" if option else "ESLURM_SOCKET"
            raise CommandFailed(
                exits.UNREACHABLE, f"there is no socket {named} ({where}): is its cluster up?"
            )
        return paths
    own = os.path.join(state_dir(environ), SOCKET)
    for path in (own, SYSTEM_SOCKET):
        if os.path.exists(path):
            return (path,)
        others = sockets_in(os.path.dirname(path))
        if others:
            return (path, *others)
    raise CommandFailed(
        exits.UNREACHABLE,
        f"no cluster here (no {own}): start one with `eslurm up`, or name its --socket, or --remote its controllers",
    )


ROOT_STATE_DIR = "/var/lib/eslurm"


def sockets_in(directory: str) -> tuple[str, ...]:
    """The sockets of the controllers beside the first one, by their names in this directory."""
    try:
        names = os.listdir(directory)
    except OSError:
        return ()
    return tuple(
        os.path.join(directory, name)
        for name in sorted(names)
        if name.startswith(_OTHERS_BEGIN) and name.endswith(_OTHERS_END)
    )


def state_dir(environ: Mapping[str, str]) -> str:
    """State directory of this user's own cluster: ESLURM_STATE_DIR, or `~/.local/state/eslurm`.

    Root's agents run as another user, which may not pass root's home: `/var/lib/eslurm`, unless there is a cluster
    already.
    """
    named = environ.get("ESLURM_STATE_DIR") or os.path.expanduser("~/.local/state/eslurm")
    if os.geteuid() != 0 or "ESLURM_STATE_DIR" in environ or os.path.exists(named):
        return named
    return ROOT_STATE_DIR


def find_endpoint(given: Words, environ: Mapping[str, str]) -> Endpoint:
    """The endpoint from the options, else the environment, else this host's sockets, else a client file.

    Within a job ESLURM_SOCKET is set, so it comes before ESLURM_REMOTE. Raises OptionError, or CommandFailed when there is
    no usable one.
    """
    option = given.text("socket")
    named = option or environ.get("ESLURM_SOCKET", "")
    if given.has("remote") or (not named and environ.get("ESLURM_REMOTE")):
        from escli.remote import named_controllers

        return named_controllers(given, environ)
    try:
        paths = find_sockets(option, environ)
    except CommandFailed:
        if named:
            raise
        from escli.remote import find_configured

        configured = find_configured(given, environ)
        if configured is None:
            raise
        return configured
    for long in REMOTE_ONLY:
        if given.has(long):
            way_out = "name them with --remote HOST:PORT"
            raise OptionError(
                given.spelling(long), given.text(long), "is for controllers of another host", way_out
            )
    return Sockets(paths, "" if named else os.path.dirname(paths[0]))


class Sockets(Endpoint):
    """The API sockets on this host. `directory`: searched for more when none of `paths` answers; empty: none."""

    advice = " (`eslurm status` tells more, `eslurm up` starts a cluster)"

    def __init__(self, paths: Sequence[str], directory: str = "") -> None:
        self._paths = tuple(paths)
        self._directory = directory

    @property
    def first(self) -> str:
        return self._paths[0]

    def client(self, patience_s: float, on_refused: Callable[[str], None]) -> ApiClient:
        from eslurm.api.unix_client import Client

        directory = self._directory
        find_more = (lambda: sockets_in(directory)) if directory else None
        return Client(self._paths, patience_s, find_more, on_refused)

    def user(self) -> str:
        import pwd

        try:
            return pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            return str(os.getuid())


class Raw:
    """An encoded message in the place of a protobuf one: it only lends its bytes to the client."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def SerializeToString(self) -> bytes:
        return self.data

    @classmethod
    def FromString(cls, data: bytes) -> Raw:
        return cls(data)


class RawMethod:
    """A method whose messages stay encoded, so that the protobuf runtime need not be imported."""

    __slots__ = ("mutating", "name", "number")
    request = Raw
    reply = Raw

    def __init__(self, name: str, number: int, mutating: bool) -> None:
        self.name = name
        self.number = number
        self.mutating = mutating


SUBMIT = RawMethod("Submit", 2, True)


class Api:
    """Calls of one command. Each raises CommandFailed with the text and exit code to end with."""

    def __init__(self, endpoint: Endpoint, command: str) -> None:
        self._endpoint = endpoint
        self._command = command
        self._client: ApiClient | None = None
        self._told = False
        self._began_s = 0.0

    @property
    def path(self) -> str:
        """The socket or the endpoint in use, or the first one to try."""
        return self._client.path if self._client is not None else self._endpoint.first

    @property
    def is_remote(self) -> bool:
        """Check whether it calls another host's controllers, with a token."""
        return self._endpoint.is_remote

    def user(self) -> str:
        """The caller's user name in the cluster."""
        return self._endpoint.user()

    def another(self) -> Api:
        """A second endpoint of the same cluster with a connection of its own, for another thread."""
        return Api(self._endpoint, self._command)

    def __enter__(self) -> Api:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._hang_up()

    def _hang_up(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def send(self, method: RawMethod, request: bytes, timeout_s: float, request_id: bytes) -> bytes:
        """One call with messages that the caller encodes and decodes. Every retry has the same `request_id`."""
        reply: bytes = self._call(method, Raw(request), timeout_s, request_id).data
        return reply

    def call(
        self, method: str, request: Any, timeout_s: float = TIMEOUT_S, request_id: bytes | None = None
    ) -> Any:
        """One call with protobuf messages; a list too long for one goes in several, whose answers are joined."""
        from eslurm.api.methods import BY_NAME

        parts = in_parts(method, request)
        reply = self._call(BY_NAME[method], next(parts), timeout_s, request_id)
        for part in parts:
            join(reply, self._call(BY_NAME[method], part, timeout_s, None))
        return reply

    def _call(self, method: Any, request: Any, timeout_s: float, request_id: bytes | None) -> Any:
        from eslurm.ports.api_outcome import ApiRefused, ApiUnreachable

        if request_id is None and method.mutating:
            request_id = os.urandom(16)
        try:
            return self._patiently(method, request, timeout_s, request_id)
        except ApiRefused as refusal:
            if refusal.status == _DEADLINE_EXCEEDED:
                raise _unknown_outcome(method, f"no answer within {timeout_s:g} s") from None
            if refusal.status == _UNAVAILABLE:
                text = self._not_ready(refusal.text, timeout_s)
                if method.mutating and refusal.maybe_done:
                    raise _unknown_outcome(method, text) from None
                nothing = "; nothing was changed" if method.mutating else ""
                raise CommandFailed(exits.UNREACHABLE, text + nothing) from None
            text = refusal.text
            if refusal.status == _UNAUTHENTICATED:
                if self._endpoint.has_changed():
                    self._hang_up()
                    return self._call(method, request, timeout_s, request_id)
                text += self._endpoint.about_caller()
            if method.mutating and refusal.maybe_done and refusal.status in _SENT_AWAY:
                raise _unknown_outcome(method, text) from None
            raise CommandFailed(exits.FAILED, text) from None
        except ApiUnreachable as silence:
            if silence.maybe_done and method.mutating:
                raise _unknown_outcome(method, str(silence)) from None
            raise CommandFailed(exits.UNREACHABLE, f"{silence}{self._endpoint.advice}") from None

    def _not_ready(self, why: str, timeout_s: float) -> str:
        return f"the controller was not ready within {timeout_s:g} s: {why}"

    def _patiently(self, method: Any, request: Any, timeout_s: float, request_id: bytes | None) -> Any:
        """Call; while no controller answers, say so once and retry: a controller starts in seconds."""
        from eslurm.ports.api_outcome import ApiUnreachable

        self._began_s = time.monotonic()
        self._client = self._client or self._endpoint.client(_PATIENCE_FIRST_S, self._hear)
        try:
            return self._client.call(method, request, timeout_s, request_id)
        except ApiUnreachable as silence:
            if silence.maybe_done or silence.is_final:
                raise
        if not self._told:
            self._told = True
            warn(self._command, "the controller does not answer (is it starting?); trying again")
        self._client.close()
        self._client = self._endpoint.client(min(timeout_s, _PATIENCE_S), self._hear)
        return self._client.call(method, request, timeout_s, request_id)

    def _hear(self, refusal: str) -> None:
        """Note a temporary refusal that is retried: reported once, when it lasts longer than a moment."""
        if not self._told and time.monotonic() - self._began_s >= _PATIENCE_FIRST_S:
            self._told = True
            warn(self._command, f"{refusal.partition(': try again')[0]}; trying again")


def is_away(failure: CommandFailed) -> bool:
    """Check whether no controller answered in time: it may be back, or another may lead, in a moment."""
    return failure.code in (exits.UNREACHABLE, exits.UNKNOWN_OUTCOME)


def _unknown_outcome(method: Any, why: str) -> CommandFailed:
    hint = ": it may have taken effect, look before you repeat it" if method.mutating else ""
    return CommandFailed(exits.UNKNOWN_OUTCOME, f"{why}{hint}")
