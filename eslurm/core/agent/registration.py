"""Registration: offering this process's nodes to the controller, and what comes back.

Invariant: from the snapshot in a `Registration` until its reply the node carries out nothing, so what
was launched before is in the inventory or never will be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from eslurm.core.agent.action_buffer import ActionBuffer
from eslurm.core.agent.actions import Contact, Numbered, Refusal
from eslurm.core.agent.attempt import HELD_AS, Stage
from eslurm.core.agent.lifecycle import Lifecycle
from eslurm.core.agent.node import LocalNode
from eslurm.core.agent.records import Booted, EpochSeen, NumberGiven
from eslurm.core.agent.report_queue import ReportQueue
from eslurm.core.agent.reports import Reports
from eslurm.core.model.protocol import AGENT_PROTOCOL, HeldAttempt, Registration, RegistrationReply

RETRY_REFUSED_US = 15_000_000
RETRY_STALE_US = 1_000_000
NO_LOGIN_HOSTS = (
    "its controller is of an older release, which knows no login hosts: update it, "
    "then name this host in [login] nodes"
)


class Site:
    """The common part of all registrations of the process. `starts` counts the sessions of this spool.

    `protocol` is 0 while a step supervisor of an earlier release starts the steps here: it runs no phases either.
    """

    __slots__ = ("boot_id", "cluster", "endpoint", "protocol", "session", "starts")

    def __init__(self, cluster: str, boot_id: str, session: str, endpoint: str) -> None:
        self.cluster = cluster
        self.boot_id = boot_id
        self.session = session
        self.endpoint = endpoint
        self.starts = 0
        self.protocol = AGENT_PROTOCOL


class NodeRegistry:
    """The nodes by name and number, and their standing with the controller."""

    def __init__(
        self,
        site: Site,
        buffer: ActionBuffer,
        report_queue: ReportQueue,
        reports: Reports,
        lifecycle: Lifecycle,
        by_number: dict[int, LocalNode],
    ) -> None:
        self.by_name: dict[str, LocalNode] = {}
        self.by_number = by_number
        self.site = site
        self._buffer = buffer
        self._report_queue = report_queue
        self._reports = reports
        self._lifecycle = lifecycle
        self._retries: dict[str, int] = {}
        self.on_accepted: Callable[[LocalNode, RegistrationReply], None] = _ignore
        """Called for each node that has just been registered."""
        self.on_numbered: Callable[[LocalNode], bool] = _has_none
        """Called for each node that has just learned its number; whether it turned out to hold more than it offered."""

    def set_number(self, node: LocalNode, number: int) -> None:
        """The controller's number of the node; it stays the same while the node is configured."""
        node.number = number
        self.by_number[number] = node

    def begin(self, starts_before: int) -> None:
        """A new process: its session is counted, durably, before anything is offered under it."""
        self._count(starts_before)
        for node in self.by_name.values():
            node.session, node.starts = self.site.session, self.site.starts

    def renew(self, nodes: Iterable[LocalNode]) -> None:
        """Offer these under a new session, because to the controller the former one is the past or says too little."""
        self._count(self.site.starts)
        session = f"{self.site.session}.{self.site.starts}"
        renewed = list(nodes)
        for node in renewed:
            node.session, node.starts = session, self.site.starts
        self.offer(renewed)

    def offer(self, nodes: Iterable[LocalNode]) -> None:
        """Register these nodes (again): a fresh inventory goes up, and everything else is refused until the reply."""
        buried = self._tombstones_by_node()
        epoch = self._buffer.fence(self._buffer.owner).epoch
        for node in nodes:
            node.registered = False
            self._retries.pop(node.offer.name, None)
            self._reports.on_unregistered(node)
            self._report_queue.withdraw(node.registration_seq)
            body = Registration(
                name=node.offer.name,
                node_uid=node.offer.node_uid,
                boot_id=self.site.boot_id,
                session=node.session,
                epoch=epoch,
                endpoint=self.site.endpoint,
                total=node.offer.total,
                held=(*self._held(node), *buried.get(node.number, ())),
                starts=node.starts,
                resources=node.offer.resources,
                device_model=node.offer.device_model,
                login=node.offer.login,
                protocol=self.site.protocol,
                phases=node.offer.phases if self.site.protocol else (),
                contained=node.offer.contained,
            )
            node.registration_seq = self._report_queue.add(body)

    def see_epoch(self, owner: str, epoch: int) -> None:
        """A controller leads under this epoch: commands of older ones are refused, all nodes register anew."""
        fence = self._buffer.fence(owner)
        if epoch <= fence.epoch:
            return
        fence.epoch = epoch
        self._buffer.write(EpochSeen(owner, epoch), durable=True)
        self._buffer.owner = owner
        self.offer(self.by_name.values())

    def on_reply(self, name: str, reply: RegistrationReply | None, now_us: int, sent_us: int) -> None:
        """The controller's reply to the latest offer of this node; None if it only acknowledged.

        `sent_us` is when that was sent first.
        """
        node = self.by_name[name]
        if reply is not None and not reply.refused and 0 <= node.number != reply.number:
            self._forget_number(node)
        if reply is None:
            self._retries[name] = now_us + RETRY_STALE_US
        elif not reply.refused and node.number not in (-1, reply.number):
            # What runs here is known to the runner under the old one.
            why = f"it is number {node.number} here and {reply.number} there: this is another cluster's state"
            self._on_refused(node, why, now_us)
        elif reply.owner and reply.epoch > self._buffer.fence(reply.owner).epoch:
            # The offer did not name the epoch, so it cannot have fenced off what older ones sent.
            self._number(node, reply)
            self.see_epoch(reply.owner, reply.epoch)
        elif reply.refused:
            self._on_refused(node, reply.refused, now_us)
        elif node.offer.login and not reply.login:
            self._on_refused(node, NO_LOGIN_HOSTS, now_us)
        elif reply.epoch < self._buffer.fence(reply.owner).epoch:
            self._retries[name] = now_us + RETRY_STALE_US
        else:
            self._accept(node, reply, sent_us)

    def _forget_number(self, node: LocalNode) -> None:
        """Forget the number of a node of which nothing is here: it has left the configuration and come back as a new one."""
        self._reports.withdraw_health(node)
        if not node.attempts and not node.owed:
            self.by_number.pop(node.number, None)
            node.number = -1

    def _on_refused(self, node: LocalNode, why: str, now_us: int) -> None:
        node.refused = why
        self._buffer.emit(Refusal(node.offer.name, why))
        self._retries[node.offer.name] = now_us + RETRY_REFUSED_US

    def on_timer(self, now_us: int) -> None:
        """Offer refused nodes again: the reason (a twin, a missing configuration) may have gone."""
        due = [name for name, at_us in self._retries.items() if at_us <= now_us]
        for name in due:
            del self._retries[name]
        if due:
            self.offer([self.by_name[name] for name in due])

    def next_timer_us(self) -> int | None:
        """Time of the next offer of a refused node."""
        return min(self._retries.values()) if self._retries else None

    def _count(self, before: int) -> None:
        self.site.starts = before + 1
        self._buffer.write(Booted(self.site.cluster, self.site.boot_id, self.site.starts), durable=True)

    def _accept(self, node: LocalNode, reply: RegistrationReply, sent_us: int) -> None:
        self._buffer.owner = reply.owner
        if self._number(node, reply):
            # The offer did not say what the node holds: the controller has to hear of it as of something new.
            self.renew((node,))
            return
        node.registered = True
        node.refused = ""
        node.registration_seq = 0
        node.incarnation = reply.incarnation
        node.epoch = reply.epoch
        node.owner = reply.owner
        # What was heard of the node before may have been heard of another process.
        node.rounds_from = 0
        node.contact_us = max(node.contact_us, sent_us)
        if node.attempts:
            self._buffer.emit(Contact((node.number,), node.contact_us))
        self._reports.on_registered(node)
        self.on_accepted(node, reply)

    def _number(self, node: LocalNode, reply: RegistrationReply) -> bool:
        """Learn the node's number as soon as it is said: commands may overtake the reply to the next offer.

        Whether it turned out to hold something.
        """
        if node.number < 0 <= reply.number:
            self.set_number(node, reply.number)
            # The runner knows its steps by this number only: lost with the host's power, their ends would be too.
            self._buffer.write(NumberGiven(node.offer.name, reply.number), durable=True)
            self._buffer.emit(Numbered(node.offer.name, node.number))
            return self.on_numbered(node)
        return False

    def _held(self, node: LocalNode) -> list[HeldAttempt]:
        held = []
        for attempt in list(node.attempts.values()):
            self._lifecycle.tasks.refuse_waiting(attempt, "the node registers anew")
            if attempt.stage is Stage.FETCHING:
                self._lifecycle.starts.abandon(attempt, "the node registers anew")
                if not attempt.was_prepared:
                    continue
            attempt.in_inventory = True
            held.append(HeldAttempt(attempt.job_id, attempt.number, HELD_AS[attempt.stage]))
        return held

    def _tombstones_by_node(self) -> dict[int, list[HeldAttempt]]:
        buried: dict[int, list[HeldAttempt]] = {}
        for fence in self._buffer.fences.values():
            for number, job_id, attempt in fence.tombstones:
                node = self.by_number.get(number)
                if node is not None and (job_id, attempt) not in node.attempts:
                    buried.setdefault(number, []).append(HeldAttempt(job_id, attempt, "tombstone"))
        return buried


def _ignore(_node: LocalNode, _reply: RegistrationReply) -> None:
    return None


def _has_none(_node: LocalNode) -> bool:
    return False
