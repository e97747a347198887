"""An agent's log lines of a launch. Goal: they carry the job's trace and the epoch, and none is made without a reader."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from eslurm.core.agent.actions import RunBatch
from eslurm.core.model.protocol import NodeGroup
from eslurm.core.model.step_key import BATCH_STEP, StepKey
from eslurm.ports.step_runner import StepEndCause, StepOutcome
from eslurm.telemetry import logs
from esnoded.shell import Shell
from tests.kits.agent import ENVIRONMENT, ME, SCRIPT
from tests.kits.launches import launch_of
from tests.support.loops import run

TRACE = bytes(range(16))
LAUNCH = launch_of(
    attempt=2,
    user=ME,
    groups=(NodeGroup(((3, 1),), (1,)),),
    node_names="cn3",
    script_hash=SCRIPT,
    environment_hash=ENVIRONMENT,
    trace=TRACE,
)
KEY = StepKey(7, 2, BATCH_STEP, 3)
ABOUT = {"job": 7, "attempt": 2, "step": BATCH_STEP, "epoch": 5}


def shell(*, known: bool = True) -> Shell:
    """A shell without blobs whose agent serves node 3, and knows the attempt there if it is `known`."""
    attempts = {(7, 2): SimpleNamespace(launch=LAUNCH)} if known else {}
    agent: Any = SimpleNamespace(
        registry=SimpleNamespace(by_number={3: SimpleNamespace(epoch=5, attempts=attempts)}),
        on_step_refused=lambda *_: [],
        on_step_ended=lambda *_: [],
        next_timer_us=lambda: None,
    )
    other: Any = SimpleNamespace(
        release=None,
        wants_compaction=False,
        now_us=lambda: 0,
        to_boot_us=int,
        cache=SimpleNamespace(find=lambda _: None),
    )
    return Shell(agent, other, other, "", other, other, other)


def ended() -> StepOutcome:
    return StepOutcome(KEY, 0, 0, StepEndCause.EXITED, "", 1, 2, 0, 0, 0)


@pytest.mark.parametrize("known", [True, False])
def test_an_end_is_told_with_the_trace_as_long_as_the_attempt_is_known(
    known: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        shell(known=known).on_runner_ended(ended())

    run(main())
    assert not caplog.records
    with caplog.at_level(logging.DEBUG, "esnoded.shell"):
        run(main())
    (record,) = caplog.records
    assert logs.ids_of(record) == ABOUT | {"node": 3} | ({"trace": TRACE.hex()} if known else {})


def test_what_cannot_be_started_is_told_with_the_trace(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        shell()._run_batch(RunBatch(StepKey(7, 2, BATCH_STEP, 3), LAUNCH))
        await asyncio.sleep(0)

    run(main())
    (record,) = caplog.records
    assert "could not be started here: the script is no longer in the cache" in record.getMessage()
    assert logs.ids_of(record) == ABOUT | {"trace": TRACE.hex()}
