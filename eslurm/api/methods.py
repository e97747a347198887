"""The calls of the service Controller, for every API endpoint.

Commands import this module, so it imports nothing but the messages. Invariant: a number never changes its meaning; methods
are only appended.
"""

from __future__ import annotations

from typing import Any, Generic, Literal, NamedTuple, TypeVar

from google.protobuf.message import Message

from eslurm.v1 import controller_pb2 as pb

SERVICE = "eslurm.v1.Controller"

LARGE_BYTES = 4 * 1024 * 1024
SUBMIT_BYTES = 64 * 1024 * 1024

Right = Literal["anyone", "owner", "coordinator", "operator", "administrator"]

RequestT = TypeVar("RequestT", bound=Message)
ReplyT = TypeVar("ReplyT", bound=Message)


class Method(NamedTuple, Generic[RequestT, ReplyT]):
    """One call. A mutating one needs a request id, so that a retry gets the first answer.

    `right`: `anyone` that is authenticated; `owner` likewise, but the core refuses others' jobs. The rest are levels that
    the authoriser requires; for coordinators the core also checks the changed things.
    """

    name: str
    number: int
    request: type[RequestT]
    reply: type[ReplyT]
    mutating: bool
    right: Right
    request_bytes_max: int = 1024 * 1024
    """Every API server refuses a larger request before it takes its body."""

    @property
    def is_privileged(self) -> bool:
        """Check whether the caller needs more than a user's rights."""
        return self.right not in ("anyone", "owner")

    @property
    def path(self) -> str:
        """Its path in gRPC."""
        return f"/{SERVICE}/{self.name}"


PING = Method("Ping", 1, pb.PingRequest, pb.PingReply, False, "anyone")
SUBMIT = Method("Submit", 2, pb.SubmitRequest, pb.SubmitReply, True, "anyone", SUBMIT_BYTES)
CANCEL = Method("Cancel", 3, pb.CancelRequest, pb.ChangeReply, True, "owner")
HOLD = Method("Hold", 4, pb.HoldRequest, pb.ChangeReply, True, "owner")
REQUEUE = Method("Requeue", 5, pb.RequeueRequest, pb.ChangeReply, True, "owner")
UPDATE_JOB = Method("UpdateJob", 6, pb.UpdateJobRequest, pb.ChangeReply, True, "owner", LARGE_BYTES)
UPDATE_NODES = Method("UpdateNodes", 7, pb.UpdateNodesRequest, pb.ChangeReply, True, "operator")
JOBS = Method("Jobs", 8, pb.JobsRequest, pb.JobsReply, False, "anyone")
NODES = Method("Nodes", 9, pb.NodesRequest, pb.NodesReply, False, "anyone")
SATELLITES = Method("Satellites", 10, pb.SatellitesRequest, pb.SatellitesReply, False, "anyone")
ACCOUNTING = Method("Accounting", 11, pb.AccountingRequest, pb.AccountingReply, False, "anyone")
WAIT_JOBS = Method("WaitJobs", 12, pb.WaitJobsRequest, pb.JobsReply, False, "anyone")
CONFIG = Method("Config", 13, pb.ConfigRequest, pb.ConfigReply, False, "anyone")
CREATE_STEP = Method("CreateStep", 14, pb.CreateStepRequest, pb.CreateStepReply, True, "owner", LARGE_BYTES)
WAIT_STEP = Method("WaitStep", 15, pb.WaitStepRequest, pb.StepReply, False, "owner")
FINISH_STEP = Method("FinishStep", 16, pb.FinishStepRequest, pb.ChangeReply, True, "owner")
UPDATE_SATELLITES = Method(
    "UpdateSatellites", 17, pb.UpdateSatellitesRequest, pb.ChangeReply, True, "operator"
)
BROADCASTS = Method("Broadcasts", 18, pb.BroadcastsRequest, pb.BroadcastsReply, False, "anyone")
TREE_REPORT = Method("TreeReport", 19, pb.TreeReportRequest, pb.TreeReportReply, False, "anyone")
CONTROLLERS = Method("Controllers", 20, pb.ControllersRequest, pb.ControllersReply, False, "anyone")
TAKEOVER = Method("Takeover", 21, pb.TakeoverRequest, pb.TakeoverReply, True, "administrator")
EXPORT_LOG = Method("ExportLog", 22, pb.ExportLogRequest, pb.ExportLogReply, False, "administrator")
DOCTOR = Method("Doctor", 23, pb.DoctorRequest, pb.DoctorReply, False, "operator")
POLICIES = Method("Policies", 24, pb.PoliciesRequest, pb.PoliciesReply, False, "anyone")
CHANGE_POLICIES = Method(
    "ChangePolicies", 25, pb.ChangePoliciesRequest, pb.ChangeReply, True, "coordinator", LARGE_BYTES
)
WHY = Method("Why", 26, pb.WhyRequest, pb.WhyReply, False, "anyone")
PLAN = Method("Plan", 27, pb.PlanRequest, pb.PlanReply, False, "anyone")
SHARES = Method("Shares", 28, pb.SharesRequest, pb.SharesReply, False, "anyone")
SUSPEND = Method("Suspend", 29, pb.SuspendRequest, pb.ChangeReply, True, "operator")
JOB_FEED = Method("JobFeed", 30, pb.JobFeedRequest, pb.JobFeedReply, False, "operator")
SET_FORECASTS = Method("SetForecasts", 31, pb.SetForecastsRequest, pb.ChangeReply, True, "operator")
AUDIT = Method("Audit", 32, pb.AuditRequest, pb.AuditReply, False, "administrator")
CREATE_TOKEN = Method("CreateToken", 33, pb.CreateTokenRequest, pb.CreateTokenReply, True, "owner")
TOKENS = Method("Tokens", 34, pb.TokensRequest, pb.TokensReply, False, "owner")
REVOKE_TOKENS = Method("RevokeTokens", 35, pb.RevokeTokensRequest, pb.ChangeReply, True, "owner")
CREATE_JOIN_TOKEN = Method(
    "CreateJoinToken", 36, pb.CreateJoinTokenRequest, pb.CreateJoinTokenReply, True, "administrator"
)
JOINS = Method("Joins", 37, pb.JoinsRequest, pb.JoinsReply, False, "administrator")
DECIDE_JOIN = Method("DecideJoin", 38, pb.DecideJoinRequest, pb.ChangeReply, True, "administrator")
REVOKE_MEMBERS = Method("RevokeMembers", 39, pb.RevokeMembersRequest, pb.ChangeReply, True, "administrator")
FINISH_PART = Method("FinishPart", 40, pb.FinishPartRequest, pb.FinishPartReply, True, "owner")
MOVE_PACK = Method("MovePack", 41, pb.MovePackRequest, pb.MovePackReply, True, "owner")
EXTEND_JOB = Method("ExtendJob", 42, pb.ExtendJobRequest, pb.ExtendJobReply, True, "owner")
FEDERATION = Method("Federation", 43, pb.FederationRequest, pb.FederationReply, False, "anyone")
CHANGE_FEDERATION = Method(
    "ChangeFederation", 44, pb.ChangeFederationRequest, pb.ChangeFederationReply, True, "administrator"
)
CALL_CELL = Method("CallCell", 46, pb.CallCellRequest, pb.CallCellReply, False, "anyone", SUBMIT_BYTES)
TELL_GUEST = Method("TellGuest", 47, pb.TellGuestRequest, pb.TellGuestReply, False, "owner")
RESIZE_JOB = Method("ResizeJob", 48, pb.ResizeJobRequest, pb.ResizeJobReply, True, "owner")
ATTEND_JOB = Method("AttendJob", 49, pb.AttendJobRequest, pb.AttendJobReply, False, "owner")
RELEASE_JOB = Method("ReleaseJob", 50, pb.ReleaseJobRequest, pb.ChangeReply, True, "owner")
STATISTICS = Method("Statistics", 51, pb.StatisticsRequest, pb.StatisticsReply, False, "anyone")
RECONFIGURE = Method("Reconfigure", 52, pb.ReconfigureRequest, pb.ReconfigureReply, True, "administrator")
ATTACH_STEP = Method("AttachStep", 53, pb.AttachStepRequest, pb.AttachStepReply, False, "owner")
JOB_SCRIPT = Method("JobScript", 60, pb.JobScriptRequest, pb.JobScriptReply, False, "owner")
CRONTAB = Method("Crontab", 61, pb.CrontabRequest, pb.CrontabReply, False, "owner")
SET_CRONTAB = Method("SetCrontab", 62, pb.SetCrontabRequest, pb.ChangeReply, True, "owner", LARGE_BYTES)
UPDATE_PARTITIONS = Method(
    "UpdatePartitions", 63, pb.UpdatePartitionsRequest, pb.ChangeReply, True, "operator"
)
STEPS = Method("Steps", 64, pb.StepsRequest, pb.StepsReply, False, "anyone")
TOP_JOB = Method("TopJob", 65, pb.TopJobRequest, pb.ChangeReply, True, "owner")
STEP_USAGE = Method("StepUsage", 66, pb.StepUsageRequest, pb.StepUsageReply, False, "owner")

