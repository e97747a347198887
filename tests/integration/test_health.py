"""A node that is not well says so with its heartbeat's answer, through a satellite, and goes on working."""

from __future__ import annotations

from pathlib import Path

from eslurm.core.model.protocol import Heartbeat, Prepare
from eslurm.core.prediction.health import HealthReports
from eslurm.core.relay.results import OK, Status, from_mapping
from tests.integration.test_esnoded import Site, launch, play
from tests.kits.daemons import agent_user
from tests.kits.fake_controller import SITE, FakeController


class ToldSite(Site):
    """Its agents are told how loaded their hosts are."""

    def told_agent(self, load: float, nodes: str, satellite: str) -> None:
        state = str(SITE.write_member(self.directory / f"load{load:g}", "agent", nodes))
        words = ["tests.integration.unwell_agent", str(load), "--nodes", nodes, "--satellites", satellite]
        self._start([*words, "--state-dir", state, "--cores", "4", "--memory-mib", "1024", *agent_user()])


def test_problems_of_a_host_reach_the_controller_and_take_no_work_from_it(state_dir: Path) -> None:
    site = ToldSite(state_dir)

    async def scenario(controller: FakeController) -> None:
        _, satellite = site.satellite(controller.endpoint)
        site.told_agent(1e6, "cn[0-1]", satellite)
        await controller.registered(2)
        site.told_agent(0.5, "cn2", satellite)
        await controller.registered(3)
        numbers = controller.numbers
        unwell = {numbers["cn0"], numbers["cn1"]}
        reports = HealthReports()
        # The first heartbeat begins a reading, a later one tells of it.
        while not unwell <= reports.problems().keys():
            answers = await controller.order(Heartbeat(0), (0, 1, 2))
            assert {outcome.status for outcome in answers.values()} == {Status.OK}
            reports.on_answers(from_mapping(answers), 0)
        assert all("load" in reports.problems()[number] for number in unwell)
        assert "load" not in reports.problems().get(numbers["cn2"], ())
        assert len({answers[number] for number in unwell}) == 1, "equal problems merge"
        node = min(unwell)
        answer = await controller.order(Prepare(launch(controller, "exit 0", (node,), site)), (node,))
        assert answer == {node: OK}

    try:
        play(site, scenario)
    finally:
        site.close()
    assert "Traceback" not in site.logs(), site.logs()
