"""Why a job with gateways waits, and whether one could start: its gateways by their name, and alternatives for its nodes."""

from __future__ import annotations

import pytest

from eslurm.core.explain.inquiry import would_wait
from eslurm.core.model.gateways import GATEWAY, GatewayRequest
from eslurm.core.model.messages import Changed, JobRef, Refused, SubmitJobs, Submitted, UpdateJob
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.cycle import exhaust
from tests.kits.asking import Site
from tests.kits.core import ALICE, SECOND
from tests.kits.gateways import gateway_world, started, submit
from tests.kits.parts import parted

TWO = Request(tasks=2, nodes_min=2, nodes_max=2)


def site() -> tuple[Site, int]:
    """Both gateways are a running job's for 100 s."""
    here = Site(gateway_world(restarts=False, policy="planned"))
    first = submit(here.world, 2, request=TWO, time_limit_s=100)
    here.run()
    started(here.world, first)
    return here, first


def test_the_gateways_are_named() -> None:
    here, _ = site()
    waits = submit(here.world, 1, request=Request(), time_limit_s=100)
    here.run()
    answer = here.why(waits)
    texts = [reason.text for reason in answer.reasons if not reason.nodes_of]
    assert any(text.startswith("its gateways: ") and "its nodes could start now" in text for text in texts)
    assert not any("part " in text for text in texts)
    assert answer.start_us == here.world.now_us + 100 * SECOND
    assert not answer.alternatives


def test_beside_several_parts() -> None:
    here, _ = site()
    cluster, booster = Request(constraint="cluster"), Request(constraint="booster")
    spec = parted(cluster, booster, gateway=GatewayRequest(1), time_limit_s=10)
    answer = exhaust(would_wait(here.world.state, here.schedule, spec, here.world.now_us))
    texts = [reason.text for reason in answer.reasons if not reason.nodes_of]
    assert any("its gateways: " in text and "parts 0 and 1 could start now" in text for text in texts)


def test_a_test_says_what_is_refused() -> None:
    here, _ = site()
    spec = parted(Request(constraint="booster"), gateway=GatewayRequest(1))
    with pytest.raises(Refused, match="are in the module booster"):
        exhaust(would_wait(here.world.state, here.schedule, spec, here.world.now_us))


def test_alternatives_are_to_what_the_user_named() -> None:
    here = Site(gateway_world(restarts=False, policy="planned"))
    here.world.submit(request=Request(constraint="booster", exclusive=True), time_limit_s=3600)
    here.run()
    waits = submit(here.world, 1, time_limit_s=3600)
    here.run()
    (fewer, *_) = here.why(waits).alternatives
    assert (fewer.text, fewer.part, fewer.start_us) == ("2 nodes instead of 3", -1, here.world.now_us)
    assert len(fewer.spec.components) == 1, "its gateways are as many as before"
    changed = here.world.send(UpdateJob(ALICE, JobRef(waits), nodes_min=2, nodes_max=2))
    assert isinstance(changed, Changed) and not changed.problems, changed
    assert waits in here.world.plan()
    assert here.world.job(waits).spec.parts[-1].role == GATEWAY


def test_of_several_parts_the_one_that_waits_is_named() -> None:
    here = Site(gateway_world(restarts=False, policy="planned"))
    here.world.submit(request=Request(constraint="cluster", exclusive=True), time_limit_s=3600)
    here.run()
    cluster = Request(tasks=2, nodes_min=2, nodes_max=2, constraint="cluster", exclusive=True)
    spec = parted(cluster, Request(constraint="booster"), gateway=GatewayRequest(1), time_limit_s=3600)
    answer = here.world.send(SubmitJobs((spec,)))
    assert isinstance(answer, Submitted)
    here.run()
    ways = here.why(answer.job_ids[0]).alternatives
    assert ("part 0: 1 node instead of 2", 0) in [(way.text, way.part) for way in ways]
    assert all(not way.text.startswith("part 2") for way in ways)
