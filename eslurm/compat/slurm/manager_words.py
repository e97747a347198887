"""The words of sacctmgr: settings and conditions of each entity, with Slurm's abbreviations and what becomes of them here.

Invariant: a word that is in no table is refused, so nothing is left out silently.
"""

from __future__ import annotations

from eslurm.compat.slurm.abbreviated import Phrase, Unusable, Word, find, listed, table
from eslurm.compat.slurm.getopt import REFUSED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ACCOUNT, USER, QOS, ASSOCIATION, CLUSTER, COORDINATOR = (
    "account",
    "user",
    "qos",
    "association",
    "cluster",
    "coordinator",
)


_RUNNING = "jobs are counted when they are submitted: GrpSubmitJobs"
_OF_A_JOB = "limits are on all jobs of an account, user or QOS together: GrpTRES"
_LIMITS = f"""
GrpCPUMins 7 no use esctl limit add NAME area=
GrpCPURunMins 7 no use esctl limit add NAME area=
GrpCPUs 7 cpu as GrpTRES=cpu=
GrpJobs 4 no {_RUNNING}
GrpJobsAccrue 8 no all waiting jobs grow older
GrpMemory 4 mem as GrpTRES=mem=
GrpNodes 4 node as GrpTRES=node=
GrpSubmitJobs 4 submit jobs that wait or run; each task of an array is one
GrpTRES 7 tres cpu, mem, node and gres/NAME, of all running jobs together; -1 ends a limit
GrpTRESMins 8 no use esctl limit add NAME area=
GrpTRESRunMins 8 no use esctl limit add NAME area=
GrpWall 4 no use esctl limit add NAME area=
MaxCPUMinsPerJob 7 no {_OF_A_JOB}
MaxCPURunMins 7 no {_OF_A_JOB}
MaxCPUsPerJob 7 no {_OF_A_JOB}
MaxNodesPerJob 4 no {_OF_A_JOB}
MaxTRES 7 no {_OF_A_JOB}
MaxTRESPJ 9 no {_OF_A_JOB}
MaxTRESPerJob 11 no {_OF_A_JOB}
MaxTRESPerNode 11 no {_OF_A_JOB}
MaxTRESPN 9 no {_OF_A_JOB}
MaxTRESMinsPerJob 8 no {_OF_A_JOB}
MaxTRESMinsPJ 13 no {_OF_A_JOB}
"""
_ASSOCIATION = table(f"""
Comment 2 no use Description of an account
DefaultQOS 8 defaultqos of a user: the first of its QOS
FairShare 1 fairshare a whole number from 1; a user has one for all its accounts
Shares 1 fairshare as FairShare
{_LIMITS.strip()}
MaxJobs 4 no {_RUNNING}
MaxJobsAccrue 8 no all waiting jobs grow older
MinPrioThresh 4 no jobs are planned whatever their priority
MaxSubmitJobs 4 maxsubmit of a user; each task of an array is one job
MaxTRESRunMins 8 no {_OF_A_JOB}
MaxWallDurationPerJob 4 maxwall of a user; a number is minutes
Parent 2 parent of an account; root is the top
Priority 2 no use Priority of a QOS
QOSLevel 1 qos of a user: =, += or -=
""")


def _without(words: Sequence[Word], refused: Mapping[str, str]) -> tuple[Word, ...]:
    """The words, of which some (by their keys) are refused for a reason."""
    return tuple(
        Word(word.name, word.least, REFUSED, refused[word.key]) if word.key in refused else word
        for word in words
    )


