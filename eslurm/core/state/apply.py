"""The only write access: `apply(state, fact)` changes the state as one fact says, and nothing else does.

Recovery, standby and replay call only this. A fact that does not fit the state is a bug and raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eslurm.core.model import facts
from eslurm.core.state import apply_accounts as account
from eslurm.core.state import apply_controller_phases as controller_phases
from eslurm.core.state import apply_crontabs as crontab
from eslurm.core.state import apply_elastic as elastic
from eslurm.core.state import apply_gateways as gateways
from eslurm.core.state import apply_guests as guest
from eslurm.core.state import apply_jobs as job
from eslurm.core.state import apply_lending as lending
from eslurm.core.state import apply_mail as mail
from eslurm.core.state import apply_members as member
from eslurm.core.state import apply_moves as moves
from eslurm.core.state import apply_nodes as node
from eslurm.core.state import apply_parts as part
from eslurm.core.state import apply_phases as phases
from eslurm.core.state import apply_satellites as satellite
from eslurm.core.state import apply_steps as step
from eslurm.core.state import apply_tokens as token
from eslurm.core.state import apply_transfers as transfer
from eslurm.core.state import faults, federation
from eslurm.core.state.cluster import State


def _lease(state: State, fact: facts.IdsLeased) -> None:
    state.lease_end = fact.end
    state.touched.settings = True


def _federation(state: State, fact: facts.FederationChanged) -> None:
    state.federation = fact.wish
    state.touched.settings = True


def _nothing(state: State, fact: facts.Fact) -> None:
    """The fact only has an effect."""


_APPLY: dict[type[Any], Callable[[State, Any], None]] = {
    facts.ConfigAccepted: node.apply_config,
    facts.PartitionSet: node.apply_partition,
    facts.EpochBegan: node.apply_epoch,
    facts.IdsLeased: _lease,
    facts.NodeRegistered: node.apply_registered,
    facts.NodeStateChanged: node.apply_state,
    facts.NodeDrainChanged: node.apply_drain,
    facts.NodeSetAside: node.apply_set_aside,
    facts.NodeTriedAgain: node.apply_tried_again,
    facts.NodeFaulted: faults.apply_faulted,
    facts.NodeCleared: faults.apply_cleared,
    facts.NodeHealthReported: faults.apply_health,
    facts.OrphanFound: _nothing,
    facts.SatelliteChanged: satellite.apply_changed,
    facts.JobSubmitted: job.apply_submitted,
    facts.JobChanged: job.apply_changed,
    facts.JobsForecast: job.apply_forecasts,
    facts.JobsPromised: job.apply_promised,
    facts.JobHeld: job.apply_held,
    facts.JobDue: job.apply_due,
    facts.DependenciesChanged: job.apply_dependencies,
    facts.TasksReleased: job.apply_tasks_released,
    facts.TasksDropped: job.apply_tasks_dropped,
    facts.JobPlaced: job.apply_placed,
    facts.NodesPreparing: phases.apply_preparing,
    facts.NodesPrepared: job.apply_prepared,
    facts.AttemptStarted: job.apply_started,
    facts.StopRequested: job.apply_stop,
    facts.JobSignalled: _nothing,
    facts.AttemptSuspended: job.apply_suspended,
    facts.TimeChanged: job.apply_time,
    facts.JobNoted: job.apply_noted,
    facts.MoveAsked: moves.apply_asked,
    facts.PackMoved: moves.apply_moved,
    facts.ExtensionAsked: moves.apply_extension_asked,
    facts.ExtensionAnswered: moves.apply_extension_answered,
    facts.AttemptInformed: job.apply_informed,
    facts.AttemptEnded: job.apply_attempt_ended,
    facts.AttemptReturned: job.apply_returned,
    facts.AvoidanceEnded: job.apply_avoidance_ended,
    facts.NodesReleased: job.apply_released,
    facts.NodesLost: job.apply_lost,
    facts.PartFinished: part.apply_finished,
    facts.JobShrunk: elastic.apply_shrunk,
    facts.GrowthAsked: elastic.apply_asked,
    facts.GrowthPlaced: elastic.apply_placed,
    facts.GrowthPreparing: elastic.apply_preparing,
    facts.NodesJoined: elastic.apply_joined,
    facts.GrowthFailed: elastic.apply_failed,
    facts.GatewaysStaged: gateways.apply_staged,
    facts.GatewaysAnswered: gateways.apply_answered,
    facts.GatewayUp: gateways.apply_up,
    facts.GatewayDown: gateways.apply_down,
    facts.ControllerPhaseBegan: controller_phases.apply_began,
    facts.ControllerPhaseEnded: job.apply_controller_phase_ended,
    facts.JobFinished: job.apply_finished,
    facts.JobsForgotten: job.apply_forgotten,
    facts.StepCreated: step.apply_created,
    facts.StepAnswered: step.apply_answered,
    facts.StepFinished: step.apply_finished,
    facts.StepGranted: step.apply_granted,
    facts.TasksEnded: step.apply_tasks_ended,
    facts.PolicySet: account.apply_policy_set,
    facts.PolicyRemoved: account.apply_policy_removed,
    facts.TokenIssued: token.apply_issued,
    facts.TokensRevoked: token.apply_gone,
    facts.TokensExpired: token.apply_gone,
    facts.CrontabSet: crontab.apply_set,
    facts.JoinTokenMade: member.apply_token_made,
    facts.JoinTokensEnded: member.apply_tokens_ended,
    facts.HostJoined: member.apply_joined,
    facts.MembersRevoked: member.apply_revoked,
    facts.FederationChanged: _federation,
    facts.IdBlockTaken: federation.apply_block_taken,
    facts.JobOffered: transfer.apply_offered,
    facts.OfferCancelled: transfer.apply_cancelled,
    facts.OfferEnded: transfer.apply_offer_ended,
    facts.JobTransferred: transfer.apply_transferred,
    facts.TransferEnded: transfer.apply_ended,
    facts.ArrivalConfirmed: transfer.apply_confirmed,
    facts.ArrivalDropped: transfer.apply_dropped,
    facts.OutcomeTold: transfer.apply_told,
    facts.GuestsAsked: guest.apply_asked,
    facts.GuestsHeld: guest.apply_held,
    facts.GuestsGivenUp: guest.apply_given_up,
    facts.GuestGone: guest.apply_gone,
    facts.GuestKept: guest.apply_kept,
    facts.CoresExcluded: lending.apply_excluded,
    facts.CoresConfirmed: lending.apply_confirmed,
    facts.CoresAsked: lending.apply_asked,
    facts.MailReached: mail.apply_reached,
    facts.MailTold: mail.apply_told,
}


def apply(state: State, fact: facts.Fact, revision: int, now_us: int) -> None:
    """Write one fact into the state under its revision. Revisions are contiguous; `now_us` never goes back."""
    assert revision == state.revision + 1, f"revision {revision} after {state.revision}"
    assert now_us >= state.now_us, "time went backwards"
    state.revision = revision
    state.now_us = now_us
    _APPLY[type(fact)](state, fact)
    if state.loan_ends or state.owners_gone:
        lending.settle(state)
