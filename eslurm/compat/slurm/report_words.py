"""The words of sreport: its reports, their conditions and columns, and what becomes of them here."""

from __future__ import annotations

from eslurm.compat.slurm.abbreviated import Unusable, Word, fields, find, listed, table
from eslurm.compat.slurm.getopt import REFUSED, UsageProblem
from eslurm.compat.slurm.getopt import table as options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eslurm.compat.slurm.abbreviated import Field

ROWS = options("""
all_clusters a - yes this cluster and the living cells of its federation
autocomplete . = no shells complete without it
cluster M = yes of these clusters: this one, or cells of its federation
federation . - no name the cells with -M
help h - yes show this text
immediate i - none
local . - none only this cluster is asked anyway
noheader n - yes no header
parsable p - yes columns end with |
parsable2 P - yes columns are separated by |
quiet Q - none
sort s = yes users by Name or Time
t t = yes Seconds, Minutes, Hours, Percent, SecPer, MinPer or HourPer
tres T = yes cpu or node; others are not kept of runs that have ended
usage . - yes show this text
verbose v - none
version V - yes show the version
""")
UTILIZATION, ACCOUNTS, USERS, TOP, SIZES = "utilization", "accounts", "users", "top", "sizes"
_NO_QOS = "accounting does not keep the QOS of runs"
_NO_WCKEY = "accounting does not keep the wckey of runs"
REPORTS: Mapping[str, str] = {
    "cluster AccountUtilizationByUser": "yes time used by accounts, with all below them, and by the users in them",
    "cluster AccountUtilizationByQOS": f"no {_NO_QOS}",
    "cluster UserUtilizationByAccount": "yes time used by users, in each account",
    "cluster UserUtilizationByWckey": f"no {_NO_WCKEY}",
    "cluster Utilization": "yes time used and time idle of all cores that the cluster has now",
    "cluster WCKeyUtilizationByUser": f"no {_NO_WCKEY}",
    "job SizesByAccount": "yes time used by jobs of ranges of cores",
    "job SizesByAccountAndWcKey": f"no {_NO_WCKEY}",
    "job SizesByWcKey": f"no {_NO_WCKEY}",
    "reservation Utilization": "no use of reservations is not kept",
    "user TopUsage": "yes users that used the most time",
}
_LEAST = (
    ("cluster", "AccountUtilizationByUser", 21, ACCOUNTS),
    ("cluster", "AU", 2, ACCOUNTS),
    ("cluster", "AccountUtilizationByQOS", 21, "no"),
    ("cluster", "AQ", 2, "no"),
    ("cluster", "UserUtilizationByAccount", 18, USERS),
    ("cluster", "UA", 2, USERS),
    ("cluster", "UserUtilizationByWckey", 18, "no"),
    ("cluster", "UW", 2, "no"),
    ("cluster", "Utilization", 2, UTILIZATION),
    ("cluster", "WCKeyUtilizationByUser", 1, "no"),
    ("job", "SizesByAccountAndWcKey", 15, "no"),
    ("job", "SizesByAccount", 1, SIZES),
    ("job", "SizesByWcKey", 8, "no"),
    ("reservation", "Utilization", 1, "no"),
    ("user", "TopUsage", 1, TOP),
)
_GROUPS = (("cluster", 2), ("job", 1), ("reservation", 2), ("resv", 2), ("user", 1))
_TIMES = """
Clusters 1 cluster as -M
End 1 end the first time that is not in the report, rounded up to an hour
Start 1 start the first time of the report, rounded down to an hour
all_clusters 1 all as -a
"""
CONDITIONS: Mapping[str, tuple[Word, ...]] = {
    UTILIZATION: table(f"{_TIMES.strip()}\nFormat 1 format"),
    ACCOUNTS: table(f"""
Users 1 users
Accounts 2 accounts with all below them
Acct 4 accounts
{_TIMES.strip()}
Format 1 format
QosLevel 1 no {_NO_QOS}
Tree 4 tree accounts are indented
"""),
    USERS: table(f"""
Users 1 users
Accounts 2 accounts with all below them
Acct 4 accounts
{_TIMES.strip()}
Format 1 format
QosLevel 1 no {_NO_QOS}
Tree 4 none
"""),
    TOP: table(f"""
Users 1 users
Accounts 2 accounts with all below them
Acct 4 accounts
{_TIMES.strip()}
Format 1 format
TopCount 1 top so many users; 10 without it
group 1 group all accounts of a user together
"""),
    SIZES: table(f"""
{_TIMES.strip()}
Accounts 2 accounts a line for each, with all below it; root without it
Acct 4 accounts
AcctAsParent 2 asparent a line for each account below these
Associations 2 no associations have no numbers
FlatView 2 flat a line for each account by itself
Format 2 format
Gid 2 no use accounts=
grouping 2 grouping bounds of ranges, or individual
Jobs 1 jobs
Nodes 1 no use sacct -N
Partitions 2 partitions
PrintJobCount 2 count numbers of jobs, not time
Users 1 users
Wckeys 2 no {_NO_WCKEY}
"""),
}
"""The conditions of each report."""
FLAGS = ("all_clusters", "Tree", "group", "AcctAsParent", "FlatView", "PrintJobCount")
"""Conditions without a value."""
_BARE = {UTILIZATION: "Clusters", ACCOUNTS: "Users", USERS: "Users", TOP: "Users", SIZES: "Clusters"}
"""The condition that a word alone is."""
_USAGE = """
Accounts 2 15 Account
allocated 2 12 Allocated
Cluster 2 9 Cluster
down 1 10 Down
Energy 1 10 Energy
idle 1 12 Idle
Login 1 9 Login
overcommitted 1 9 Over_Comm
planned 2 9 Planned
reserved 3 9 Planned
PlannedDown 2 10 PLND_Down
PLNDDown 2 10 PLND_Down
Proper 2 15 Proper_Name
reported 3 12 Reported
TresCount 5 10 TRES_Count
CpuCount 2 10 TRES_Count
count 2 10 TRES_Count
TresName 5 14 TRES_Name
Used 1 10 Used
"""
_TOP = """
Accounts 1 15 Account
Cluster 1 9 Cluster
Energy 1 10 Energy
Login 1 9 Login
Proper 2 15 Proper_Name
TresName 5 14 TRES_Name
Used 1 10 Used
"""
_SIZES = """
Account 1 9 Account
Acct 4 9 Account
Cluster 2 9 Cluster
"""
FIELDS: Mapping[str, tuple[Field, ...]] = {
    **dict.fromkeys((UTILIZATION, ACCOUNTS, USERS), fields(_USAGE)),
    TOP: fields(_TOP),
    SIZES: fields(_SIZES),
}
"""(name, letters that are enough, width, head) of the columns of each report."""
DEFAULTS: Mapping[str, tuple[str, str]] = {
    UTILIZATION: ("Cl,al,d,PLNDDown,i,res,rep", "Cl,TresName,al,d,PLNDDown,i,res,rep"),
    ACCOUNTS: ("Cluster,Ac,Login,Proper,Used,Energy", "Cluster,Ac,Login,Proper,TresName,Used"),
    USERS: ("Cluster,Login,Proper,Ac,Used,Energy", "Cluster,Login,Proper,Ac,TresName,Used"),
    TOP: ("Cl,L,Pr,A,U,Energy", "Cl,L,Pr,A,TresName,Used"),
    SIZES: ("Cl,a", "Cl,a"),
}
"""The columns without `format=`: without and with `-T`."""
_UNITS = (
    ("SecPer", 6, "Seconds/Percentage of Total"),
    ("MinPer", 6, "Minutes/Percentage of Total"),
    ("HourPer", 6, "Hours/Percentage of Total"),
    ("Seconds", 1, "Seconds"),
    ("Minutes", 1, "Minutes"),
    ("Hours", 1, "Hours"),
    ("Percent", 1, "Percentage of Total"),
)
UNITS: Mapping[str, str] = {name: text for name, _, text in _UNITS}
"""Units of time, and their texts above a report."""


