"""`eslurm replay`: the tables of esqueue and esinfo for a moment that has passed, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from escli.local.main import main
from eslurm.core.model import facts as core_facts
from eslurm.core.model.facts import encode_fact
from eslurm.core.model.request import Request
from eslurm.ports.store import LoggedFact
from eslurm.replay.logfile import LogFile
from tests.kits.core import World
from tests.kits.replay import logged, renumbered, write
from tests.support.golden import Golden

NIGHT_S = 1_767_236_400
"""2026-01-01T03:00:00 UTC"""


pytestmark = pytest.mark.usefixtures("utc")


@pytest.fixture
def incident(tmp_path: Path) -> Path:
    """03:00 three jobs; 03:10 the first has ended; 03:20 node cn3 is lost."""
    world = World(nodes=4, cores=4, restarts=False)
    world.pass_time(NIGHT_S - world.now_us / 1e6)
    wide = world.submit(name="wide", request=Request(tasks=8, nodes_min=2, nodes_max=2), time_limit_s=3600)
    world.submit(name="sweep", tasks=((0, 4),), limit=2)
    world.submit(name="later", request=Request(tasks=16, nodes_min=4, nodes_max=4))
    world.start()
    world.pass_time(600)
    world.end(wide)
    world.pass_time(600)
    world.lose(3)
    path = tmp_path / "incident.eslog"
    write(path, logged(world), cluster="lab")
    return path


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("replay", "--at 03:05"),
        ("replay-end", ""),
        ("replay-nodes", "--at 2026-01-01T03:15 --nodes"),
        ("replay-queue", "--at 03:15 --queue"),
        ("replay-job", "--at 03:05 --job 1"),
        ("replay-later", "--at 23:00 --queue"),
        ("replay-facts", "--facts 12-15"),
    ],
)
def test_what_is_shown(
    incident: Path, name: str, words: str, golden: Golden, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(incident), *words.split()]) == 0
    golden(f"cli/{name}.txt", capsys.readouterr().out)


def test_json(incident: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(incident), "--at", "03:05", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["cluster"] == "lab" and shown["at_us"] == (NIGHT_S + 300) * 1_000_000
    assert {job["name"]: job["state"] for job in shown["jobs"]} == {
        "wide": "RUNNING",
        "sweep": "RUNNING",
        "later": "PENDING",
    }
    assert sum(node["cores_used"] for node in shown["nodes"]) == 10
    assert main(["replay", str(incident), "--at", "03:10:30", "--job", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["job"]["state"] == "COMPLETED"
    assert main(["replay", str(incident), "--facts", "1-3", "--json"]) == 0
    assert [fact["revision"] for fact in json.loads(capsys.readouterr().out)] == [1, 2, 3]


def test_no_contradiction(incident: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(incident), "--until-violation"]) == 0
    assert capsys.readouterr().out.startswith("no contradiction: ")


def test_the_first_contradiction(incident: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = list(LogFile(incident).facts())
    wrong = LoggedFact(0, log[-1].at_us, *encode_fact(core_facts.NodesReleased(3, 1, (0,))), 1)
    path = tmp_path / "wrong.eslog"
    write(path, renumbered([*log, wrong]))
    assert main(["replay", str(path), "--until-violation"]) == 5
    told = capsys.readouterr().out
    assert told.startswith(f"contradiction after revision {len(log) + 1} (2026-01-01T03:20:00, epoch 1): ")
    assert 'NodesReleased {"job_id":3,"attempt":1,"nodes":[0],"epilog_us":0}' in told
    assert "\n  job 3: PENDING" in told and "\n  node cn0 (#0): UP" in told
    assert main(["replay", str(path), "--until-violation", "--json"]) == 5
    violation = json.loads(capsys.readouterr().out)["violation"]
    assert (violation["revision"], violation["kind"]) == (len(log) + 1, "NodesReleased")
    assert main(["replay", str(path)]) == 1
    assert f"revision {len(log) + 1} (NodesReleased 1): " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("--at 1970-01-01", 2, "--at: 1970-01-01 lies before 1970-01-01T00:16:40, where the log begins"),
        ("--at nonsense", 2, "--at: 'nonsense' is not a time"),
        ("--facts 9-3", 2, "--facts: '9-3' is no range of revisions"),
        ("--facts x", 2, "--facts: 'x' is no range of revisions"),
        ("--job 77", 1, "job 77 is not in the cluster's memory at that moment"),
        ("--at", 2, "Option '--at' requires an argument"),
    ],
)
def test_what_cannot_be_shown(
    incident: Path, words: str, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(incident), *words.split()]) == code
    assert said in capsys.readouterr().err


def test_a_damaged_file_is_shown_as_far_as_it_goes(
    incident: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = incident.read_bytes()
    incident.write_bytes(whole[:-4])
    assert main(["replay", str(incident)]) == 1
    err = capsys.readouterr().err
    assert f"{incident}: damaged at offset " in err and "could be read before it" in err
    assert main(["replay", str(incident), "--at", "2026-01-01T03:05"]) == 0
    assert "wide" in capsys.readouterr().out
    incident.write_bytes(b"something else")
    assert main(["replay", str(incident)]) == 1
    incident.unlink()
    assert main(["replay", str(incident)]) == 2
    assert "No such file or directory" in capsys.readouterr().err
