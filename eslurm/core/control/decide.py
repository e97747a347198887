"""The reading side of the core: one message in, facts and an answer out, nothing changed.

`Refused` refuses one message only. Any other exception is a bug; the reactor turns it into a refusal too, so that one bad
message never takes the batch with it.
"""

from __future__ import annotations

from typing import TypeAlias

from eslurm.core.control import configuration, federation, job_ids, members, nodes, satellites, steps, tokens
from eslurm.core.control.accounts.decide import on_change
from eslurm.core.control.jobs import (
    admission,
    allocations,
    controller_phases,
    crontabs,
    forecasts,
    gateways,
    guests,
    mail,
    moves,
    outcomes,
    parts,
    phases,
    requests,
    resizing,
    topping,
    transfers,
    updating,
)
from eslurm.core.control.planning import on_plan_made
from eslurm.core.model import facts
from eslurm.core.model.guests import GuestOf
from eslurm.core.model.messages import (
    ApproveHost,
    Arrival,
    AskGuests,
    CancelJobs,
    Changed,
    ChangeFederation,
    ChangePolicies,
    ConfigLoaded,
    ConfirmArrival,
    ControllerPhaseDone,
    CreateJoinToken,
    CreateStep,
    CreateToken,
    DropArrival,
    EffectDone,
    EndOffer,
    EndUnattended,
    EpochStarted,
    ExtendJob,
    FinishPart,
    FinishStep,
    GiveUpGuests,
    HeartbeatDone,
    HoldGuests,
    HoldJobs,
    IdsBounded,
    IdsTaken,
    JoinHost,
    KeepGuest,
    LoseGuest,
    Message,
    MovePack,
    NoteGuestGone,
    NoteMailTold,
    NoteOutcome,
    NoteTold,
    NoteTransferred,
    OfferJob,
    PlanMade,
    Reconfigure,
    ReleaseJob,
    RequeueJobs,
    ResizeJob,
    RevokeJoinTokens,
    RevokeMembers,
    RevokeTokens,
    SatelliteSilent,
    SetCrontab,
    SetForecasts,
    StoredAnswer,
    SubmitJobs,
    SuspendJobs,
    TopJob,
    UpdateJob,
    UpdateNodes,
    UpdatePartitions,
    UpdateSatellites,
)
from eslurm.core.model.protocol import (
    CheckPassed,
    GatewayReported,
    HealthReported,
    NodeGone,
    PhaseReported,
    Registration,
    RegistrationReply,
    ReportBody,
    StepEnded,
    TasksOver,
)
from eslurm.core.state.cluster import State

Answer: TypeAlias = StoredAnswer | RegistrationReply | None
Decision: TypeAlias = tuple[list[facts.Fact], Answer]


