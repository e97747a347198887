"""The client of the gRPC endpoint: for remote commands, and for estimators on other hosts.

Invariant: as of `eslurm.api.client`; a token never leaves this host unencrypted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import grpc

from eslurm.api.client import ApiClient, Lost, left_s
from eslurm.api.interceptor import REQUEST_ID_KEY, RETRY_AFTER_KEY, RETRY_KEY
from eslurm.api.methods import PING, SERVICE, Method, ReplyT, RequestT
from eslurm.core.model.endpoint import split_endpoint
from eslurm.ports.api import Status, status_of
from eslurm.transport.framing import NO_REQUEST_ID
from eslurm.transport.options import CONTROL_FRAME_BYTES_MAX, Options, door_channel_options, is_loopback
from eslurm.transport.tls import Tls
from eslurm.transport.tls_diagnosis import BROKEN_OFF, COMMAND, reason_in

REQUEST_BYTES_MAX = CONTROL_FRAME_BYTES_MAX
"""Bound of a request that a controller's server takes in one message."""
_NOT_CONNECTED = re.compile(
    r"(?:failed to connect to all addresses|errors resolving )"
    r"(?:.*(?:last error: \w+: \S+: (?:Failed to connect to remote host: )?|lookup failed for \S+: )(.*?)\]?$)?",
    re.DOTALL,
)
"""gRPC's words for a call that was never sent."""
_SLOW = ("timed out before", "Handshake read failed")
_ENDED = (*BROKEN_OFF, "keepalive", "Broken pipe", "GOAWAY")

_Metadata = tuple[tuple[str, str | bytes], ...]


def _metadata(token: str, request_id: bytes, *, retry: bool = False) -> _Metadata:
    fields: list[tuple[str, str | bytes]] = [("authorization", f"Bearer {token}")]
    if request_id != NO_REQUEST_ID:
        fields.append((REQUEST_ID_KEY, request_id))
    if retry:
        fields.append((RETRY_KEY, "1"))
    return tuple(fields)


def _retry_after_s(error: Any) -> float:
    """Retry time of the answer in seconds; 0: it gave none."""
    said = dict(error.trailing_metadata() or ()).get(RETRY_AFTER_KEY, "")
    return int(said) / 1000 if said.isdecimal() else 0.0


def _about_tls(details: str) -> str:
    """A hint on TLS for a connection that ended at once, whatever its cause."""
    if not any(words in details for words in BROKEN_OFF):
        return ""
    return " (if it speaks TLS, give its authority's certificate, and one of yours if it requires that)"


def _door_options(tls: Tls | None) -> Options:
    options = door_channel_options()
    if tls is not None and tls.files.name:
        options.append(("grpc.default_authority", tls.files.name))
    return options


def _check_token_path(endpoint: str, encrypted: bool) -> None:
    host, _port = split_endpoint(endpoint)
    if not encrypted and not is_loopback(host):
        raise ValueError(f"a token is sent to {endpoint} over TLS only: name its authorities (--tls-ca)")


class GrpcClient(ApiClient):
    """Calls to the leading one of the controllers at `endpoints`; see `ApiClient`.

    `token` may be a function, which is asked at each try: a file's token may be replaced.
    """

    advice = "is a controller running there, and is this its port?"

    def __init__(
        self,
        endpoints: str | Sequence[str],
        token: str | Callable[[], str],
        tls: Tls | None = None,
        patience_s: float = 10.0,
        on_refused: Callable[[str], None] | None = None,
    ) -> None:
        paths = [endpoints] if isinstance(endpoints, str) else endpoints
        super().__init__(paths, patience_s, None, on_refused)
        for endpoint in self._endpoints:
            _check_token_path(endpoint, tls is not None)
        self._token = token if callable(token) else lambda: token
        self._tls = tls
        self._channel: grpc.Channel | None = None

    def close(self) -> None:
        """Drop the connection; the next call makes a new one."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _break_off(self) -> None:
        channel = self._channel
        if channel is not None:
            channel.close()

    def _exchange(
        self,
        method: Method[RequestT, ReplyT],
        payload: bytes,
        request_id: bytes,
        retry: bool,
        deadline_s: float,
    ) -> tuple[Status, bytes, float]:
        if len(payload) > REQUEST_BYTES_MAX:
            text = (
                f"a request of {len(payload)} bytes; from another host at most {REQUEST_BYTES_MAX} go: "
                "use one of the cluster's"
            )
            return Status.RESOURCE_EXHAUSTED, text.encode(), 0.0
        if self._channel is None:
            self._channel = self._new_channel(self.path)
        ask: Any = self._channel.unary_unary(f"/{SERVICE}/{method.name}")
        pending = ask.future(
            payload, timeout=left_s(deadline_s), metadata=_metadata(self._token(), request_id, retry=retry)
        )
        try:
            self._await(lambda timeout_s: _has_come(pending, timeout_s), deadline_s)
            return Status.OK, pending.result(), 0.0
        except grpc.RpcError as error:
            return self._refusal(error)
        finally:
            pending.cancel()

    def _refusal(self, error: Any) -> tuple[Status, bytes, float]:
        """The service's refusal. Raises `Lost` for gRPC's own status, without a server."""
        status, text = status_of(error.code().value[0]), error.details() or ""
        after_s = _retry_after_s(error)
        if status is Status.RESOURCE_EXHAUSTED and "larger than max" in text:
            text = "the answer is too large to go to another host: ask for less, or use one of the cluster's"
        if status is not Status.UNAVAILABLE or after_s:
            return status, text.encode(), after_s
        reason = reason_in(text, COMMAND)
        if reason:
            raise Lost(reason, is_final=True)
        found = _NOT_CONNECTED.match(text)
        if found is not None:
            why = found[1] or text
            if any(words in why for words in _SLOW):
                why = "no answer"
            # A name that is gone, or cannot be looked up now, is no reason to give up the other controllers.
            is_final = "resolving" in text and len(self._endpoints) == 1
            raise Lost(f"{why}{_about_tls(why)}", is_final=is_final)
        if any(words in text for words in _ENDED):
            raise Lost(text, sent=True)
        return status, text.encode(), 0.0

    def _answers(self, endpoint: str) -> bool:
        with self._new_channel(endpoint) as channel:
            ask: Any = channel.unary_unary(PING.path)
            try:
                ask(b"", timeout=self.ping_s, metadata=_metadata(self._token(), NO_REQUEST_ID))
            except grpc.RpcError as error:
                refused: Any = error
                return refused.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
        return True

    def _new_channel(self, endpoint: str) -> grpc.Channel:
        options = [*_door_options(self._tls), ("grpc.use_local_subchannel_pool", 1)]
        if self._tls is None:
            return grpc.insecure_channel(endpoint, options)
        return grpc.secure_channel(endpoint, self._tls.channel_credentials(), options)


def _has_come(pending: Any, timeout_s: float) -> bool:
    try:
        pending.exception(timeout_s)
    except grpc.FutureTimeoutError:
        return False
    return True