METHODS: tuple[Method[Any, Any], ...] = (
    PING,
    SUBMIT,
    CANCEL,
    HOLD,
    REQUEUE,
    UPDATE_JOB,
    UPDATE_NODES,
    JOBS,
    NODES,
    SATELLITES,
    ACCOUNTING,
    WAIT_JOBS,
    CONFIG,
    CREATE_STEP,
    WAIT_STEP,
    FINISH_STEP,
    UPDATE_SATELLITES,
    BROADCASTS,
    TREE_REPORT,
    CONTROLLERS,
    TAKEOVER,
    EXPORT_LOG,
    DOCTOR,
    POLICIES,
    CHANGE_POLICIES,
    WHY,
    PLAN,
    SHARES,
    SUSPEND,
    JOB_FEED,
    SET_FORECASTS,
    AUDIT,
    CREATE_TOKEN,
    TOKENS,
    REVOKE_TOKENS,
    CREATE_JOIN_TOKEN,
    JOINS,
    DECIDE_JOIN,
    REVOKE_MEMBERS,
    FINISH_PART,
    MOVE_PACK,
    EXTEND_JOB,
    FEDERATION,
    CHANGE_FEDERATION,
    CALL_CELL,
    TELL_GUEST,
    RESIZE_JOB,
    ATTEND_JOB,
    RELEASE_JOB,
    STATISTICS,
    RECONFIGURE,
    ATTACH_STEP,
    JOB_SCRIPT,
    CRONTAB,
    SET_CRONTAB,
    UPDATE_PARTITIONS,
    STEPS,
    TOP_JOB,
    STEP_USAGE,
)

BY_NUMBER: dict[int, Method[Any, Any]] = {method.number: method for method in METHODS}
BY_NAME: dict[str, Method[Any, Any]] = {method.name: method for method in METHODS}
BY_PATH: dict[str, Method[Any, Any]] = {method.path: method for method in METHODS}


def too_large_text(method: Method[Any, Any], size_bytes: int) -> str:
    """The refusal of a too large request, the same at all endpoints."""
    most = method.request_bytes_max
    return f"a request of {size_bytes} bytes; {method.name} takes at most {most}: ask for less, or make several calls"