_DEFAULT = "of an account it would be the default of its users: set it for them, or see esctl limit add"
_PER_USER = {"maxsubmit": _DEFAULT, "maxwall": _DEFAULT}
_OPEN_TO_USERS = "QOS are open to users: set them for the users"
_ACCOUNT = table("""
Accounts 1 name
Names 1 name
Acct 4 name
Clusters 1 cluster this one
Description 1 description
Flags 2 no accounts have none
Organization 1 organization
RawUsage 7 no usage decays by itself, and is never put back
""")
SETTINGS: Mapping[str, tuple[Word, ...]] = {
    ACCOUNT: (
        *_ACCOUNT,
        *_without(_ASSOCIATION, _PER_USER | {"qos": _OPEN_TO_USERS, "defaultqos": _OPEN_TO_USERS}),
    ),
    USER: (
        *table("""
Names 1 name
Users 1 name
Accounts 3 account
Acct 4 account
AdminLevel 2 no rights are in the configuration: cluster.operators
Clusters 1 cluster this one
DefaultAccount 8 defaultaccount the first of its accounts
DefaultWCKey 8 no a job's wckey is a note, and users have none
NewName 2 no add a user of this name, and delete the other
Partitions 1 no associations are with accounts: use esctl limit add NAME partition=
RawUsage 7 no usage decays by itself, and is never put back
WCKeys 1 no a job's wckey is a note, and users have none
"""),
        *_without(_ASSOCIATION, {"parent": "users are in accounts: use accounts="}),
    ),
    QOS: table(f"""
Names 1 name
Description 1 description
Flags 2 no a QOS has none
GraceTime 3 gracetime a number is seconds; -1: that of the site
{_LIMITS.strip()}
LimitFactor 6 no limits are the same in each QOS
MaxCPUsPU 9 no use esctl limit add NAME user=
MaxCPUsPerUser 11 no use esctl limit add NAME user=
MaxJobsAccruePA 15 no all waiting jobs grow older
MaxJobsAccruePU 15 no all waiting jobs grow older
MaxJobsAccruePerAccount 17 no all waiting jobs grow older
MaxJobsAccruePerUser 17 no all waiting jobs grow older
MaxJobsPA 9 no {_RUNNING}
MaxJobsPerAccount 11 no {_RUNNING}
MaxJobsPU 4 no {_RUNNING}
MaxJobsPerUser 4 no {_RUNNING}
MaxNodesPU 8 no use esctl limit add NAME user=
MaxNodesPerUser 8 no use esctl limit add NAME user=
MaxSubmitJobsPA 15 no use esctl limit add NAME account= resource=jobs
MaxSubmitJobsPerAccount 17 no use esctl limit add NAME account= resource=jobs
MaxSubmitJobsPU 4 no use esctl limit add NAME user= resource=jobs
MaxSubmitJobsPerUser 4 no use esctl limit add NAME user= resource=jobs
MaxTRESPA 9 no use esctl limit add NAME account=
MaxTRESPerAccount 11 no use esctl limit add NAME account=
MaxTRESPU 9 no use esctl limit add NAME user=
MaxTRESPerUser 11 no use esctl limit add NAME user=
MaxTRESRunMinsPA 16 no {_OF_A_JOB}
MaxTRESRunMinsPerAccount 20 no {_OF_A_JOB}
MaxTRESRunMinsPU 16 no {_OF_A_JOB}
MaxTRESRunMinsPerUser 20 no {_OF_A_JOB}
MaxWallDurationPerJob 4 maxwall a number is minutes
MinCPUsPerJob 7 no jobs may be small
MinPrioThresh 4 no jobs are planned whatever their priority
MinTRESPerJob 7 no jobs may be small
Preempt 7 preempt =, += or -=
PreemptMode 8 preemptmode cancel, requeue, suspend or off
PreemptExemptTime 8 preemptexempt
Priority 3 priority
RawUsage 7 no usage decays by itself, and is never put back
UsageFactor 6 usagefactor
UsageThreshold 6 no a low share makes jobs wait, and refuses none
"""),
}
"""The words behind `set`, and those of `add`."""
_BY_LINE = "it is the one of the line `Parent - 'name'` above"
ACCOUNT_LINES = (*_ACCOUNT, *_without(_ASSOCIATION, _PER_USER | {"parent": _BY_LINE}))
"""Those of accounts in files: QOS there are those of the users that are in the file."""
CLUSTER_LINES = tuple(
    word
    if word.key in ("qos", "defaultqos", "fairshare")
    else Word(word.name, word.least, REFUSED, "limits are on accounts, users and QOS")
    for word in _ASSOCIATION
)
"""Those of the cluster in files."""
_SHOWN = """
Format 1 format
WithAssoc 5 withassoc
WithCoordinators 5 withcoord
WithDeleted 5 no what is deleted is gone: see eslurm replay
WithRawQOSLevel 5 none all QOS of a user are its own
WOPInfo 4 none
WOPLimits 4 none limits are shown where they are set
Tree 4 tree
"""
CONDITIONS: Mapping[str, tuple[Word, ...]] = {
    ACCOUNT: table(f"""
Names 1 name
Accounts 1 name
Acct 4 name
Descriptions 1 description
Flags 2 no accounts have none
Organizations 1 organization
Clusters 1 cluster this one
Parents 4 parent
Users 1 no use user conditions with users
QOSLevel 1 no accounts have no QOS
{_SHOWN.strip()}
"""),
    USER: table(f"""
Names 1 name
Users 1 name
AdminLevel 2 no rights are in the configuration: cluster.operators
Accounts 2 account
Acct 4 account
Clusters 1 cluster this one
DefaultAccount 8 defaultaccount
DefaultQOS 8 defaultqos
DefaultWCKey 8 no a job's wckey is a note, and users have none
Partitions 3 no associations are with accounts
QOSLevel 1 qos
WCKeys 2 no a job's wckey is a note, and users have none
{_SHOWN.strip()}
"""),
    QOS: table(f"""
Names 1 name
QOSLevel 1 name
Descriptions 1 description
Ids 1 no a QOS has no number
PreemptMode 8 preemptmode
{_SHOWN.strip()}
"""),
    ASSOCIATION: table(f"""
Accounts 2 account
Acct 4 account
Associations 2 no associations have no numbers
Ids 1 no associations have no numbers
Clusters 1 cluster this one
DefaultQOS 8 defaultqos
Partitions 3 no associations are with accounts
Parents 4 parent
QOSLevel 1 qos
Users 1 user
WithSubAccounts 7 no accounts below are named one by one
{_SHOWN.strip()}
"""),
    CLUSTER: table(f"""
Names 1 cluster
Clusters 1 cluster
{_SHOWN.strip()}
"""),
    COORDINATOR: table("""
Names 1 name
Users 1 name
Accounts 2 account
Acct 4 account
"""),
}
"""The words behind `where`, of `show` and of `delete`."""
_LISTS = ("qos", "preempt")
_FLAGS = ("With", "WOP", "Tree")
"""Beginnings of conditions without a value."""
VERBS: Mapping[str, str] = {
    "add": "yes account, user, qos, coordinator",
    "archive": "no accounting keeps all ends of jobs",
    "clear": "no see sdiag",
    "create": "yes as add",
    "delete": "yes account, user, qos, coordinator",
    "dump": "yes accounts, users, QOS and their limits in Slurm's file format",
    "list": "yes as show",
    "load": "yes a file of Slurm's format; clean is refused",
    "modify": "yes account, user, qos",
    "ping": "no see scontrol ping",
    "reconfigure": "no there is no slurmdbd",
    "remove": "yes as delete",
    "shutdown": "no there is no slurmdbd",
    "show": "yes account, association, cluster, qos, user",
    "update": "yes as modify",
}
"""The commands of sacctmgr, and what becomes of them."""
ENTITIES: Mapping[str, tuple[tuple[str, int], ...]] = {
    ACCOUNT: (("accounts", 2), ("acct", 4)),
    ASSOCIATION: (("associations", 2),),
    CLUSTER: (("clusters", 2),),
    COORDINATOR: (("coordinators", 2),),
    QOS: (("qos", 1),),
    USER: (("users", 1),),
}


