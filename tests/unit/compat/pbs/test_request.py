"""qsub's options in essubmit's words, and what is refused."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eslurm.compat.errors import OptionError
from eslurm.compat.pbs.environment import HOSTS, PROCESSES, job_variables
from eslurm.compat.pbs.options import QSUB
from eslurm.compat.pbs.request import (
    SHELLS,
    Request,
    begin_of,
    job_of,
    memory_of,
    prepared,
    read_request,
    variables,
    walltime_of,
)
from eslurm.compat.rset import parse_rset
from eslurm.compat.slurm.getopt import Parser, UsageProblem


def read(*words: str) -> Request:
    found = Parser(QSUB, stops=True).parse(words)
    return read_request(
        [(row.long, value, spelling) for row, value, spelling in found.found], "job.sh", "/work"
    )


def options(*words: str) -> dict[str, str]:
    return {long: value for long, (value, _) in read(*words).options.items()}


@pytest.mark.parametrize(
    ("words", "rset"),
    [
        ((), "1:ncpus=1"),
        (("-l", "select=4"), "4:ncpus=1"),
        (("-l", "select=2:ncpus=16:mpiprocs=16:mem=64gb"), "2:ncpus=16:mem=65536m"),
        (
            ("-lselect=1:ncpus=4+3:ncpus=2:ngpus=1", "-lplace=scatter:excl"),
            "1:ncpus=4+3:ncpus=2:ngpus=1,place=scatter:excl",
        ),
        (("-l", "ncpus=4,mem=1000mb,walltime=1:00:00"), "1:ncpus=4:mem=1000m"),
        (("-l", "nodes=2:ppn=8"), "2:ncpus=8,place=scatter"),
        (("-l", "nodes=2:ppn=8:ib+1:ppn=4"), "2:ncpus=8:ib+1:ncpus=4,place=scatter"),
        (("-l", "ncpus=4", "-l", "ncpus=8"), "1:ncpus=8"),
    ],
)
def test_resources_become_chunks(words: tuple[str, ...], rset: str) -> None:
    found = options(*words)["rset"]
    assert found == rset
    if ":ib" not in found:
        parse_rset(found)


def test_other_options() -> None:
    found = options(
        *(
            "-N",
            "run",
            "-q",
            "short",
            "-P",
            "physics",
            "-J",
            "0-9:3",
            "-h",
            "-r",
            "n",
            "-a",
            "1230",
            "-l",
            "walltime=90",
        ),
        *("-W", "depend=afterok:17.srv:18,afterany:19[3],umask=027", "-V", "-v", "A=1,B"),
    )
    assert found == {
        "job-name": "run",
        "partition": "short",
        "account": "physics",
        "array": "0-9:3",
        "hold": "",
        "no-requeue": "",
        "begin": "12:30:00",
        "time": "0:01:30",
        "dependency": "afterok:17:18,afterany:19_3",
        "export": "ALL,A=1,B",
        "output": "/work/run.o%A.%a",
        "error": "/work/run.e%A.%a",
        "open-mode": "truncate",
        "rset": "1:ncpus=1",
    }
    request = read("-W", "umask=027", "-W", "block=true", "-z", "-l", "select=2:ncpus=8:ompthreads=4")
    assert (request.umask, request.is_waited_for, request.is_quiet, request.threads) == (0o27, True, True, 4)


@pytest.mark.parametrize(
    ("words", "output", "error"),
    [
        ((), "/work/job.sh.o%j", "/work/job.sh.e%j"),
        (("-j", "oe"), "/work/job.sh.o%j", ""),
        (("-j", "eo", "-e", "all.txt"), "/work/all.txt", ""),
        (("-o", "host:/logs/", "-e", "50%"), "/logs/job.sh.o%j", "/work/50%%"),
        (("-J", "1-2", "-o", "/logs/^array_index^.txt"), "/logs/%a.txt", "/work/job.sh.e%A.%a"),
    ],
)
def test_files(words: tuple[str, ...], output: str, error: str) -> None:
    found = options(*words)
    assert (found["output"], found.get("error", "")) == (output, error)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("-l", "select=1", "-l", "ncpus=2"), "select=1' excludes ncpus"),
        (("-l", "select=1,nodes=2"), "excludes nodes"),
        (("-l", "pvmem=2gb"), "pvmem=2gb' is not supported"),
        (("-l", "nodes=cn1"), "names no number of nodes"),
        (("-l", "select=1:ncpus=0"), "is no number from 1"),
        (("-l", "mem=4x"), "is not an amount of memory"),
        (("-l", "walltime=1h"), "is not a time"),
        (("-l", "walltime"), "is not NAME=VALUE"),
        (("-W", "group_list=g"), "group_list=g' is not supported"),
        (("-W", "depend=beforeok:1"), "is not one of after, afterok"),
        (("-W", "depend=afterok:x"), "is no job id"),
        (("-W", "umask=9"), "is not supported"),
        (("-j", "x"), "is none of oe, eo, n"),
        (("-r", "x"), "is none of y, n"),
        (("-A", "a", "-P", "b"), "is another account than -P"),
        (("-a", "311230"), "is not hhmm or CCYYMMDDhhmm"),
        (("-S", "bash"), "is not an absolute path"),
    ],
)
def test_what_is_refused(words: tuple[str, ...], text: str) -> None:
    with pytest.raises(OptionError, match=r".*") as caught:
        read(*words)
    assert text in str(caught.value)


def test_amounts() -> None:
    assert [memory_of(text, "-l") for text in ("4gb", "512MB", "1", "1048577b", "1kb", "2tb")] == [
        4096,
        512,
        1,
        2,
        1,
        2**21,
    ]
    assert [walltime_of(text, "-l") for text in ("59", "90:00", "100:00:01")] == [
        "0:00:59",
        "1:30:00",
        "100:00:01",
    ]
    assert (
        begin_of("203001311230.15", "-a") == "2030-01-31T12:30:15"
        and begin_of("3001311230", "-a")[:4] == "2030"
    )
    assert [job_of(text, "x") for text in ("17", "17.srv.org", "17[]", "17[3].srv")] == [
        "17",
        "17",
        "17",
        "17_3",
    ]


def test_scripts_get_a_shell_and_the_jobs_names(tmp_path: Path) -> None:
    request = read()
    assert prepared(b"true\n", request).startswith(b"#!/bin/sh\n")
    request.shell = "/bin/bash"
    assert prepared(b"#!/bin/csh\ntrue\n", request).startswith(b"#!/bin/bash\n") and SHELLS
    request.shell = ""
    assert prepared(b"#!/usr/bin/python3\nx\n", request) == b"#!/usr/bin/python3\nx\n"
    script = tmp_path / "s"
    script.write_bytes(prepared(b'#!/bin/sh -eu\necho "$PBS_JOBID/${PBS_ARRAY_INDEX:-none}"\n', request))
    shell = shutil.which("sh") or "sh"
    for given_, said in (
        ({"SLURM_JOB_ID": "17"}, "17/none"),
        ({"SLURM_JOB_ID": "19", "SLURM_ARRAY_JOB_ID": "17", "SLURM_ARRAY_TASK_ID": "2"}, "17[2]/2"),
    ):
        done = subprocess.run([shell, "-eu", script], env=given_, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == said


@pytest.mark.parametrize(
    ("script", "text"),
    [
        (b"#!/usr/bin/env python3\nos.environ['PBS_NODEFILE']\n", "is for scripts of sh"),
        (b"#!/usr/bin/env python3\nos.environ['PBS_JOBID']\n", "is for scripts of sh"),
    ],
)
def test_scripts_that_need_more_are_refused(script: bytes, text: str) -> None:
    with pytest.raises(OptionError) as caught:
        prepared(script, read())
    assert text in str(caught.value)
    assert b"# $PBS_NODEFILE" in prepared(b"#!/bin/sh\n# $PBS_NODEFILE\n", read())


def test_a_file_of_nodes(tmp_path: Path) -> None:
    request = read("-l", "select=2:ncpus=4:mpiprocs=4")
    assert variables(request, "/", "login1", {})[PROCESSES] == "4"
    assert variables(read("-l", "nodes=2:ppn=8"), "/", "login1", {})[PROCESSES] == "8"
    assert job_variables({PROCESSES: "2"}, [("cn1", 1), ("cn2", 2)]) == {HOSTS: "cn1 cn1 cn2 cn2 cn2 cn2"}
    assert not job_variables({PROCESSES: "100000"}, [("cn1", 1)]) and not job_variables({PROCESSES: "x"}, [])
    script = tmp_path / "s"
    script.write_bytes(prepared(b'#!/bin/sh\ncat "$PBS_NODEFILE"; cat $PBS_NODEFILE | wc -l\n', request))
    shell = shutil.which("sh") or "sh"
    given_ = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path), "SLURM_JOB_ID": "17"}
    done = subprocess.run(
        [shell, script], env=given_ | {HOSTS: "cn1 cn2"}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["cn1", "cn2", "2"] and list(tmp_path.iterdir()) == [script]
    failed = subprocess.run([shell, script], env=given_, capture_output=True, text=True, check=False)
    assert failed.returncode != 0 and "too many nodes" in failed.stderr
    mixed = read("-l", "select=1:ncpus=1+2:ncpus=4:mpiprocs=4")
    assert PROCESSES not in variables(mixed, "/", "login1", {})
    with pytest.raises(OptionError, match="chunks of the same mpiprocs"):
        prepared(b"#!/bin/sh\ncat $PBS_NODEFILE\n", mixed)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["-N", "-q", "-l", "-o", "-e", "-j", "-J", "-v", "-W", "-a", "-r", "-S"]),
            st.text(max_size=12),
        ),
        max_size=6,
    )
)
def test_any_words_are_read_or_refused(pairs: list[tuple[str, str]]) -> None:
    try:
        read(*(word for pair in pairs for word in pair))
    except (OptionError, UsageProblem) as error:
        assert "\n" not in str(error)
