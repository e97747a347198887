"""`sacctmgr` on the policies of a real core: Slurm's texts, exit codes, and what there is afterwards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from eslurm.v1 import controller_pb2 as pb
from tests.kits.site_policies import SitePolicies
from tests.support.golden import Golden
from tests.unit.cli.slurm.conftest import Answers, Say

JOBS = [
    pb.JobInfo(job_id=7, state="RUNNING", user="bin", account="a"),
    pb.JobInfo(job_id=8, state="COMPLETED", user="daemon", account="a"),
]


@pytest.fixture
def policies() -> SitePolicies:
    return SitePolicies()


@pytest.fixture
def answers(policies: SitePolicies) -> Answers:
    return {
        "Policies": policies.on_policies,
        "ChangePolicies": policies.on_change,
        "Jobs": lambda request: pb.JobsReply(jobs=[one for one in JOBS if one.user == request.user]),
        "Config": lambda _: pb.ConfigReply(json='{"administrators": [0], "operators": [0, 2]}'),
        "Ping": lambda _: pb.PingReply(cluster="alpha"),
    }


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Sets the keys that are pressed."""
    pressed: list[str] = []

    def key() -> str | None:
        return pressed.pop(0) if pressed else None

    monkeypatch.setattr("escli.slurm.manager_calls._key", key)
    monkeypatch.setattr("escli.slurm.manager_calls.os.isatty", lambda _: False)
    return lambda text: pressed.extend(text)


SESSIONS = {
    "changes": (
        "sacctmgr -i add account science 'Description=natural sciences' Organization=uni fairshare=10",
        "sacctmgr -i create acct physics,chemistry parent=science GrpTRES=cpu=100,mem=4G GrpSubmitJobs=50",
        "sacctmgr -i add account physics",
        "sacctmgr -i add qos normal,urgent priority=10 MaxWall=1-0 GrpTRES=gres/gpu=2",
        "sacctmgr -i modify qos where name=urgent set priority=1000 preempt=normal preemptmode=cancel gracetime=30",
        "sacctmgr -i add user root account=physics,chemistry defaultaccount=chemistry qos=normal,urgent",
        "sacctmgr -i add user daemon accounts=physics fairshare=3 MaxSubmitJobs=20 MaxWall=90 qos=normal",
        "sacctmgr -i add user daemon account=physics",
        "sacctmgr -i add coordinator accounts=science names=root",
        "sacctmgr -i modify account physics set grptres=cpu=200,mem=-1 Description=Lasers",
        "sacctmgr -i modify user where user=daemon set qos+=urgent fairshare=4 maxwall=-1",
        "sacctmgr -i update user root set defaultaccount=physics",
        "sacctmgr -i modify user where account=chemistry defaultaccount=physics set defaultqos=urgent",
        "sacctmgr -i modify account name=nosuch set fairshare=2",
        "sacctmgr show account",
        "sacctmgr -P list account withassoc format=account,parentname,user,share,grpcpus,grpmem,grpsubmit",
        "sacctmgr show user withcoord",
        "sacctmgr -n -P show user withassoc format=user,defaultaccount,account,share,maxsubmit,maxwall,qos,defaultqos",
        "sacctmgr -p show qos format=name,priority,grptres,maxwall,preempt,preemptmode,gracetime,usagefactor",
        "sacctmgr show assoc tree format=account%-20,user%8,share%6,grptres%20",
        "sacctmgr -n -P show assoc user=daemon",
        "sacctmgr -P show cluster format=cluster",
        "sacctmgr show account nosuch -n",
        "sacctmgr -i delete user where name=root account=physics",
        "sacctmgr -i delete user where name=root account=chemistry",
        "sacctmgr -i delete account chemistry",
        "sacctmgr -i remove qos where name=normal",
        "sacctmgr -i modify user root set defaultqos=urgent",
        "sacctmgr -i modify user daemon set qos=urgent",
        "sacctmgr -i remove qos where name=normal",
        "sacctmgr -i delete account science",
        "sacctmgr -i delete coordinator names=root",
        "sacctmgr -i delete user name=daemon,root",
        "sacctmgr -i delete account physics,science",
        "sacctmgr -i delete account physics",
        "sacctmgr show assoc -P",
    ),
    "refusals": (
        "sacctmgr",
        "sacctmgr frobnicate",
        "sacctmgr archive dump",
        "sacctmgr add",
        "sacctmgr add cluster beta",
        "sacctmgr show tres",
        "sacctmgr -i add account",
        "sacctmgr -i add account a MaxJobs=3",
        "sacctmgr -i add account a GrpJobs=3",
        "sacctmgr -i add account a nosuch=3",
        "sacctmgr -i add account a MaxWall=60",
        "sacctmgr -i add account a qos=normal",
        "sacctmgr -i add account a fairshare=parent",
        "sacctmgr -i add account a GrpTRES=energy=3",
        "sacctmgr -i add account a GrpTRES=cpu=many",
        "sacctmgr -i add account a cluster=beta",
        "sacctmgr -i add account a parent=nosuch",
        "sacctmgr -i add account a description+=b",
        "sacctmgr -i add account '$a'",
        "sacctmgr -i add user root",
        "sacctmgr -i add user account=a",
        "sacctmgr -i add user root account=nosuch",
        "sacctmgr -i add user root account=a defaultaccount=b",
        "sacctmgr -i add user root account=a adminlevel=operator",
        "sacctmgr -i modify account set",
        "sacctmgr -i modify account a b=c",
        "sacctmgr -i modify account name=a set name=b",
        "sacctmgr -i modify coordinator root",
        "sacctmgr -i delete account",
        "sacctmgr -i delete account root",
        "sacctmgr -r add account a",
        "sacctmgr show user format=nosuch",
        "sacctmgr show user adminlevel=operator",
        "sacctmgr show account withdeleted",
        "sacctmgr --json show user",
        "sacctmgr load",
        "sacctmgr load clean file=x",
        "sacctmgr load file=/nosuch",
        "sacctmgr dump",
        "sacctmgr dump beta",
    ),
}


