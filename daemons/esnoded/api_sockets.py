"""Early refusals of an agent's API socket, so that a command's user gets the right place at once.

Courtesy, not protection: the controller checks everything again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any

from eslurm.api.methods import Method
from eslurm.core.agent.node import LocalNode
from eslurm.core.model.endpoint import split_endpoint
from eslurm.ports.api import Answered, Answerer, Caller, Status

log = logging.getLogger("esnoded.api_sockets")


class AgentSocket:
    """Passes calls on once a node of this process has a number to vouch by. Implements `ports.api.Answerer`."""

    def __init__(self, answerer: Answerer, nodes: Callable[[], Collection[LocalNode]]) -> None:
        self._answerer = answerer
        self._nodes = nodes

    async def answer(self, method: Method[Any, Any], payload: bytes, caller: Caller) -> Answered:
        """See `ports.api.Answerer`."""
        nodes = self._nodes()
        if all(node.number < 0 for node in nodes):
            first = next(iter(nodes))
            if first.refused:
                text = f"the controller has refused {first.offer.name}: {first.refused}"
                return Answered(Status.FAILED_PRECONDITION, text, b"")
            text = f"{first.offer.name} is not registered with a controller yet: try again in a moment"
            return Answered(Status.UNAVAILABLE, text, b"")
        return await self._answerer.answer(method, payload, caller)


class LoginSocket:
    """A login host's API socket, for users. Implements `ports.api.Answerer`.

    `controllers` are the endpoints that root is sent to.
    """

    def __init__(self, answerer: Answerer, controllers: Sequence[str]) -> None:
        self._answerer = answerer
        hosts = dict.fromkeys(split_endpoint(endpoint)[0] for endpoint in controllers)
        self._where = (
            f"on a host of a controller ({', '.join(hosts)})" if hosts else "on a host of a controller"
        )

    async def answer(self, method: Method[Any, Any], payload: bytes, caller: Caller) -> Answered:
        """See `ports.api.Answerer`."""
        principal = caller.principal
        if principal.uid == 0:
            text = f"root's commands are not taken on a login host: give them {self._where}"
        elif method.is_privileged:
            text = (
                f"{method.name} is for {method.right}s, whose commands are not taken on a login host: "
                f"give them {self._where}"
            )
        else:
            return await self._answerer.answer(method, payload, caller)
        log.debug(
            "%s of %s (uid %d) was refused at the login socket", method.name, principal.name, principal.uid
        )
        return Answered(Status.PERMISSION_DENIED, text, b"")
