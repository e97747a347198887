"""Configuration, epochs, registrations, heartbeats and administration of nodes, turned into facts."""

from __future__ import annotations

from eslurm.core.control.jobs.controller_phases import begun_again
from eslurm.core.control.jobs.stopping import node_gone
from eslurm.core.control.rights import is_operator
from eslurm.core.model import facts
from eslurm.core.model.job import Attempt, Job, StepEnd
from eslurm.core.model.job_states import AttemptPhase
from eslurm.core.model.messages import (
    Changed,
    EpochStarted,
    HeartbeatDone,
    JobProblem,
    RefusalCode,
    Refused,
    UpdateNodes,
    UpdatePartitions,
)
from eslurm.core.model.node import CONTAINMENT, Node
from eslurm.core.model.node_health import SERIAL_MAX, bounded
from eslurm.core.model.node_states import NodeState
from eslurm.core.model.partition import STATES
from eslurm.core.model.protocol import HealthReported, HeldAttempt, Registration, RegistrationReply
from eslurm.core.model.step_key import EPILOG, PROGRAMS
from eslurm.core.model.wording import quoted
from eslurm.core.resources.vector import RESOURCES, fits
from eslurm.core.state import faults
from eslurm.core.state.cluster import State, attempts_of

NOTES_MAX = 16
STALE_EPOCH = "stale epoch"
SUPERSEDED = "a later registration of this node has been accepted"


def on_update_partitions(state: State, message: UpdatePartitions) -> tuple[list[facts.Fact], Changed]:
    """Give partitions a state. For operators only."""
    if not is_operator(state, message.by):
        raise Refused(
            RefusalCode.DENIED, f"{message.by.name} is no operator: partitions are theirs to change"
        )
    if message.state not in STATES:
        raise Refused(
            RefusalCode.INVALID, f"{quoted(message.state)} is no state: use one of {', '.join(STATES)}"
        )
    found: list[facts.Fact] = []
    problems: list[JobProblem] = []
    for name in dict.fromkeys(message.names):
        partition = state.partitions.get(name)
        if partition is None or partition.role:
            known = ", ".join(one.name for one in state.config.partitions if not one.role)
            problems.append(
                JobProblem(
                    name, RefusalCode.NOT_FOUND, f"partition {quoted(name)} does not exist: there are {known}"
                )
            )
        elif state.state_of_partition(partition) != message.state:
            found.append(facts.PartitionSet(name, message.state))
    return found, Changed(len(found), tuple(problems))


def on_epoch(state: State, message: EpochStarted) -> list[facts.Fact]:
    """Begin to lead. Epochs only rise."""
    if message.epoch <= state.epoch:
        raise Refused(RefusalCode.CONFLICT, f"epoch {message.epoch} is not above {state.epoch}")
    return [facts.EpochBegan(message.epoch), *begun_again(state)]


def on_registration(
    state: State, registration: Registration, now_us: int
) -> tuple[list[facts.Fact], RegistrationReply]:
    """Register a node. Attempts that it does not hold any more, though the state has them, are over."""
    name = registration.name
    number = state.numbers.get(name)
    if number is None or (number in state.removed and number not in state.jobs_on):
        return [], RegistrationReply(
            name, refused=f"node {name} is not in the configuration of {state.config.cluster}"
        )
    node = state.nodes[number]
    if refusal := _other_role(state, node, registration):
        return [], RegistrationReply(name, refused=refusal)
    if registration.epoch != state.epoch:
        # It has to refuse older epochs from before its inventory on, so it must know the epoch first.
        return [], RegistrationReply(name, number, epoch=state.epoch, owner=state.owner, refused=STALE_EPOCH)
    if (
        node.session == registration.session
        and node.epoch == state.epoch
        and node.state is not NodeState.LOST
    ):
        found = _back(node) if node.state is not NodeState.UP else []
        return found, _reply(state, node, node.incarnation, _standing(node, registration, []))
    if _is_overtaken(node, registration):
        # A late message: what it says it holds is no longer what the node holds.
        return [], RegistrationReply(name, number, refused=SUPERSEDED)
    if _is_twin(state, node, registration):
        return [], RegistrationReply(
            name, number, refused=f"another live agent serves node {name}: stop it first"
        )
    found = _registered(state, node, registration, now_us)
    return found, _reply(state, node, node.incarnation + 1, _standing(node, registration, found))


def _standing(node: Node, registration: Registration, found: list[facts.Fact]) -> tuple[tuple[str, int], ...]:
    """The faults of a node that registers: those of an earlier boot are over."""
    before = node.faults if node.boot_id == registration.boot_id else ()
    # Of jobs: no check of the node concerns its clock.
    standing = {fault.kind: fault.job_id for fault in before if fault.job_id}
    standing.update((fact.kind, fact.job_id) for fact in found if isinstance(fact, facts.NodeFaulted))
    return tuple(standing.items())