@pytest.mark.parametrize("name", SESSIONS)
def test_session(name: str, say: Say, golden: Golden) -> None:
    golden(f"slurm/sacctmgr-{name}.txt", "\n".join(say(line) for line in SESSIONS[name]))


def test_words_of_an_older_release(say: Say, golden: Golden) -> None:
    lines = SESSIONS["changes"][:7]
    golden("slurm/sacctmgr-22.05.txt", "\n".join(say(line, "22.05") for line in lines))


def test_rights_are_those_of_the_configuration(say: Say) -> None:
    for line in ("add account a", "add user root,bin,daemon account=a"):
        assert "[" not in say(f"sacctmgr -i {line}")
    said = say("sacctmgr -n -P show user format=user,admin")
    assert said.endswith("\nbin|Operator\ndaemon|None\nroot|Administrator\n")


def test_an_answer_is_waited_for(
    say: Say, answer: Callable[[str], None], policies: SitePolicies, golden: Golden
) -> None:
    said = []
    for keys in ("n", "\n", "", "xy"):
        answer(keys)
        said.append(say("sacctmgr add account physics"))
        assert ("physics" in policies.world.state.policies["account"]) == (keys == "xy")
    golden("slurm/sacctmgr-questions.txt", "\n".join(said))


def test_a_user_without_a_number_is_asked_about(
    say: Say, answer: Callable[[str], None], policies: SitePolicies
) -> None:
    assert "[" not in say("sacctmgr -i add account physics")
    answer("n")
    assert say("sacctmgr add user nosuch account=physics") == (
        "$ sacctmgr add user nosuch account=physics\n"
        "There is no uid for user 'nosuch'\nAre you sure you want to continue? (You have 30 seconds to decide)\n"
        "(N/y): \nAborted\n"
    )
    answer("yy")
    said = say("sacctmgr add user nosuch account=physics")
    assert said.endswith(
        "U = nosuch   \nWould you like to commit changes? (You have 30 seconds to decide)\n(N/y): \n"
    )
    assert "nosuch" in policies.world.state.policies["user"]


def test_without_conditions_all_are_meant_when_confirmed(say: Say, answer: Callable[[str], None]) -> None:
    assert "[" not in say("sacctmgr -i add account a,b")
    answer("n")
    assert say("sacctmgr modify account set fairshare=2").endswith("(N/y): \nAborted\n")
    answer("yy")
    assert say("sacctmgr modify account set fairshare=2").endswith("(N/y): \n")
    assert say("sacctmgr -n -P show assoc format=account,share").endswith("\nroot|1\na|2\nb|2\n")


def test_a_user_of_several_accounts_has_one_of_each(say: Say) -> None:
    """What Slurm has for each association, and here is of the user, is refused where it would mean something else."""
    for line in (
        "add account a,b",
        "add qos q",
        "add user root account=a,b qos=q",
        "add user daemon account=a",
    ):
        assert "[" not in say(f"sacctmgr -i {line}")
    why = "user root has other accounts, too, and shares, QOS and limits for all of them"
    assert why in say("sacctmgr -i modify user root account=a set fairshare=2")
    assert "it has 2 accounts" in say("sacctmgr -i modify user root set MaxSubmitJobs=2")
    assert "[" not in say("sacctmgr -i modify user root set fairshare=2")
    assert "[" not in say("sacctmgr -i modify user daemon set maxsubmit=2")
    assert "end them first" in say("sacctmgr -i add user daemon account=b")
    assert "user root has QOS for all" in say("sacctmgr -i add user root account=c qos=r")


def test_a_user_with_jobs_stays(say: Say) -> None:
    for line in ("add account a,b", "add user bin,daemon account=b,a"):
        assert "[" not in say(f"sacctmgr -i {line}")
    active = (
        " Error with request: Job(s) active, cancel job(s) before remove\n"
        "  JobID = 7          C = alpha      A = a          U = bin      \n[1]\n"
    )
    assert say("sacctmgr -i delete user bin").endswith(active)
    assert say("sacctmgr -i delete user bin,daemon account=a").endswith(active)
    assert "Deleting user associations" in say("sacctmgr -i delete user daemon account=a")


