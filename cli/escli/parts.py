"""Requests whose lists are longer than one call takes: several calls, and one joined answer.

Only where the parts mean the same as the whole: each entry of the list is processed by itself.
"""

from __future__ import annotations

from eslurm.core.model.request_limits import REFERENCES_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_LISTS = {
    "Cancel": "jobs",
    "Hold": "jobs",
    "Requeue": "jobs",
    "Suspend": "jobs",
    "Jobs": "jobs",
    "Shares": "jobs",
    "UpdateNodes": "names",
    "Nodes": "names",
}
_SAME_IN_ALL = ("partitions", "shares")
_SUMS = ("count",)


def in_parts(method: str, request: Any) -> Iterator[Any]:
    """The request, or, when its list is too long, requests with a part of the list each."""
    field = _LISTS.get(method, "")
    entries = getattr(request, field) if field else ()
    if len(entries) <= REFERENCES_MAX:
        yield request
        return
    for at in range(0, len(entries), REFERENCES_MAX):
        part = type(request)()
        part.CopyFrom(request)
        part.ClearField(field)
        getattr(part, field).extend(entries[at : at + REFERENCES_MAX])
        yield part


def join(reply: Any, more: Any) -> None:
    """Put another part's answer behind the first ones'."""
    names = {field.name for field, _value in more.ListFields()}
    sums = {name: getattr(reply, name) + getattr(more, name) for name in _SUMS if name in names}
    for name in _SAME_IN_ALL:
        if name in names:
            more.ClearField(name)
    reply.MergeFrom(more)
    for name, value in sums.items():
        setattr(reply, name, value)