def decide(state: State, message: Message | ReportBody, now_us: int) -> Decision:
    """Facts that follow from the message in this state, and the answer to give once they are committed."""
    match message:
        case SubmitJobs(arrival=Arrival()):
            return transfers.on_arrival(state, message, now_us)
        case SubmitJobs(guest_of=GuestOf()):
            return guests.on_guest(state, message, now_us)
        case SubmitJobs():
            return admission.on_submit(state, message, now_us)
        case EffectDone():
            return outcomes.on_effect_done(state, message, now_us), None
        case StepEnded() | NodeGone() | PhaseReported() | GatewayReported() if _is_unheard_of(state, message):
            return [], None
        case StepEnded():
            return outcomes.on_step_ended(state, message, now_us), None
        case TasksOver():
            return steps.on_tasks_over(state, message), None
        case NodeGone():
            return outcomes.on_node_gone(state, message, now_us), None
        case PhaseReported():
            return phases.on_phase_reported(state, message, now_us), None
        case GatewayReported():
            return gateways.on_addresses(state, message, now_us), None
        case CheckPassed():
            return phases.on_check_passed(state, message), None
        case HealthReported():
            return nodes.on_health_reported(state, message), None
        case PlanMade():
            return on_plan_made(state, message, now_us), None
        case Registration():
            return nodes.on_registration(state, message, now_us)
        case HeartbeatDone():
            return nodes.on_heartbeat(state, message), None
        case CancelJobs():
            return requests.on_cancel(state, message, now_us)
        case HoldJobs():
            return requests.on_hold(state, message, now_us)
        case RequeueJobs():
            return requests.on_requeue(state, message, now_us)
        case SetCrontab():
            return crontabs.on_set(state, message, now_us)
        case SuspendJobs():
            return requests.on_suspend(state, message, now_us)
        case SetForecasts():
            return forecasts.on_forecasts(state, message)
        case UpdateJob():
            return updating.on_update(state, message, now_us)
        case MovePack():
            return moves.on_move(state, message, now_us)
        case ExtendJob():
            return moves.on_extend(state, message, now_us)
        case ResizeJob():
            return resizing.on_resize(state, message, now_us)
        case UpdateNodes():
            return nodes.on_update_nodes(state, message, now_us)
        case Reconfigure():
            return configuration.on_reconfigure(state, message)
        case TopJob():
            return topping.on_top(state, message)
        case UpdatePartitions():
            return nodes.on_update_partitions(state, message)
        case UpdateSatellites():
            return satellites.on_update_satellites(state, message)
        case SatelliteSilent():
            return satellites.on_silent(state, message), None
        case ChangePolicies():
            return on_change(state, message, now_us)
        case CreateStep():
            return steps.on_create(state, message)
        case FinishStep():
            return steps.on_finish(state, message)
        case ReleaseJob():
            return allocations.on_release(state, message, now_us)
        case EndUnattended():
            return allocations.on_unattended(state, message, now_us), None
        case FinishPart():
            return parts.on_finish_part(state, message)
        case CreateToken():
            return tokens.on_create(state, message, now_us)
        case RevokeTokens():
            return tokens.on_revoke(state, message)
        case JoinHost():
            return members.on_join(state, message, now_us)
        case ApproveHost():
            return members.on_approve(state, message, now_us)
        case CreateJoinToken():
            return members.on_create_token(state, message, now_us)
        case RevokeJoinTokens():
            return members.on_revoke_tokens(state, message)
        case RevokeMembers():
            return members.on_revoke(state, message, now_us)
        case ChangeFederation():
            return federation.on_change(state, message)
        case ControllerPhaseDone():
            return controller_phases.on_done(state, message, now_us), None
        case NoteMailTold():
            return mail.on_told(state, message), None
        case IdsTaken():
            return job_ids.on_ids_taken(state, message), None
        case IdsBounded():
            return job_ids.on_ids_bounded(state, message), None
        case OfferJob():
            return transfers.on_offer(state, message), None
        case EndOffer():
            return transfers.on_offer_ended(state, message), None
        case NoteTransferred():
            return transfers.on_transferred(state, message), None
        case NoteOutcome():
            return transfers.on_outcome(state, message), None
        case ConfirmArrival():
            return transfers.on_confirmed(state, message), None
        case DropArrival():
            return transfers.on_dropped(state, message), None
        case NoteTold():
            return transfers.on_told(state, message), None
        case AskGuests():
            return guests.on_ask(state, message), None
        case HoldGuests():
            return guests.on_held(state, message, now_us), None
        case GiveUpGuests():
            return guests.on_given_up(state, message), None
        case LoseGuest():
            return guests.on_lost(state, message, now_us), None
        case NoteGuestGone():
            return guests.on_gone(state, message), None
        case KeepGuest():
            found = guests.on_keep(state, message, now_us)
            return found, Changed(len(found))
        case EpochStarted():
            return nodes.on_epoch(state, message), None
        case ConfigLoaded():
            return configuration.on_config(state, message), None
        case _:
            raise TypeError(f"no decision for {type(message).__name__}")


def _is_unheard_of(state: State, report: StepEnded | NodeGone | PhaseReported | GatewayReported) -> bool:
    """Check whether no node has heard of the attempt yet: it awaits the controller's prolog.

    Then another leader has launched it since, and this one is deposed.
    """
    found = state.find_attempt(report.job_id, report.attempt)
    return found is not None and found[1].awaits_prolog
