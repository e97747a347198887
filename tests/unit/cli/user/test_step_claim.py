"""What a step takes of its job by its options, and what its command says while it waits for its turn."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from escli import exits
from escli.option_table import rows_of
from escli.options import Parser, Words
from escli.slurm.step_texts import SlurmTexts
from escli.user import step_turn
from escli.user.esrun import main
from escli.user.step_claim import read_claim
from eslurm.compat.errors import OptionError
from eslurm.v1 import controller_pb2 as pb
from tests.kits.fake_api import FakeApi

INSIDE = {"ESLURM_JOB_ID": "17"}
NESTED = {**INSIDE, "ESLURM_STEP_ID": "0"}
NONE = {"memory_mib": 0, "memory_per_cpu_mib": 0, "per_node": [], "per_task": []}


def words(line: str) -> Words:
    return Parser(rows_of("esrun"), options_end_at_first_word=True).parse([*line.split(), "x"])


@pytest.mark.parametrize(
    ("line", "environ", "expected"),
    [
        ("", INSIDE, {"whole": True}),
        ("-N 2", INSIDE, {"whole": True}),
        ("-n 2", INSIDE, {"whole": False}),
        ("-c 2", INSIDE, {"whole": False}),
        ("--exact", INSIDE, {"whole": False}),
        ("--exclusive", INSIDE, {"whole": False}),
        ("--mem 1G", INSIDE, {"whole": True, "memory_mib": 1024}),
        ("-n 2 --mem-per-cpu 100", INSIDE, {"whole": False, "memory_per_cpu_mib": 100}),
        ("-n 2 --mem 0", INSIDE, {"whole": False}),
        ("-n 2 --gpus 4", INSIDE, {"whole": False, "per_task": [{"name": "gpu", "items": 2}]}),
        ("-n 2 --gpus-per-node 2", INSIDE, {"whole": False, "per_node": [{"name": "gpu", "items": 2}]}),
        ("--overlap -n 2", INSIDE, None),
        ("", NESTED, None),
        ("-n 2", NESTED, None),
        ("-n 2 --exact", NESTED, {"whole": False}),
        ("-n 2", {**NESTED, "ESLURM_JOB_ID": "18"}, {"whole": False}),
    ],
)
def test_what_a_step_takes(line: str, environ: dict[str, str], expected: dict[str, Any] | None) -> None:
    claim = read_claim(words(line), environ, 17)
    assert claim.fields == (None if expected is None else {**NONE, **expected})


@pytest.mark.parametrize(("line", "seconds"), [("", None), ("--immediate", 0.0), ("--immediate=5", 5.0)])
def test_how_long_it_may_wait(line: str, seconds: float | None) -> None:
    assert read_claim(words(line), INSIDE, 17).immediate_s == seconds


@pytest.mark.parametrize("line", ["--overlap --exact", "--overlap --mem 1G", "--overlap --gres gpu:1"])
def test_a_step_that_shares_takes_nothing(line: str) -> None:
    with pytest.raises(OptionError, match="excludes --overlap"):
        read_claim(words(line), INSIDE, 17)


class World:
    """A controller whose job 17 is full. `replies` are those to `WaitStep`, one after another, the last one again."""

    def __init__(self, path: Path, *replies: pb.StepReply) -> None:
        self._replies = list(replies)
        self.door = FakeApi(
            path,
            CreateStep=lambda _: pb.CreateStepReply(job_id=17, attempt=1, step=3, waits=True),
            WaitStep=self._wait,
            FinishStep=self._finish,
        )

    def _finish(self, _request: Any) -> pb.ChangeReply:
        self._replies = [pb.StepReply(state="CANCELLED")]
        return pb.ChangeReply(count=1)

    def _wait(self, request: Any) -> pb.StepReply:
        assert request.turn
        if len(self._replies) > 1:
            return self._replies.pop(0)
        if self._replies[0].state == "WAITING":
            time.sleep(0.05)
        return self._replies[0]

    def run(self, *line: str) -> int:
        with self.door:
            return main(["--socket", self.door.path, *line], "srun: error", SlurmTexts())


WAITING = pb.StepReply(state="WAITING")


@pytest.fixture(autouse=True)
def _in_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ESLURM_STEP_ID", raising=False)
    for name, value in {**INSIDE, "ESLURM_NTASKS": "2", "ESLURM_NODENAME": "cn1"}.items():
        monkeypatch.setenv(name, value)


def test_a_step_that_becomes_too_large_for_its_job_says_so(
    state_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    why = pb.Problem(what="cn1", code="failed", text="--nodes: 2 are more than the job's 1 nodes")
    world = World(state_dir / "s", WAITING, pb.StepReply(state="FAILED", failed=[why]))
    assert world.run("-N2", "x") == exits.FAILED
    said = capsys.readouterr().err
    assert "Unable to create step for job 17: Requested node configuration is not available" in said


def test_a_step_waits_no_longer_than_it_may_and_is_withdrawn(
    state_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_turn, "TOLD_AFTER_S", 0.05)
    world = World(state_dir / "s", WAITING)
    assert world.run("--immediate=1", "x") == exits.FAILED
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("srun: Job 17 step creation temporarily disabled, retrying")
    assert "Unable to create step for job 17: Requested nodes are busy" in said[1]
    (finish,) = world.door.asked("FinishStep")
    assert finish.step == 3


def test_ctrl_c_withdraws_a_step_that_waits(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = World(state_dir / "s", WAITING)

    def interrupt() -> None:
        while not world.door.asked("WaitStep"):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    assert world.run("x") == 130
    thread.join()
    assert "SIGINT while it waited for its turn" in capsys.readouterr().err
    (finish,) = world.door.asked("FinishStep")
    assert (finish.exit_code, finish.signal) == (130, 2)
