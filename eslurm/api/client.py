"""Common part of the clients of both API endpoints: the choice of an endpoint, retries, deadlines.

Invariant: one call keeps one request id over all its tries, through any endpoint, so a call that was lost on the way takes
effect at most once; a call ends by its deadline. No gRPC, protobuf, asyncio or option parser is imported here.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod

from eslurm.ports.api_outcome import ApiRefused, ApiUnreachable, Status
from eslurm.transport.framing import checked_request_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Self

    # The protobuf runtime takes longer to import than a call takes.
    from eslurm.api.methods import Method, ReplyT, RequestT

_BACKOFF_FIRST_S = 0.05
_BACKOFF_MAX_S = 1.0
_TRY_S = 1.0
"""A try with less time than this, or than a quarter of the call's time where that is shorter, may end without an answer,
and its effect would stay unknown: it is not begun.
"""


class Lost(Exception):
    """This try failed; the next may not. `sent`: the call may have arrived. `is_final`: no waiting makes it better."""

    def __init__(self, text: str, *, sent: bool = False, is_final: bool = False) -> None:
        super().__init__(text)
        self.sent = sent
        self.is_final = is_final


class ApiClient(ABC):
    """A connection to one of `endpoints`, made when first needed and again when lost. For one thread, but for `abort`.

    Several endpoints lead to one cluster: when one is absent, refuses, is lost, is not available or has fallen silent, the
    next one is tried. `patience_s`: how long endpoints that were never reached are tried again (a daemon may be restarting).
    `find_more` is asked for further endpoints when all of `endpoints` have failed or one is silent. `on_refused` hears why a
    call is not served yet, each time before it is tried again.
    """

    silence_s = 2.0
    """A call without an answer for so long may only be long; with several endpoints the daemon is asked if it lives."""
    ping_s = 1.0
    advice = ""
    """The hint when no endpoint was ever reached."""
    one_round = False
    """A call ends when each endpoint has failed once: its caller pauses, and calls again."""

    def __init__(
        self,
        endpoints: Sequence[str],
        patience_s: float,
        find_more: Callable[[], Sequence[str]] | None,
        on_refused: Callable[[str], None] | None,
    ) -> None:
        self._endpoints = list(endpoints)
        self._find_more = find_more
        self._on_refused = on_refused
        self._patience_s = patience_s
        self._at = 0
        self._failed = 0
        self._is_aborted = False
        self._silent: set[str] = set()
        self._lost: dict[str, Lost] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    @property
    def path(self) -> str:
        """The endpoint in use, or to be tried next."""
        return self._endpoints[self._at]

    @abstractmethod
    def close(self) -> None:
        """Drop the connection; the next call makes a new one."""

    def abort(self) -> None:
        """End the call under way and refuse all others, with `ApiUnreachable`. From any thread."""
        self._is_aborted = True
        self._break_off()

    @abstractmethod
    def _break_off(self) -> None:
        """Make the exchange under way in another thread fail."""

    @abstractmethod
    def _exchange(
        self,
        method: Method[RequestT, ReplyT],
        payload: bytes,
        request_id: bytes,
        retry: bool,
        deadline_s: float,
    ) -> tuple[Status, bytes, float]:
        """One try at `path`: status, body, and after how many seconds the service wants to be asked again (0: it said
        nothing of it). Raises `Lost`.
        """

    @abstractmethod
    def _answers(self, endpoint: str) -> bool:
        """Check whether the daemon behind an endpoint still serves: a paused one accepts connections and is silent."""

    def call(
        self,
        method: Method[RequestT, ReplyT],
        request: RequestT,
        timeout_s: float,
        request_id: bytes | None = None,
    ) -> ReplyT:
        """Make one call and return its reply.

        Tries again with the same `request_id` (made up if none is given) when the connection is lost, the service is
        not available or it says when to come again, until `timeout_s` is over. Raises `ApiRefused` with the service's
        status, or `ApiUnreachable`; its `maybe_done` says whether the call may have taken effect all the same.
        """
        request_id = checked_request_id(request_id, mutating=method.mutating)
        payload = request.SerializeToString()
        began_s = time.monotonic()
        deadline_s = began_s + timeout_s
        last_s = deadline_s - min(_TRY_S, timeout_s / 4)
        sent = False
        lost_one = False
        pauses = 0
        self._failed = 0
        self._lost.clear()
        while True:
            if self._is_aborted:
                raise ApiUnreachable("the call was given up", maybe_done=sent, is_final=True)
            refused: ApiRefused | None = None
            after_s = 0.0
            try:
                self._check_silent(deadline_s)
                status, body, after_s = self._exchange(method, payload, request_id, sent, deadline_s)
            except Lost as error:
                self.close()
                self._lost[self.path] = error
                sent = lost_one = sent or error.sent
            else:
                sent = True
                self._lost.pop(self.path, None)
                if status is Status.OK:
                    return method.reply.FromString(body)
                if status is Status.DEADLINE_EXCEEDED:
                    raise self._unreachable(sent, began_s, "no answer in time")
                # Not available, and not a word on when to come again: whatever it has done of the call may be done.
                lost_one = lost_one or (status is Status.UNAVAILABLE and not after_s)
                refused = ApiRefused(status, body.decode(errors="replace"), maybe_done=lost_one)
                if status is not Status.UNAVAILABLE and not after_s:
                    raise refused
            now_s = time.monotonic()
            is_away = refused is None or refused.status is Status.UNAVAILABLE
            if is_away and self.one_round and refused is not None:
                self._lost[self.path] = Lost(refused.text)
                refused = None
            if is_away and now_s < last_s and self._turn_to_next():
                continue
            if self.one_round:
                raise refused or self._unreachable(sent, began_s)
            if self._final():
                raise self._unreachable(sent, began_s)
            pauses += 1
            pause_s = after_s or _pause_s(pauses)
            limit_s = last_s if sent else min(last_s, began_s + self._patience_s)
            if now_s + pause_s >= limit_s:
                raise refused or self._unreachable(sent, began_s)
            if refused is not None and self._on_refused is not None:
                self._on_refused(refused.text)
            time.sleep(pause_s)

    # ---- which endpoint ----

    def _turn_to_next(self) -> bool:
        """Go on to the next endpoint; false when every one has failed since the last pause."""
        self._failed += 1
        if self._failed >= len(self._endpoints):
            self._look_for_more()
        if len(self._endpoints) > 1:
            self.close()
            self._at = (self._at + 1) % len(self._endpoints)
        if self._failed < len(self._endpoints):
            return True
        self._failed = 0
        return False

    def _look_for_more(self) -> None:
        if self._find_more is not None:
            self._endpoints += [endpoint for endpoint in self._find_more() if endpoint not in self._endpoints]

    def _check_silent(self, deadline_s: float) -> None:
        """An endpoint that fell silent has to answer a short question first: a call would be waited for longer."""
        if self.path in self._silent and left_s(deadline_s) > self.ping_s:
            if not self._answers(self.path):
                raise Lost("it does not answer any more")
            self._silent.discard(self.path)

    def _await(self, has_come: Callable[[float], bool], deadline_s: float) -> None:
        """Wait until `has_come(seconds)`, which waits so long for the reply, or until shortly before the deadline.

        Raises `Lost` when the daemon has fallen silent and there are other endpoints: another one may have taken over.
        """
        while not has_come(min(self.silence_s, left_s(deadline_s))):
            if self._is_aborted:
                raise Lost("the call was given up", sent=True)
            if time.monotonic() + self.ping_s >= deadline_s:
                return
            self._look_for_more()
            if len(self._endpoints) > 1 and not self._answers(self.path):
                self._silent.add(self.path)
                raise Lost("it does not answer any more", sent=True)

    # ---- when none answers ----

    def _final(self) -> dict[str, str]:
        """By endpoint, what has to be changed before it can be used; empty while another one may do.

        Endpoints of standbys may be closed by right: they are no hope beside one that there is, and does not fit.
        """
        if any(endpoint not in self._lost for endpoint in self._endpoints):
            return {}
        return {endpoint: str(lost) for endpoint, lost in self._lost.items() if lost.is_final}

    def _unreachable(self, sent: bool, began_s: float, text: str = "") -> ApiUnreachable:
        final = self._final()
        if final:
            return ApiUnreachable(_each(final), maybe_done=sent, is_final=True)
        what = _each(
            {endpoint: text or str(self._lost.get(endpoint, "no answer")) for endpoint in self._endpoints}
        )
        advice = "the call may have taken effect: look before you repeat it" if sent else self.advice
        waited_s = time.monotonic() - began_s
        return ApiUnreachable(f"{what} (tried for {waited_s:.1f} s); {advice}", maybe_done=sent, why=what)


def _each(said: Mapping[str, str]) -> str:
    """Each endpoint's answer, and once the common one."""
    if len(set(said.values())) == 1:
        return f"{', '.join(said)}: {next(iter(said.values()))}"
    return "; ".join(f"{endpoint}: {why}" for endpoint, why in said.items())


def left_s(deadline_s: float) -> float:
    """Seconds left until then, and more than nothing: as a time-out zero would mean not to wait at all."""
    return max(0.001, deadline_s - time.monotonic())


def _pause_s(tries: int) -> float:
    """Doubling, with half of it left to chance so that many commands do not come back together."""
    whole_s: float = min(_BACKOFF_MAX_S, _BACKOFF_FIRST_S * 2 ** min(tries - 1, 8))
    return whole_s * (0.5 + os.urandom(1)[0] / 512)