def _reply(
    state: State, node: Node, incarnation: int, standing: tuple[tuple[str, int], ...] = ()
) -> RegistrationReply:
    login = node.number in state.login
    failing = tuple(fault.check for fault in faults.of_checks(node))
    return RegistrationReply(
        *(node.name, node.number, incarnation, state.epoch, state.owner),
        login=login,
        faults=standing,
        failing=failing,
    )


def _other_role(state: State, node: Node, registration: Registration) -> str:
    """The reason why an agent's role contradicts the configuration of its host; empty when it does not."""
    if registration.login is (node.number in state.login):
        return ""
    if registration.login:
        return (
            f"{node.name} is a compute node in the configuration of {state.config.cluster}: start its esnoded without "
            "--login, or name it in [login] nodes"
        )
    return (
        f"{node.name} is a login host in the configuration of {state.config.cluster}: start its esnoded with --login "
        "(one of an older release has to be updated)"
    )


def _back(node: Node) -> list[facts.Fact]:
    return [facts.NodeStateChanged(node.number, NodeState.UP)]


def _is_overtaken(node: Node, registration: Registration) -> bool:
    """Check whether a later session of the same node has been accepted already, in any epoch.

    A node that was declared lost holds nothing more: even a spool that was restored from a copy may register again.
    """
    is_lost = node.state is NodeState.LOST
    if not is_lost and registration.node_uid == node.node_uid and 0 < registration.starts < node.starts:
        return True
    return registration.session in node.sessions_past and registration.session != node.session


def _is_twin(state: State, node: Node, registration: Registration) -> bool:
    """Check whether another host's claim on this node's name is still valid."""
    if not node.node_uid or node.node_uid == registration.node_uid:
        return False
    return node.state is NodeState.UP or (node.state is not NodeState.LOST and node.number in state.jobs_on)


def _registered(state: State, node: Node, registration: Registration, now_us: int) -> list[facts.Fact]:
    found: list[facts.Fact] = [
        facts.NodeRegistered(
            node.number,
            registration.node_uid,
            registration.boot_id,
            registration.session,
            node.incarnation + 1,
            state.epoch,
            registration.endpoint,
            registration.total,
            registration.starts,
            registration.protocol,
            tuple(phase for phase in PROGRAMS if phase in registration.phases),
            tuple(word for word in CONTAINMENT if word in registration.contained),
        )
    ]
    if text := _shortfall(state, node, registration):
        found.append(facts.NodeDrainChanged(node.number, True, text))
    held = {(entry.job_id, entry.attempt): entry for entry in registration.held}
    rebooted = bool(node.boot_id) and node.boot_id != registration.boot_id
    why = f"node {node.name} was rebooted" if rebooted else f"node {node.name} was restarted without it"
    known: set[tuple[int, int]] = set()
    for job_id in sorted(state.jobs_on.get(node.number, ())):
        job = state.get_job(job_id)
        for attempt in attempts_of(job):
            if node.number in attempt.held:
                known.add((job_id, attempt.number))
            entry = held.get((job_id, attempt.number))
            if vanished(attempt, node.number, entry, rebooted):
                if entry is None and not rebooted:
                    found += _epilog_missed(node, job_id, attempt, now_us)
                found += node_gone(state, job, attempt, node.number, now_us, why)
    for key, entry in held.items():
        if key not in known and entry.stage != "tombstone":
            found.append(facts.OrphanFound(node.number, *key))
    return found


def _epilog_missed(node: Node, job_id: int, attempt: Attempt, now_us: int) -> list[facts.Fact]:
    """The fault of a node that has lost an attempt which owed an epilog. After a boot nothing is left to clean."""
    if EPILOG not in attempt.phases or EPILOG not in node.phases:
        return []
    end = StepEnd(1, cause="lost", text="the agent was restarted without its records of the job")
    return faults.failed(node, node.incarnation, EPILOG, end, job_id, attempt.number, now_us)


def _shortfall(state: State, node: Node, registration: Registration) -> str:
    """The node's shortfall from its configuration, in words; empty if none. Uncounted resources are trusted."""
    configured = node.total[: len(RESOURCES)]
    if not fits(configured, registration.total):
        return f"offers {registration.total}, configured are {configured}"
    names = [one.name for one in state.config.resources if not one.wide_total]
    wanted = dict(zip(names, node.total[len(RESOURCES) :], strict=False))
    for name, items in registration.resources:
        if items < wanted.get(name, 0):
            model = f" ({registration.device_model})" if registration.device_model else ""
            return f"offers {items} {name}{model}, configured are {wanted[name]}"
    return ""


