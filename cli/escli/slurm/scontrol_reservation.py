"""`scontrol create|update|delete` of reservations, over the call of `esctl reservation`."""

from __future__ import annotations

import os

from escli import exits
from escli.failures import CommandFailed
from escli.slurm import frame
from eslurm.compat.slurm.reservation_words import named, settings_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from escli.api import Api

_NAMES_TRIED_MAX = 1_000


def create(api: Api, words: Sequence[str]) -> int:
    """Make a reservation; one without a name gets the caller's and a number, as Slurm's do."""
    name, others = named(words)
    settings = settings_of(others)
    if not {"users", "accounts", "groups"} & {key for key, _ in settings}:
        raise frame.Failed("Either Users/Groups and/or Accounts must be specified.  No reservation created.")
    name = name or _free_name(api)
    _change(api, "add", name, settings, "Error creating the reservation: ")
    frame.print_line(f"Reservation created: {name}")
    return exits.OK


def update(api: Api, words: Sequence[str]) -> int:
    """Change what is named of a reservation."""
    name, others = named(words)
    if not name:
        raise frame.Failed("Reservation must be given.  No reservation update performed.")
    _change(api, "modify", name, settings_of(others), "Error updating the reservation: ")
    frame.print_line("Reservation updated.")
    return exits.OK


def delete(api: Api, name: str) -> int:
    """Delete a reservation."""
    _change(api, "delete", name, (), "Error deleting the reservation: ")
    return exits.OK


def _free_name(api: Api) -> str:
    from eslurm.v1 import controller_pb2 as pb

    reply = api.call("Policies", pb.PoliciesRequest(kind="reservation"))
    taken = {one.name for one in reply.policies}
    stem = frame.user_name()
    for number in range(1, _NAMES_TRIED_MAX):
        if f"{stem}_{number}" not in taken:
            return f"{stem}_{number}"
    raise frame.Failed("Error creating the reservation: give it a name: ReservationName=NAME")


def _change(api: Api, action: str, name: str, settings: Sequence[tuple[str, str]], told: str) -> None:
    from eslurm.v1 import controller_pb2 as pb

    change: Any = pb.PolicyChange(action=action, kind="reservation", name=name)
    for key, value in settings:
        change.settings.add(key=key, value=value)
    request = pb.ChangePoliciesRequest(changes=[change])
    try:
        reply = api.call("ChangePolicies", request, request_id=os.urandom(16))
    except CommandFailed as failure:
        raise frame.Failed(f"{told}{frame.trouble(failure)}") from None
    for problem in reply.problems:
        raise frame.Failed(f"{told}{problem.text}")