class Request:
    """The conditions of one report by their keys; flags have an empty list."""

    __slots__ = ("found", "report")

    def __init__(self, report: str) -> None:
        self.report = report
        self.found: dict[str, list[str]] = {}

    def has(self, key: str) -> bool:
        """Check whether a condition is given."""
        return key in self.found

    def values(self, key: str) -> list[str]:
        """The names between commas of a condition."""
        return [name for text in self.found.get(key, ()) for name in listed(text)]

    def last(self, key: str) -> str:
        """The last text of a condition."""
        return self.found.get(key, [""])[-1]


def report_of(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The report that the first two words name, and the words behind them. Raises Unusable."""
    given = " ".join(words[:2]) or "the interactive mode"
    if len(words) >= 2:
        lowered = words[0].lower()
        group = next(
            (name for name, least in _GROUPS if len(lowered) >= least and name.startswith(lowered)), ""
        )
        group = "reservation" if group == "resv" else group
        for one, name, least, report in _LEAST:
            if one == group and len(words[1]) >= least and name.lower().startswith(words[1].lower()):
                if report == REFUSED:
                    note = next((text for key, text in REPORTS.items() if key == f"{group} {name}"), _NO_QOS)
                    raise Unusable(f"sreport: error: {given} is not supported: {note.removeprefix('no ')}")
                return report, words[2:]
    raise Unusable(
        f"sreport: error: {given} is not supported: use cluster, job or user with a report, e.g. cluster Utilization"
    )


def read(report: str, words: Sequence[str]) -> Request:
    """The conditions of a report. Raises Unusable."""
    request = Request(report)
    known = CONDITIONS[report]
    for written in words:
        name, equals, value = written.partition("=")
        word = find(known, name)
        if not equals and (word is None or not word.name.startswith(FLAGS)):
            word, value = find(known, _BARE[report]), written
        elif equals and word is not None and word.name in FLAGS:
            word = None
        if word is None:
            raise Unusable(f" Unknown condition: {written}", "Use keyword set to modify value")
        if word.key == REFUSED:
            raise Unusable(f"sreport: error: {word.name} is not supported: {word.note}")
        request.found.setdefault(word.key, []).append(value)
    return request


def unit_of(text: str) -> str:
    """The unit of time that `-t` names; minutes without it. Raises UsageProblem."""
    if not text:
        return "Minutes"
    lowered = text.lower()
    for name, least, _ in _UNITS:
        if len(text) >= least and name.lower().startswith(lowered):
            return name
    raise UsageProblem(f"error: unknown time format {text}")


def tres_of(text: str) -> list[str]:
    """The resources that `-T` names. Raises Unusable."""
    names = [name.lower() for name in listed(text)]
    for name in names:
        if name not in ("cpu", "node"):
            raise Unusable(
                f"sreport: error: --tres={name} is not supported: only cores and nodes of runs are kept: use cpu or node"
            )
    return list(dict.fromkeys(names))
