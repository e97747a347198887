"""Statuses for exceptions, one table for all API endpoints.

Invariant: an unmapped exception reaches the caller as INTERNAL without its text, which may hold secrets; the log has it.
"""

from __future__ import annotations

import logging

from eslurm.core.model.messages import RefusalCode, Refused
from eslurm.ports.api import ApiError, Status

log = logging.getLogger(__name__)

STATUS_OF_REFUSAL: dict[RefusalCode, Status] = {
    RefusalCode.INVALID: Status.INVALID_ARGUMENT,
    RefusalCode.INFEASIBLE: Status.INVALID_ARGUMENT,
    RefusalCode.NOT_FOUND: Status.NOT_FOUND,
    RefusalCode.DENIED: Status.PERMISSION_DENIED,
    RefusalCode.CONFLICT: Status.FAILED_PRECONDITION,
    RefusalCode.EXHAUSTED: Status.RESOURCE_EXHAUSTED,
    RefusalCode.INTERNAL: Status.INTERNAL,
}


def refusal_of(error: Exception) -> ApiError:
    """The refusal for an exception. Logs unmapped ones.

    It comes without its traceback, which holds the caller's frame: a caller that keeps it in a variable would make a cycle
    of both, and the request would stay in memory until the next collection.
    """
    if isinstance(error, ApiError):
        return error.with_traceback(None)
    if isinstance(error, Refused):
        return ApiError(STATUS_OF_REFUSAL[error.code], error.text)
    if isinstance(error, TimeoutError):
        return ApiError(Status.DEADLINE_EXCEEDED, "the deadline passed before the answer was known")
    log.error("a call failed", exc_info=error)
    return ApiError(Status.INTERNAL, "internal error; the controller's log says more")
