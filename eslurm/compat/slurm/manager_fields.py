"""The columns of sacctmgr: their names and Slurm's abbreviations of them, heads and widths."""

from __future__ import annotations

from eslurm.compat.slurm import abbreviated
from eslurm.compat.slurm.abbreviated import fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_TABLE = """
Account 3 10 Account
Acct 4 10 Account
AdminLevel 2 9 Admin
Clusters 2 10 Cluster
Coordinators 3 20 Coord_Accounts
Comment 3 20 Comment
ControlHost 8 15 ControlHost
ControlPort 8 12 ControlPort
DefaultAccount 8 10 Def_Acct
DefaultQOS 8 9 Def_QOS
DefaultWCKey 8 10 Def_WCKey
Description 3 20 Descr
Flags 2 20 Flags
GraceTime 3 10 GraceTime
GrpCPUs 6 8 GrpCPUs
GrpCPUMins 7 11 GrpCPUMins
GrpCPURunMins 7 13 GrpCPURunMins
GrpTRES 7 13 GrpTRES
GrpTRESMins 7 13 GrpTRESMins
GrpTRESRunMins 7 13 GrpTRESRunMins
GrpJobs 4 7 GrpJobs
GrpJobsAccrue 8 13 GrpJobsAccrue
GrpMemory 4 7 GrpMem
GrpNodes 4 8 GrpNodes
GrpSubmitJobs 4 9 GrpSubmit
GrpWall 4 11 GrpWall
MaxCPUMinsPerJob 7 11 MaxCPUMins
MaxCPUsPerJob 7 8 MaxCPUs
MaxCPUsPerUser 11 9 MaxCPUsPU
MaxTRES 7 13 MaxTRES
MaxTRESPJ 9 13 MaxTRES
MaxTRESPerJob 11 13 MaxTRES
MaxTRESPerNode 11 14 MaxTRESPerNode
MaxTRESPN 9 14 MaxTRESPerNode
MaxTRESMinsPerJob 8 13 MaxTRESMins
MaxTRESMinsPJ 13 13 MaxTRESMins
MaxTRESRunMinsPerAccount 18 16 MaxTRESRunMinsPA
MaxTRESRunMinsPerAcct 18 16 MaxTRESRunMinsPA
MaxTRESRunMinsPA 15 16 MaxTRESRunMinsPA
MaxTRESRunMinsPerUser 18 16 MaxTRESRunMinsPU
MaxTRESRunMinsPU 15 16 MaxTRESRunMinsPU
MaxTRESPerAccount 11 13 MaxTRESPA
MaxTRESPerAcct 11 13 MaxTRESPA
MaxTRESPA 9 13 MaxTRESPA
MaxTRESPerUser 11 13 MaxTRESPU
MaxTRESPU 9 13 MaxTRESPU
MaxJobs 4 7 MaxJobs
MaxJobsAccrue 8 13 MaxJobsAccrue
MaxJobsPerAccount 11 9 MaxJobsPA
MaxJobsPerAcct 11 9 MaxJobsPA
MaxJobsPA 9 9 MaxJobsPA
MaxJobsPerUser 11 9 MaxJobsPU
MaxJobsPU 9 9 MaxJobsPU
MaxNodesPerJob 4 8 MaxNodes
MaxNodesPerUser 12 10 MaxNodesPU
MinPrioThreshold 4 12 MinPrioThres
MaxSubmitJobs 4 9 MaxSubmit
MaxSubmitJobsPerAccount 16 11 MaxSubmitPA
MaxSubmitJobsPerAcct 16 11 MaxSubmitPA
MaxSubmitJobsPA 15 11 MaxSubmitPA
MaxSubmitJobsPerUser 16 11 MaxSubmitPU
MaxSubmitJobsPU 15 11 MaxSubmitPU
MaxWallDurationPerJob 4 11 MaxWall
MinCPUsPerJob 7 8 MinCPUs
MinTRESPerJob 7 13 MinTRES
Name 2 10 Name
Organization 1 20 Org
ParentName 7 10 ParentName
Partition 4 10 Partition
PreemptMode 8 11 PreemptMode
Preempt 7 10 Preempt
PreemptExemptTime 8 19 PreemptExemptTime
Priority 3 10 Priority
QOSLevel 3 20 QOS
RPC 1 5 RPC
Share 1 9 Share
FairShare 2 9 Share
User 1 10 User
UsageFactor 6 11 UsageFactor
UsageThreshold 6 10 UsageThres
WCKeys 2 20 WCKeys
"""
FIELDS = fields(_TABLE)
"""(name, letters that are enough, width, head), in the order in which they are looked for."""
EMPTY = frozenset(
    {head for _, _, _, head in FIELDS if head.startswith(("Max", "Min", "Grp"))}
    - {"GrpTRES", "GrpCPUs", "GrpMem", "GrpNodes", "GrpSubmit", "MaxSubmit", "MaxWall"}
    | {"Comment", "Def WCKey", "Flags", "Partition", "UsageThres", "WCKeys", "ControlPort", "RPC"}
)
"""Heads of columns that are always empty: no such limit can be set."""
_ASSOCIATION_LIMITS = (
    "Share,Priority,GrpJ,GrpTRES,GrpS,GrpWall,GrpTRESMins,MaxJ,MaxTRES,MaxTRESPerN,MaxS,MaxW,MaxTRESMins,"
    "QOS,DefaultQOS,GrpTRESRunMins"
)
DEFAULTS: Mapping[str, str] = {
    "account": "Account,Des,O",
    "association": f"Cluster,Account,User,Part,{_ASSOCIATION_LIMITS}",
    "cluster": "Cluster,ControlHost,ControlPort,RPC,Share,GrpJ,GrpTRES,GrpS,MaxJ,MaxTRES,MaxS,MaxW,QOS,DefaultQOS",
    "qos": (
        "Name,Prio,GraceT,Preempt,PreemptE,PreemptM,Flags%40,UsageThres,UsageFactor,GrpTRES,GrpTRESMins,GrpTRESRunMins,GrpJ,"
        "GrpS,GrpW,MaxTRES,MaxTRESPerN,MaxTRESMins,MaxW,MaxTRESPerUser,MaxJobsPerUser,MaxSubmitJobsPerUser,MaxTRESPerAcct,"
        "MaxTRESRunMinsPerAcct%22,MaxTRESRunMinsPerUser%22,MaxJobsPerAcct,MaxSubmitJobsPerAcct,MinTRES"
    ),
    "user": "User,DefaultA,Ad",
}
"""The columns of `show` without `format=`."""
WITH_ASSOCIATIONS: Mapping[str, str] = {
    "account": "Cl,ParentN,U,Share,Priority,GrpJ,GrpN,GrpCPUs,GrpMEM,GrpS,GrpWall,GrpCPUMins,MaxJ,MaxN,MaxCPUs,MaxS,MaxW,"
    "MaxCPUMins,QOS,DefaultQOS",
    "user": "Cl,Acc,Part,Share,Priority,MaxJ,MaxN,MaxCPUs,MaxS,MaxW,MaxCPUMins,QOS,DefaultQOS",
}
"""The further ones with `withassoc`."""
TREE_WIDTH = -20
"""Of the account's name in a tree."""


def columns(text: str, *, is_tree: bool = False) -> list[tuple[str, int]]:
    """(head, width) of a format. Raises Unusable."""
    return [
        (head, TREE_WIDTH if is_tree and head == "Account" and not is_given else width)
        for head, width, is_given in abbreviated.columns(FIELDS, text, "Unknown field")
    ]
