"""A job that runs longer than expected moves others, and is named as the reason why they wait."""

from __future__ import annotations

from eslurm.core.model.forecast import Forecast
from eslurm.core.model.messages import SetForecasts
from eslurm.core.model.request import Request
from tests.kits.asking import HOUR, Site
from tests.kits.core import ROOT, World


def test_who_took_the_place_of_a_job_by_running_on_is_a_reason_of_its_own() -> None:
    world = World(2, policy="planned")
    site = Site(world)
    whole = Request(nodes_min=1, nodes_max=1, exclusive=True)
    first, second = (world.submit(request=whole, time_limit_s=10 * HOUR) for _ in range(2))
    said = tuple(
        (job, Forecast(HOUR, hours * HOUR, hours * HOUR, hours * HOUR))
        for job, hours in ((first, 1), (second, 3))
    )
    world.send(SetForecasts(ROOT, said))
    waiting = world.submit(request=whole, time_limit_s=HOUR)
    site.run()
    assert "overrun" not in site.kinds(waiting)
    began_us = world.state.live[first, 1].since_us
    world.pass_time(2 * HOUR)
    site.run()
    reason = site.reason(waiting, "overrun")
    assert reason.text == f"its planned start moved: job {first} runs longer than expected"
    (holder,) = reason.holders
    assert (holder.job_id, reason.until_us) == (first, began_us + 10 * HOUR * 1_000_000)
