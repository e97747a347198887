"""The example of CONTRIBUTING.md: an option that is passed on takes four files, from the command to the script."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import proto

ROOT = Path(__file__).parents[3]
FILES_MAX = 4
FOLLOW = """
import json, sys
from google.protobuf.json_format import MessageToDict
from escli.option_table import rows_of
from escli.options import Parser
from escli.user.draft import SubmitContext, draft_job
from escli.wire import encode
from escli.wire_tables import JOB_REQUEST
from eslurm.api.infos import job_info
from eslurm.api.requests import SpecReader
from eslurm.compat.environment import batch_environment
from eslurm.core.control.effects import job_launch
from eslurm.core.model.messages import Refused
from eslurm.v1 import controller_pb2 as pb
from tests.kits.core import ALICE, World

world = World()
around = SubmitContext(cwd="/", host="h", umask=18, now_us=1, offset_s=lambda _: 0, environment={})
given = Parser(rows_of("essubmit")).parse(["--extra", *sys.argv[1:]])
request = pb.JobRequest.FromString(encode(draft_job(given, b"#!/bin/sh\\n", "a", (), around), JOB_REQUEST))
spec = SpecReader(ALICE, world.state.config).read(request)
assert spec.extra == request.extra
job_id = world.submit(extra=spec.extra)
world.start()
world.restart()
job = world.job(job_id)
launch = job_launch(world.state, job, world.attempt(job_id))
request.extra = request.extra * 9999 if isinstance(request.extra, str) else 0
try:
    SpecReader(ALICE, world.state.config).read(request)
    refused = ""
except Refused as error:
    refused = error.text
variables = batch_environment(launch, ["cn0"])
shown = MessageToDict(job_info(world.state, job, None)).get("extra")
print(json.dumps([variables.get("SLURM_JOB_EXTRA"), shown, "--extra" in refused]))
"""


def example() -> dict[str, list[str]]:
    """The lines of the example by file."""
    text = (ROOT / "CONTRIBUTING.md").read_text().partition("```diff\n")[2].partition("```")[0]
    files: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("+++ "):
            lines = files[line[4:]] = []
        else:
            lines.append(line)
    return files


def apply(path: Path, lines: list[str]) -> None:
    """Put the lines with + behind the one before them, which is there once, or in the place of those with -."""
    text = path.read_text()
    for number, line in enumerate(lines):
        if line.startswith("+"):
            before = lines[number - 1]
            kept = "" if before.startswith("-") else f"{before[1:]}\n"
            assert text.count(f"{before[1:]}\n") == 1, (
                f"CONTRIBUTING.md: {path.name} has no such line: {before[1:]}"
            )
            text = text.replace(f"{before[1:]}\n", f"{kept}{line[1:]}\n")
    path.write_text(text)


@pytest.mark.parametrize(
    ("kind", "default", "metavar", "given", "expected"),
    [
        ("string", '""', " TEXT", ["a note"], ["a note", "a note", True]),
        ("uint32", "0", " N", ["7"], ["7", 7, False]),
        ("bool", "False", "", [], ["True", True, False]),
    ],
)
def test_a_passed_option_takes_four_files(
    kind: str, default: str, metavar: str, given: list[str], expected: list[object], tmp_path: Path
) -> None:
    files = example()
    assert len(files) <= FILES_MAX
    for room in ("proto", "eslurm", "cli", "scripts"):
        shutil.copytree(ROOT / room, tmp_path / room, ignore=shutil.ignore_patterns("__pycache__"))
    python = {"string": "str", "uint32": "int"}.get(kind, kind)
    for name, lines in files.items():
        text = "\n".join(lines).replace("+  string extra", f"+  {kind} extra")
        text = text.replace('Passed[str] = ""', f"Passed[{python}] = {default}")
        apply(tmp_path / name, text.replace("--extra TEXT", f"--extra{metavar}").splitlines())
    assert proto.main([], tmp_path) == 0
    environment = {
        **os.environ,
        "PYTHONPATH": f"{tmp_path}:{tmp_path / 'cli'}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        [sys.executable, "-P", "-c", f"import sys; sys.path.append({str(ROOT)!r})\n{FOLLOW}", *given],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr

    assert json.loads(done.stdout) == expected
