"""Login hosts in what the controller counts and shows: by themselves, and never among the nodes."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from esctld.lead.planner import Planner
from esctld.lead.state_metrics import StateMetrics
from esctld.serve.service import ControllerService
from esctld.serve.views import Queries
from eslurm.core.control.privacy import Visibility
from eslurm.core.model.job import Principal
from eslurm.lab.sim.store_image import StoreImage
from eslurm.telemetry.metrics import ControllerMetrics
from eslurm.v1 import controller_pb2 as pb
from tests.kits.leading import CLUSTER, CONFIG, LeadingController
from tests.support.loops import run

WITH_LOGIN = replace(CONFIG, login_nodes=("login1", "login2"))


def test_they_are_counted_apart() -> None:
    async def main() -> None:
        async with LeadingController(StoreImage(CLUSTER), config=WITH_LOGIN) as leading:
            dispatcher, planner = leading.dispatcher, Planner(ControllerMetrics())
            planner.attach(dispatcher)
            state_metrics = StateMetrics(dispatcher.view, planner, leading.store, dispatcher.now_us)
            await state_metrics.count()
            found = {described.name: dict(samples) for described, samples in state_metrics.families()}
            assert found["eslurm_nodes"]["UNKNOWN",] == 1
            assert found["eslurm_login_hosts"]["UNKNOWN",] == 2

    run(main())


def test_a_ping_counts_nodes_and_a_list_shows_all() -> None:
    async def main() -> None:
        async with LeadingController(StoreImage(CLUSTER), config=WITH_LOGIN) as leading:
            nobody: Any = None
            dispatcher = leading.dispatcher
            queries = Queries(dispatcher.view, nobody, leading.store, list)
            service = ControllerService(
                dispatcher, nobody, queries, nobody, leading.store, nobody, nobody, "main"
            )
            assert (await service._ping(pb.PingRequest(), nobody)).nodes == 1
            sight = Visibility(dispatcher.view, Principal("root", 0, 0))
            shown = {node.name: node for node in queries.nodes(pb.NodesRequest(), sight).nodes}
            assert {name: list(node.flags) for name, node in shown.items()} == {
                "cn1": [],
                "login1": ["LOGIN"],
                "login2": ["LOGIN"],
            }
            assert (shown["login1"].cores, shown["login1"].memory_mib, list(shown["login1"].partitions)) == (
                0,
                0,
                [],
            )
            assert [node.name for node in queries.nodes(pb.NodesRequest(partition="main"), sight).nodes] == [
                "cn1"
            ]

    run(main())
