"""Looks for allocations whose command is silent, as long as this process leads."""

from __future__ import annotations

import asyncio

from esctld.lead.dispatcher import Dispatcher
from eslurm.core.dispatch.attendance import LOOK_US, Attendance
from eslurm.core.model.units import SECOND_US


async def attend(attendance: Attendance, dispatcher: Dispatcher) -> None:
    """Look until cancelled. Time in which the store takes no commits counts: calls are answered then, too."""
    while True:
        message = attendance.look(dispatcher.state, dispatcher.now_us())
        if message is not None:
            dispatcher.post(message)
        await asyncio.sleep(LOOK_US / SECOND_US)