def vanished(attempt: Attempt, number: int, entry: HeldAttempt | None, rebooted: bool) -> bool:
    """Check whether the node's inventory proves that the attempt's part there is over.

    A launch that the node never confirmed may still be on its way: it is sent again, not given up, unless it may have run
    its script before a reboot that erased all trace of it. A tombstone with no outcome behind it means that the node ended
    it and has reported so before.
    """
    if number not in attempt.held:
        return False
    if entry is not None and entry.stage != "tombstone":
        return False
    if attempt.growth is not None and number in attempt.growth.waiting:
        return entry is not None
    if attempt.phase is AttemptPhase.PREPARING:
        may_have_run = rebooted and not attempt.prepares_first and not attempt.awaits_prolog
        return number not in attempt.waiting or entry is not None or may_have_run
    return True


def on_heartbeat(state: State, message: HeartbeatDone) -> list[facts.Fact]:
    """Process nodes that heartbeats found missing or back, or with another clock. Unreachable is not lost: jobs are kept."""
    found: list[facts.Fact] = []
    for number in message.missing:
        node = state.nodes.get(number)
        if node is not None and node.state is NodeState.UP:
            found.append(
                facts.NodeStateChanged(
                    number,
                    NodeState.UNREACHABLE,
                    f"missed {state.config.heartbeats_missed_max} heartbeats",
                )
            )
    for number in message.back:
        node = state.nodes.get(number)
        if node is not None and node.state is NodeState.UNREACHABLE and node.epoch == state.epoch:
            found += _back(node)
    for number, ahead_us in message.ahead:
        node = state.nodes.get(number)
        if node is not None and not faults.has_wrong_clock(node):
            found.append(faults.clock_ahead(node, ahead_us))
    for number in message.in_date:
        node = state.nodes.get(number)
        if node is not None and faults.has_wrong_clock(node):
            found.append(facts.NodeCleared(number, (faults.CLOCK,)))
    return found


def on_health_reported(state: State, report: HealthReported) -> list[facts.Fact]:
    """The health checks of a node that fail now. A late copy, or a report of an earlier incarnation, changes nothing."""
    node = state.nodes.get(report.node)
    if node is None or node.number in state.login or report.incarnation != node.incarnation:
        return []
    if not node.health_serial < report.serial <= SERIAL_MAX:
        return []
    return [facts.NodeHealthReported(node.number, report.serial, bounded(report.failing))]


def on_update_nodes(state: State, message: UpdateNodes, now_us: int) -> tuple[list[facts.Fact], Changed]:
    """Drain, resume, or declare nodes lost. For operators only."""
    if not is_operator(state, message.by):
        raise Refused(RefusalCode.DENIED, f"{message.by.name} is no operator: nodes are theirs to change")
    if message.action not in ("drain", "resume", "lost"):
        raise Refused(RefusalCode.INVALID, f"{quoted(message.action)} is unknown: use drain, resume or lost")
    if message.action == "drain" and not message.reason:
        raise Refused(RefusalCode.INVALID, "a drained node needs a reason: add reason=TEXT")
    found: list[facts.Fact] = []
    problems: list[JobProblem] = []
    notes: list[str] = []
    count = 0
    for name in dict.fromkeys(message.names):
        number = state.numbers.get(name)
        if number is None:
            problems.append(JobProblem(name, RefusalCode.NOT_FOUND, f"node {name} does not exist"))
            continue
        if number in state.login and message.action == "drain":
            text = f"{name} is a login host, where no job runs: to close it, stop its esnoded"
            problems.append(JobProblem(name, RefusalCode.INVALID, text))
            continue
        count += 1
        if message.action == "lost":
            found += lost(state, number, f"declared lost by {message.by.name}", now_us)
        else:
            draining = message.action == "drain"
            found.append(facts.NodeDrainChanged(number, draining, message.reason if draining else ""))
            notes += [] if draining else _stays_drained(state.nodes[number])
    return found, Changed(count, tuple(problems), tuple(notes[:NOTES_MAX]))


def _stays_drained(node: Node) -> list[str]:
    """A remark for the operator who resumes a node whose health checks fail."""
    words = "; ".join(fault.text for fault in faults.of_checks(node))
    return [f"node {node.name} stays drained until its check passes: {words}"] if words else []


def lost(state: State, number: int, why: str, now_us: int, *, is_silent: bool = False) -> list[facts.Fact]:
    """Give up the node and end its attempts. The caller vouches that they are over; if the node `is_silent`, only the
    requeueable ones.
    """
    node = state.nodes[number]
    if node.state is NodeState.LOST:
        return []
    found: list[facts.Fact] = [facts.NodeStateChanged(number, NodeState.LOST, why)]
    for job_id in sorted(state.jobs_on.get(number, ())):
        job: Job = state.get_job(job_id)
        for attempt in attempts_of(job):
            why_gone = f"node {node.name} {why}"
            found += node_gone(state, job, attempt, number, now_us, why_gone, is_silent=is_silent)
    return found
