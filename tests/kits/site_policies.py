"""A site's policies at the core: changes are read, decided and applied as the controller does it, and shown as its users see
them.
"""

from __future__ import annotations

import json

from eslurm.compat.errors import OptionError
from eslurm.compat.policies import KEYS, Site, read_change, shown
from eslurm.core.control.reactor import BatchAnswer
from eslurm.core.model.config import Resource
from eslurm.core.model.messages import ChangePolicies, Refused
from eslurm.ports.api import Status
from eslurm.v1 import controller_pb2 as pb
from tests.kits.core import ROOT, World
from tests.kits.fake_api import Refuse

_SITE = Site(1_800_000_000_000_000, lambda _: 0, lambda name: name, lambda number: number)


class SitePolicies:
    """Answers Policies and ChangePolicies."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """A site without policies."""
        self.world = World(1, restarts=False, resources=(Resource("gpu"),))

    def change(self, *changes: tuple[str, str, str, list[tuple[str, str]]]) -> BatchAnswer:
        """All of (action, kind, name, settings), or none."""
        present = self.world.state.policies
        read = (
            read_change(action, kind, name, settings, _SITE, present[kind].get(name))
            for action, kind, name, settings in changes
        )
        return self.world.send(ChangePolicies(ROOT, tuple(read)))

    def all(self) -> list[tuple[str, str, dict[str, str]]]:
        """(kind, name, settings) of each policy."""
        return [
            (kind, name, shown(policy, _SITE))
            for kind in KEYS
            for name, policy in sorted(self.world.state.policies[kind].items())
        ]

    def on_policies(self, _request: pb.PoliciesRequest) -> pb.PoliciesReply:
        """The answer to Policies."""
        return pb.PoliciesReply(
            policies=[
                pb.PolicyInfo(kind=kind, name=name, json=json.dumps(settings))
                for kind, name, settings in self.all()
            ]
        )

    def on_change(self, request: pb.ChangePoliciesRequest) -> pb.ChangeReply:
        """The answer to ChangePolicies; a refusal as the controller sends it."""
        try:
            answer = self.change(
                *(
                    (one.action, one.kind, one.name, [(pair.key, pair.value) for pair in one.settings])
                    for one in request.changes
                )
            )
        except OptionError as error:
            raise Refuse(Status.INVALID_ARGUMENT, str(error)) from None
        if isinstance(answer, Refused):
            raise Refuse(Status.FAILED_PRECONDITION, answer.text)
        return pb.ChangeReply(count=len(request.changes))
