"""Administrators' orders to this cell in its federation. The log has it, so it outlives a lead and the shared store."""

from __future__ import annotations

from msgspec.structs import replace

from eslurm.core.control.rights import is_administrator
from eslurm.core.model import facts
from eslurm.core.model.federation import FederationWish
from eslurm.core.model.messages import Changed, ChangeFederation, RefusalCode, Refused
from eslurm.core.state.cluster import State

ACTIONS = ("drain", "resume", "leave", "rejoin")


def on_change(state: State, message: ChangeFederation) -> tuple[list[facts.Fact], Changed]:
    """Record the order; one that is in force already changes nothing. Raises `Refused`."""
    if not is_administrator(state, message.by):
        raise Refused(
            RefusalCode.DENIED,
            f"{message.by.name} may not change the federation: that is for administrators (auth.administrators)",
        )
    wish = state.federation
    if wish is None or wish.federation != message.federation:
        # Orders of another federation do not count in this one.
        wish = FederationWish(message.federation)
    match message.action:
        case "drain" | "resume":
            if wish.left:
                raise Refused(
                    RefusalCode.CONFLICT,
                    f"{message.action}: this cell has left federation {message.federation}: esctl federation rejoin",
                )
            ordered = replace(wish, draining=message.action == "drain")
        case "leave" | "rejoin":
            ordered = replace(wish, left=message.action == "leave")
        case _:
            raise Refused(
                RefusalCode.INVALID,
                f"action {message.action[:64]!r} is not known: use one of {', '.join(ACTIONS)}",
            )
    return (
        ([], Changed(0)) if ordered == state.federation else ([facts.FederationChanged(ordered)], Changed(1))
    )