def test_a_dump_is_loaded_again(say: Say, policies: SitePolicies, state_dir: Path, golden: Golden) -> None:
    for line in SESSIONS["changes"][:8]:
        say(line)
    path = state_dir / "alpha.cfg"
    assert say(f"sacctmgr dump alpha file={path}") == f"$ sacctmgr dump alpha file={path}\n"
    text = path.read_text()
    assert "Nothing new added" in say(f"sacctmgr -i load file={path}")
    policies.begin()
    said = say(f"sacctmgr -i load file={path}").replace(str(path), "alpha.cfg")
    golden("slurm/sacctmgr-load.txt", f"{text}\n{said}")
    say(f"sacctmgr dump alpha file={path}")
    assert path.read_text() == text


def test_what_a_file_has_no_words_for_is_named(say: Say, policies: SitePolicies, state_dir: Path) -> None:
    policies.change(
        ("add", "account", "a", [("validity", "..2040-01-01")]),
        ("add", "limit", "half", [("account", "a"), ("resource", "cores"), ("items", "50%")]),
        ("add", "limit", "ten", [("account", "a"), ("resource", "cores"), ("items", "10")]),
    )
    said = say(f"sacctmgr dump cluster=alpha file={state_dir}/a")
    assert said.endswith(
        "sacctmgr: error: not in the file, which has no words for it: account a: validity=..2040-01-01\n"
        "sacctmgr: error: not in the file, which has no words for it: limit half\n[1]\n"
    )
    assert (
        "Account - 'a':Description='a':Organization='a':Fairshare=1:GrpTRES=cpu=10\n"
        in (state_dir / "a").read_text()
    )


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("Account - 'a'\n", " You need to specify a cluster name first with 'Cluster - $NAME' in your file"),
        (
            "Cluster - 'alpha'\nParent - 'x'\n",
            " line(2) You need to add this parent (x) as a child before you can add",
        ),
        ("Cluster - 'alpha'\nnonsense\n", " Misformatted line(2): nonsense"),
        ("Cluster - 'alpha'\nAccount - 'a':x=1\n", " Unknown option: x\n Problem with line(2)"),
        (
            "Cluster - 'alpha'\nAccount - 'a':GrpJobs=1\n",
            " GrpJobs is not supported: jobs are counted when they are",
        ),
        ("Cluster - 'alpha'\nAccount - 'a:b\n", " Problem with line(2): quotes are not closed"),
        ("Cluster - 'beta'\n", " This cluster 'beta' doesn't exist"),
        ("Cluster - 'alpha'\nQOS - 'q'\n", " You need to specify all QOS before"),
    ],
)
def test_wrong_files_are_refused_by_their_line(text: str, lines: str, say: Say, state_dir: Path) -> None:
    (state_dir / "f").write_text(text)
    said = say(f"sacctmgr -i load file={state_dir}/f")
    assert lines in said
    assert said.endswith("[1]\n")


def test_qos_of_a_file_come_from_above(say: Say, policies: SitePolicies, state_dir: Path) -> None:
    (state_dir / "f").write_text(
        "QOS - 'normal'\nQOS - 'high'\nCluster - 'alpha':QOS='normal'\nParent - 'root'\nAccount - 'a':QOS='+high'\n"
        "Account - 'b'\nParent - 'a'\nUser - 'root':DefaultQOS='high'\nParent - 'b'\nUser - 'daemon'\n"
    )
    assert "[" not in say(f"sacctmgr -i load file={state_dir}/f")
    said = say("sacctmgr -n -P show user withassoc format=user,qos,defaultqos,defaultaccount")
    assert said.endswith("\ndaemon|normal|normal|b\nroot|high,normal|high|a\n")


def test_a_file_of_slurm_is_loaded(say: Say, state_dir: Path) -> None:
    """The superuser's line of such a file means nothing here; QOS of the cluster are those of the users."""
    (state_dir / "f").write_text(
        "# To edit this file start with a cluster line for the new cluster\n"
        "QOS - 'normal':Description='Normal QOS default':GraceTime=0:UsageFactor=1.000000\n"
        "Cluster - 'alpha':Fairshare=1:QOS='normal'\n"
        "Parent - 'root'\n"
        "User - 'root':DefaultAccount='root':AdminLevel='Administrator':Fairshare=1\n"
        "Account - 'cs':Description='computer science':Organization='cs':Fairshare=7\n"
        "Parent - 'cs'\n"
        "User - 'bin':DefaultAccount='cs':Fairshare=2:MaxSubmitJobs=9:MaxWallDurationPerJob=60\n"
    )
    assert "[" not in say(f"sacctmgr -i load file={state_dir}/f")
    said = say("sacctmgr -n -P show assoc format=account,user,share,maxsubmit,maxwall,qos")
    assert said.endswith("\nroot||1|||\ncs||7|||\ncs|bin|2|9|01:00:00|normal\n")
    text = (state_dir / "f").read_text()
    (state_dir / "f").write_text(text.replace("User - 'root'", "User - 'daemon'"))
    said = say(f"sacctmgr -i load file={state_dir}/f")
    assert said.endswith(" Problem with line(5)\n[1]\n")
