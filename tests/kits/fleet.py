"""Node agents as the core's protocol promises them to be, for random tests: they crash, reboot, drop off and dawdle.

Invariant kept here: an attempt that was ended, refused or reported never starts again on its node.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec

from eslurm.core.dispatch.effect_delivery import Send
from eslurm.core.model.job import StepEnd
from eslurm.core.model.messages import NodeOutcome
from eslurm.core.model.protocol import (
    AGENT_PROTOCOL,
    End,
    Gone,
    HeldAttempt,
    LaunchStep,
    NodeGone,
    Prepare,
    Registration,
    RegistrationReply,
    Report,
    ReportBody,
    Signal,
    Start,
    Started,
    StepEnded,
)
from eslurm.core.state.cluster import State

Key = tuple[int, int]


class Order(msgspec.Struct, frozen=True):
    """A broadcast on its way, as it was signed: an agent compares epoch and incarnation with its own."""

    send: Send
    epoch: int
    incarnations: dict[int, int]


class Agent:
    """One node's agent. `held` maps (job, attempt) to prepared, starting, running or ended."""

    def __init__(self, number: int, name: str) -> None:
        self.number = number
        self.name = name
        self.starts = 0
        self.boots = 1
        self.epoch = 0
        self.incarnation = 0
        self.connected = True
        self.registered = False
        self.held: dict[Key, str] = {}
        self.tombstones: dict[Key, bool] = {}
        self.owes_gone: set[Key] = set()
        self.outcomes: dict[int, tuple[str, bytes]] = {}
        self.spool: dict[int, ReportBody] = {}
        self.offers: list[Registration] = []

    # ---- life ----

    def offer(self, epoch: int, *, reboot: bool = False) -> Registration:
        """The agent starts anew and registers; a reboot ends everything that ran."""
        self.starts += 1
        self.epoch = epoch
        self.registered = False
        if reboot:
            self.boots += 1
            self.held = {key: stage for key, stage in self.held.items() if stage == "ended"}
            self.owes_gone.clear()
        self.spool = {seq: body for seq, body in self.spool.items() if not isinstance(body, NodeGone)}
        held = [
            HeldAttempt(*key, "running" if stage == "starting" else stage) for key, stage in self.held.items()
        ]
        held += [HeldAttempt(*key, "tombstone") for key in self.tombstones if key not in self.held]
        registration = Registration(
            self.name,
            f"uid-{self.name}",
            f"boot{self.boots}",
            f"{self.name}-{self.starts}",
            epoch,
            "host:1",
            (64, 64_000),
            tuple(held),
            protocol=AGENT_PROTOCOL,
        )
        self.offers.append(registration)
        return registration

    def accept(self, reply: RegistrationReply) -> None:
        """The controller's answer to the latest offer."""
        if reply.refused:
            return
        self.registered = True
        self.number = reply.number
        self.incarnation = reply.incarnation

    def script_starts(self, key: Key) -> None:
        self.held[key] = "running"

    def script_refused(self, key: Key) -> None:
        """The runner could not start it: nothing of it exists."""
        self._bury(key, started=False)
        if key in self.owes_gone:
            self._gone(key)

    def script_ends(self, key: Key, exit_code: int, now_us: int, cause: str = "exited") -> None:
        self.held[key] = "ended"
        end = StepEnd(exit_code, cause=cause, started_us=now_us, ended_us=now_us)
        self._report(StepEnded(self.number, self.incarnation, *key, end, True))
        if key in self.owes_gone:
            self._gone(key)

    def on_ack(self, seq: int) -> None:
        body = self.spool.pop(seq, None)
        if isinstance(body, StepEnded):
            self._bury((body.job_id, body.attempt), started=True)

    # ---- commands ----

    def on_order(self, order: Order, rng: random.Random, now_us: int) -> tuple[str, bytes] | None:
        """(status, payload), or None when no answer comes in time."""
        send = order.send
        if not self.registered or order.epoch != self.epoch:
            return None
        if isinstance(send.body, End):
            return self._end(send.body, rng, now_us)
        if send.revision in self.outcomes:
            return self.outcomes[send.revision]
        if order.incarnations[self.number] != self.incarnation:
            outcome: tuple[str, bytes] | None = self._refuse(send)
        else:
            outcome = self._run(send, rng, now_us)
        if outcome is not None:
            self.outcomes[send.revision] = outcome
        return outcome

    def _run(self, send: Send, rng: random.Random, now_us: int) -> tuple[str, bytes] | None:
        match send.body:
            case Prepare(launch=launch, start=start):
                return self._prepare((launch.job_id, launch.attempt), start, rng, now_us)
            case Start():
                key = (send.body.job_id, send.body.attempt)
                if self.held.get(key) == "prepared":
                    self.held[key] = "starting"
                return self._started(key, rng, now_us)
            case LaunchStep(job_id=job_id, attempt=attempt):
                return ("ok", b"") if (job_id, attempt) in self.held else ("failed", b"")
            case Signal():
                return ("ok", b"")
            case _:
                raise AssertionError(send)

    def _prepare(self, key: Key, start: bool, rng: random.Random, now_us: int) -> tuple[str, bytes] | None:
        if key in self.tombstones:
            return ("failed", b"")
        if key not in self.held:
            if rng.random() < 0.05:
                self._bury(key, started=False)
                return ("failed", b"")
            self.held[key] = "starting" if start else "prepared"
        return self._started(key, rng, now_us) if start else ("ok", b"")

    def _started(self, key: Key, rng: random.Random, now_us: int) -> tuple[str, bytes] | None:
        stage = self.held.get(key)
        if stage is None:
            self.tombstones.setdefault(key, False)
            return ("failed", b"")
        if stage == "starting":
            if rng.random() < 0.3:
                return None
            self.held[key] = "running"
        return ("ok", msgspec.msgpack.encode(Started(now_us)))

    def _refuse(self, send: Send) -> tuple[str, bytes] | None:
        match send.body:
            case Prepare(launch=launch):
                key = (launch.job_id, launch.attempt)
            case Start():
                key = (send.body.job_id, send.body.attempt)
            case _:
                return ("failed", b"")
        stage = self.held.get(key)
        if stage in ("running", "ended"):
            return ("ok", msgspec.msgpack.encode(Started(1)))
        if stage == "starting":
            return None
        self._bury(key, started=self.tombstones.get(key, False))
        return ("failed", b"")

    def _end(self, body: End, rng: random.Random, now_us: int) -> tuple[str, bytes]:
        key = (body.job_id, body.attempt)
        stage = self.held.get(key)
        if stage is None or stage == "prepared":
            self._bury(key, started=self.tombstones.get(key, False))
            return ("ok", msgspec.msgpack.encode(Gone(self.tombstones[key])))
        if stage == "running" and rng.random() < 0.5:
            self.script_ends(key, 143, now_us)
            stage = "ended"
        if stage == "ended":
            return ("ok", msgspec.msgpack.encode(Gone(True)))
        self.owes_gone.add(key)
        return ("ok", b"")

    # ---- inside ----

    def _bury(self, key: Key, *, started: bool) -> None:
        self.held.pop(key, None)
        self.tombstones[key] = started

    def _gone(self, key: Key) -> None:
        self.owes_gone.discard(key)
        self._report(NodeGone(self.number, self.incarnation, *key))

    def _report(self, body: ReportBody) -> None:
        self.spool[max(self.spool, default=0) + 1 + self.starts * 1_000_000] = body

    def reports(self) -> Iterator[Report]:
        """Reports that the controller has not acknowledged."""
        for seq, body in self.spool.items():
            yield Report(self.name, seq, body)


def order_of(send: Send, state: State) -> Order:
    """The broadcast as the controller signs it now."""
    return Order(send, state.epoch, {number: state.nodes[number].incarnation for number in send.nodes})


def outcomes_of(answers: dict[int, tuple[str, bytes] | None]) -> tuple[NodeOutcome, ...]:
    """Answers per node as a relay merges them; None is unreached."""
    merged: dict[tuple[str, bytes], list[int]] = {}
    for number, answer in answers.items():
        merged.setdefault(answer or ("unreached", b""), []).append(number)
    return tuple(
        NodeOutcome(tuple(numbers), status, "no such luck" if status == "failed" else "", payload)
        for (status, payload), numbers in merged.items()
    )
