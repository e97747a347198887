"""One term of a leader in this process: what does not keep it from leading, and what does; and how quickly it lets go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from esctld import daemon
from esctld.daemon import CannotStart, Controller, ControllerOptions
from esctld.lead.gc_tuning import give_back_to_collector
from eslurm.api import methods
from eslurm.api.authoriser import Authoriser
from eslurm.api.principals import Principals
from eslurm.config.file import cluster_config, parse_config
from eslurm.config.sections import Config
from eslurm.core.control.planning import plan_slices
from eslurm.core.dispatch.standby import Lead
from eslurm.core.model.job import Principal
from eslurm.core.model.messages import PlanMade, Reports, SubmitJobs, Submitted
from eslurm.core.model.protocol import Registration, Report
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.plan import PlanLimits
from eslurm.core.state.cluster import State
from eslurm.lab.sim.memory_store import MemoryStore
from eslurm.lab.sim.store_image import StoreImage
from eslurm.ports.api import Answered, Caller, Status
from eslurm.ports.link import PeerInfo
from eslurm.ports.store import AccountingPage, AccountingQuery, Claim, Leader
from eslurm.store.rows import load
from eslurm.telemetry.metrics import ControllerMetrics
from eslurm.v1 import controller_pb2 as pb
from tests.kits.api import PATIENCE_S, REQUEST_ID
from tests.kits.leading import CLUSTER, OWNER, LeadingController
from tests.support.loops import run
from tests.support.ports import free_port
from tests.support.trust import Site
from tests.unit.esctld.test_dispatcher import submission

ROOT = Caller(Principal("root", 0, 0), REQUEST_ID, False, 90_000_000, "socket")


def configured(cores: int = 4, metrics_listen: str = "") -> Config:
    text = f"""
        [cluster]
        name = "{CLUSTER}"
        [controller]
        metrics_listen = "{metrics_listen}"
        [agent]
        allow_root_jobs = true
        [[nodes]]
        names = "cn1"
        cores = {cores}
        memory_mib = 1000
        [[partition]]
        name = "main"
        default = true
    """
    return parse_config(text.encode(), "eslurm.toml")


class Term:
    """The term that a controller of this configuration begins on an image."""

    def __init__(self, image: StoreImage, config: Config, directory: Path, *, must_fit: bool = True) -> None:
        self.image = image
        self.store = MemoryStore(image, CLUSTER)
        site, member = Site(CLUSTER).controller(directory, "c1")
        self._options = ControllerOptions(
            config, directory / "eslurm.toml", directory, directory, site, member, "c1"
        )
        self._must_fit = must_fit
        self._serving: asyncio.Future[Authoriser] = asyncio.get_running_loop().create_future()
        self._stopped = asyncio.Event()

    async def run(self) -> None:
        """Claim the lead and lead until stopped."""
        listen = f"127.0.0.1:{free_port()}"
        seen = await self.store.leader(OWNER)
        epoch = await self.store.open(OWNER, Claim("c1", listen, seen))
        self.state = await load(self.store, OWNER) if seen != Leader() else State(OWNER)
        principals = Principals()
        self.controller = Controller(
            self._options,
            self.store,
            Lead("c1", listen, epoch, self.state),
            listen,
            principals,
            ControllerMetrics(),
            self._stopped,
            must_fit=self._must_fit,
        )
        try:
            await self.controller.run(self._serving.set_result)
        finally:
            principals.close()
            give_back_to_collector()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[asyncio.Task[None]]:
        """The term as a task, once calls are answered; stopped at the end."""
        task = asyncio.create_task(self.run())
        try:
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.wait({task, self._serving}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                await task
            yield task
        finally:
            self._stopped.set()
            await asyncio.gather(task, return_exceptions=True)
        await task

    async def ask(self, method: Any, request: Any, caller: Caller = ROOT) -> Answered:
        return await (await self._serving).answer(method, request.SerializeToString(), caller)


async def running_a_job(image: StoreImage) -> None:
    """A cluster whose only node is full."""
    async with LeadingController(image, config=cluster_config(configured())) as leader:
        body = Registration("cn1", "uid", "boot", "s1", leader.epoch, "h:1", (4, 1000))
        await leader.dispatcher.decided(Reports((Report("agent", 1, body),)))
        [spec] = submission().specs
        wide = msgspec.structs.replace(spec, components=(Request(tasks=4),))
        assert await leader.dispatcher.request(SubmitJobs((wide,))) == Submitted((1,))
        slices = plan_slices(leader.state, leader.state.now_us, None, PlanLimits())
        while True:
            try:
                next(slices)
            except StopIteration as finished:
                plan = finished.value
                break
        await leader.dispatcher.decided(PlanMade(plan.placements, plan.generation))
        assert leader.state.jobs_on


def test_a_standby_leads_with_the_former_configuration_when_its_own_does_not_fit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        image = StoreImage(CLUSTER)
        await running_a_job(image)
        term = Term(image, configured(cores=1), tmp_path, must_fit=False)
        with caplog.at_level(logging.ERROR):
            async with term.serving():
                assert (await term.ask(methods.PING, pb.PingRequest())).status is Status.OK
        assert "the former configuration stays in force: node cn1: its jobs hold (4, 0)" in caplog.text
        assert term.state.config == cluster_config(configured()) and list(term.state.jobs) == [1]

    run(main())


def test_who_is_started_with_a_configuration_that_does_not_fit_says_so_and_ends(tmp_path: Path) -> None:
    async def main() -> None:
        image = StoreImage(CLUSTER)
        await running_a_job(image)
        with pytest.raises(CannotStart, match="drain it and change it when they have ended"):
            await Term(image, configured(cores=1), tmp_path).run()

    run(main())


class Asking(MemoryStore):
    """Does not come to an end with accounting."""

    def __init__(self, image: StoreImage) -> None:
        super().__init__(image, CLUSTER)
        self.asked = asyncio.Event()

    async def accounting(self, owner: str, query: AccountingQuery) -> AccountingPage:
        self.asked.set()
        await asyncio.Event().wait()
        raise AssertionError


class StandbyLink:
    """The link of a standby, as far as the switch to it matters."""

    peer = PeerInfo(CLUSTER, "controller", "c2.abc", "c2:1", frozenset(), 1, 0)


def test_a_planned_switch_does_not_wait_for_somebodys_long_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link's end answers the caller, which asks the next leader."""
    monkeypatch.setattr(daemon, "DRAIN_S", 3600.0)

    async def main() -> None:
        term = Term(StoreImage(CLUSTER), configured(), tmp_path)
        store = term.store = Asking(term.image)
        async with term.serving() as led:
            question = asyncio.create_task(term.ask(methods.ACCOUNTING, pb.AccountingRequest()))
            try:
                await store.asked.wait()
                standby: Any = StandbyLink()
                term.controller._leadership._standbys.add(standby, 1)
                answered = await term.ask(methods.TAKEOVER, pb.TakeoverRequest())
                assert pb.TakeoverReply.FromString(answered.reply).to == "c2"
                await asyncio.wait({led}, timeout=PATIENCE_S)
                assert led.done() and not question.done()
            finally:
                question.cancel()
                await asyncio.gather(question, return_exceptions=True)
            row = term.image.leader(OWNER)
            assert (row.released, row.successor) == (True, "c2")

    run(main())


@pytest.mark.parametrize("is_late", [False, True])
def test_the_new_leader_does_not_hand_over_again_for_the_same_request(tmp_path: Path, is_late: bool) -> None:
    """A retry finds the new leader; or the first try does, which was held up and comes after its own retry."""

    async def main() -> None:
        image = StoreImage(CLUSTER)
        answers = []
        for at, retry in enumerate((is_late, not is_late)):
            directory = tmp_path / str(at)
            directory.mkdir()
            term = Term(image, configured(), directory)
            async with term.serving() as led:
                standby: Any = StandbyLink()
                term.controller._leadership._standbys.add(standby, 1)
                answers.append(
                    await term.ask(methods.TAKEOVER, pb.TakeoverRequest(), ROOT._replace(retry=retry))
                )
                if at == 0:
                    async with asyncio.timeout(PATIENCE_S):
                        await asyncio.wait({led})
                assert term.controller._leadership.handing_over.is_set() == (at == 0)
        assert answers[0] == answers[1]
        assert pb.TakeoverReply.FromString(answers[0].reply).to == "c2"

    run(main())
