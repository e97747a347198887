"""A cluster of the core's tests whose commits fill a feed, and a follower that holds the feed to what it promises."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from esctld.serve.job_events import JobEvents
from eslurm.core.control.commit_pipeline import NotNow
from eslurm.core.control.reactor import Batch
from eslurm.core.model.messages import Message
from eslurm.core.state.cluster import State
from eslurm.core.state.view import View
from eslurm.lab.sim.memory_store import MemoryStore
from eslurm.ports.api import Caller
from eslurm.v1 import controller_pb2 as pb
from tests.kits.core import ROOT, World

CALLER = Caller(ROOT, b"", False, 60_000_000, "socket")
Kind = pb.JobEvent.Kind


class Committing:
    """A dispatcher as a feed sees it."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.view = View(state)
        self.is_stopping = False
        self._moved = asyncio.Event()

    async def moved(self) -> None:
        if not self.is_stopping:
            await self._moved.wait()
        if self.is_stopping:
            raise NotNow

    def wake(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()


class FedWorld(World):
    """Feeds of earlier lives of the controller are closed with the world."""

    feed_settings: ClassVar[dict[str, float]] = {"gather_s": 0.0}

    def _take_over(self, state: State) -> None:
        super()._take_over(state)
        self.committing = Committing(state)
        self.store = MemoryStore(self.mirror.image)
        self.feed = JobEvents(self.committing, self.store, **self.feed_settings)  # type: ignore[arg-type]
        self.feeds = [*getattr(self, "feeds", ()), self.feed]

    def batch(self, *messages: Message) -> Batch:
        batch = super().batch(*messages)
        self.committing.view.advance(batch.touched, self.state.revision, batch.now_us)
        self.feed.on_committed(batch)
        self.committing.wake()
        return batch

    async def ask(self, cursor: int = 0, wait_ms: int = 0, events_max: int = 0) -> pb.JobFeedReply:
        request = pb.JobFeedRequest(cursor=cursor, wait_ms=wait_ms, events_max=events_max)
        return pb.JobFeedReply.FromString(await self.feed.call(request, CALLER))

    async def close(self) -> None:
        for feed in self.feeds:
            await feed.close()


class Follower:
    """Reads on from where it was. `told` are the events since the last beginning as (kind, job id)."""

    def __init__(self, world: FedWorld) -> None:
        self.world = world
        self.cursor = 0
        self.begun = 0
        self.told: list[tuple[str, int]] = []
        self.events: list[pb.JobEvent] = []
        self.waiting: set[int] = set()
        self.running: set[int] = set()
        self.at_us = 0

    async def read(self, events_max: int = 0) -> list[tuple[str, int]]:
        """All that there is; what is new of it."""
        new: list[tuple[str, int]] = []
        while True:
            reply = await self.world.ask(self.cursor, events_max=events_max)
            if reply.from_start:
                self._begin()
                new.clear()
            for event in reply.events:
                self._hear(event)
                new.append((Kind.Name(event.kind), event.job_id))
            if not reply.events and not reply.from_start and reply.next == self.cursor:
                return new
            self.cursor = reply.next

    def _begin(self) -> None:
        self.begun += 1
        self.told, self.events, self.waiting, self.running, self.at_us = [], [], set(), set(), 0

    def _hear(self, event: pb.JobEvent) -> None:
        job_id = event.job_id
        assert event.at_us >= self.at_us, "instants go back"
        self.at_us = event.at_us
        self.told.append((Kind.Name(event.kind), job_id))
        self.events.append(event)
        assert event.HasField("job") == (event.kind in (pb.JobEvent.SUBMITTED, pb.JobEvent.CHANGED))
        match event.kind:
            case pb.JobEvent.SUBMITTED:
                assert job_id not in self.waiting | self.running, f"job {job_id} comes twice"
                self.waiting.add(job_id)
            case pb.JobEvent.STARTED:
                self.waiting.remove(job_id)
                self.running.add(job_id)
            case pb.JobEvent.REQUEUED:
                self.running.remove(job_id)
                self.waiting.add(job_id)
            case pb.JobEvent.CHANGED:
                assert job_id in self.waiting | self.running
            case pb.JobEvent.ENDED:
                assert job_id in self.waiting | self.running, f"job {job_id} ends unknown"
                assert event.runtime_s or job_id in self.waiting
                self.waiting.discard(job_id)
                self.running.discard(job_id)
