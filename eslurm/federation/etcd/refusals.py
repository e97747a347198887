"""From etcd's refusals to the errors of the port.

Invariant: a change counts as not made only where etcd refuses it before it proposes it to the other members, or where it was
never sent; everything else is ambiguous.
"""

from __future__ import annotations

from typing import Any

import grpc

from eslurm.ports.kv import (
    KvAmbiguous,
    KvDenied,
    KvError,
    KvFull,
    KvTooLarge,
    KvUnavailable,
    LeaseLost,
    WatchBroken,
)
from eslurm.transport.tls_diagnosis import Texts, reason_in

TLS = Texts(
    "the certificate of etcd there is for other names: name the endpoint as its certificate does",
    "no TLS is spoken there: write http:// for it, or start etcd with --cert-file and --key-file",
)
NOT_SENT = ("failed to connect", "onnection refused", "timed out before", "errors resolving")
"""gRPC's words for a call that never left this host."""
_BEFORE_PROPOSAL = ("etcdserver: no leader", "etcdserver: too many requests", "etcdserver: not capable")
_HANDSHAKE = ("Handshake read failed", "Unwrap failed")
_TOKEN = ("etcdserver: invalid auth token", "auth: revision in header is old")
_DENIED = (
    "permission denied",
    "authentication failed",
    "user name is empty",
    "user name not found",
    "authentication is not enabled",
)
_TOO_LARGE = ("request is too large", "too many operations")
_OLD = ("revision has been compacted", "is a future revision")


def is_about_token(error: grpc.RpcError) -> bool:
    """Check whether etcd wants another token; it refused the call before it did anything."""
    return any(words in _details(error) for words in _TOKEN)


def was_not_sent(error: grpc.RpcError) -> bool:
    """Check whether the call never left this host, so that another member may be asked."""
    return _code(error) is grpc.StatusCode.UNAVAILABLE and any(words in _details(error) for words in NOT_SENT)


def error_of(error: grpc.RpcError, endpoint: str, *, is_change: bool, compacted: int = 0) -> KvError:
    """The port's error for a call to `endpoint` that failed."""
    details = _details(error)
    text = f"etcd at {endpoint}: {details or _code(error).name}"
    if "requested lease not found" in details:
        return LeaseLost(text)
    if any(words in details for words in _OLD):
        return WatchBroken(text, compacted)
    if "database space exceeded" in details:
        return KvFull(f"{text}: compact, defragment, and disarm its alarm (etcdctl)")
    if any(words in details for words in _TOO_LARGE):
        return KvTooLarge(text)
    if any(words in details for words in _DENIED) or is_about_token(error):
        return KvDenied(text)
    reason = reason_in(details, TLS)
    if reason:
        return KvDenied(f"etcd at {endpoint}: {reason}")
    if any(words in details for words in _HANDSHAKE):
        text += " (is TLS spoken there, and is this cell's certificate accepted?)"
    if was_not_sent(error) or any(words in details for words in _BEFORE_PROPOSAL):
        return KvUnavailable(text)
    if _code(error) in _LASTING:
        return KvError(text)
    return KvAmbiguous(text) if is_change else KvUnavailable(text)


_LASTING = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.PERMISSION_DENIED,
)
"""The same call ends the same way for ever, and has changed nothing."""


def _code(error: Any) -> grpc.StatusCode:
    code: grpc.StatusCode = error.code()
    return code


def _details(error: Any) -> str:
    return error.details() or ""