def entity_of(word: str, allowed: Sequence[str]) -> str:
    """The entity that a word names; empty: none of these. `a` alone is an account where associations are not meant."""
    for entity in allowed:
        for name, least in ENTITIES[entity]:
            shortest = 1 if entity == ACCOUNT and ASSOCIATION not in allowed else least
            if len(word) >= shortest and name.startswith(word.lower()):
                return entity
    return ""


class Request:
    """The words of one command, sorted: conditions choose records, settings change them."""

    __slots__ = ("conditions", "settings")

    def __init__(self) -> None:
        self.conditions: list[Phrase] = []
        self.settings: list[Phrase] = []

    def has(self, key: str) -> bool:
        """Check whether a condition, or a flag among them, is given."""
        return any(phrase.key == key for phrase in self.conditions)

    def chosen(self, key: str) -> list[str] | None:
        """The values of a condition; None: it is not given."""
        if not self.has(key):
            return None
        return [name for one in self.conditions if one.key == key for name in listed(one.value)]

    def setting(self, key: str) -> Phrase | None:
        """The last setting of this name."""
        return next((one for one in reversed(self.settings) if one.key == key), None)

    def value(self, key: str, default: str = "") -> str:
        """The value of a setting."""
        found = self.setting(key)
        return default if found is None else found.value

    def names(self, key: str = "name") -> list[str]:
        """All words of settings of this name, each once."""
        return list(
            dict.fromkeys(name for one in self.settings if one.key == key for name in listed(one.value))
        )


def read(entity: str, words: Sequence[str], *, is_added: bool = False) -> Request:
    """The words of `add` (`is_added`), `modify`, `delete` and `show`. Raises Unusable."""
    request = Request()
    sets = is_added
    for written in words:
        if written.lower() in ("where", "set"):
            sets = is_added or written.lower() == "set"
            continue
        (request.settings if sets else request.conditions).append(_phrase(entity, written, sets=sets))
    return request


def _phrase(entity: str, written: str, *, sets: bool) -> Phrase:
    head, equals, value = written.partition("=")
    sign = head[-1:] if equals and head[-1:] in ("+", "-") else ""
    name = head.removesuffix(sign)
    known = (SETTINGS if sets else CONDITIONS).get(entity, ())
    word = find(known, name)
    if not equals and (word is None or not word.name.startswith(_FLAGS)):
        # Any other word alone is a name.
        word = next((one for one in known if one.key == "name"), None)
        if word is None:
            raise _unknown(written, sets=sets)
        return Phrase(word, "", written, written)
    if word is None:
        raise _unknown(written, sets=sets)
    if word.key == REFUSED:
        raise Unusable(f"sacctmgr: error: {word.name} is not supported: {word.note}")
    if sign and not (sets and word.key in _LISTS):
        raise Unusable(f" Invalid operator '{sign}=' in {written}")
    text = value.strip()
    if len(text) > 1 and text[0] in "'\"" and text[-1] == text[0]:
        text = text[1:-1]
    return Phrase(word, sign, text, written)


def _unknown(written: str, *, sets: bool) -> Unusable:
    if sets:
        return Unusable(f" Unknown option: {written}", " Use keyword 'where' to modify condition")
    return Unusable(f" Unknown condition: {written}", " Use keyword 'set' to modify value")
