"""Helpers of the tests of the step supervisor: one agent's scenario, one step's outcome, the user of the steps."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

import pytest

from eslurm.ports.step_runner import StepOutcome, StepSpec
from esnoded.stepd.client import SupervisorClient
from tests.kits.stepd import NOBODY, Outcomes, Site
from tests.support.groups import as_root
from tests.support.loops import run

USERS = [pytest.param(os.getuid(), id="self"), pytest.param(NOBODY, id="other", marks=as_root)]


def play(
    site: Site, scenario: Callable[[SupervisorClient, Outcomes], Awaitable[None]], *, uvloop: bool = False
) -> None:
    """Run a scenario with one agent connected."""

    async def main() -> None:
        outcomes = Outcomes()
        async with site.client(outcomes) as client:
            await scenario(client, outcomes)

    run(main(), uvloop=uvloop)


def outcome_of(site: Site, spec: StepSpec) -> StepOutcome:
    """Run one step to its end."""
    found: list[StepOutcome] = []

    async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
        await client.launch(spec)
        found.append(await outcomes.of(spec.key))

    play(site, scenario)
    return found[0]
