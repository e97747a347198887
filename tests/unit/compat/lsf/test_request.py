"""From bsub's options to essubmit's: what each becomes, and what is refused by its name."""

from __future__ import annotations

from typing import Any

import pytest

from eslurm.compat.errors import OptionError
from eslurm.compat.lsf.options import BSUB, parse
from eslurm.compat.lsf.request import job_of, read_request
from eslurm.compat.script import split_words
from eslurm.compat.slurm.getopt import UsageProblem

TODAY = (2030, 3, 14)
ALWAYS = {"job-name": "job", "ntasks": "1", "nodes": "1", "no-requeue": "", "export": "ALL", "output": "lsf-%j.out",
          "open-mode": "append"}  # fmt: skip


def options(line: str, **environ: str) -> dict[str, str]:
    found = parse(BSUB, split_words(line, "test"))
    given = [(row.long, value, spelling) for row, value, spelling in found.found]
    names = {"fluid": 12}
    request = read_request(given, "job", environ, lambda name: names.get(name, 0), TODAY)
    return {long: value for long, (value, _) in request.options.items()}


@pytest.mark.parametrize(
    ("line", "made"),
    [
        ("-J fluid", {"job-name": "fluid"}),
        ("-n4 -q long -P physics", {"ntasks": "4", "nodes": None, "partition": "long", "account": "physics"}),
        ("-n 4,4 -x -H -r", {"ntasks": "4", "nodes": None, "exclusive": "", "hold": "", "requeue": "", "no-requeue": None}),
        ('-n 8 -R "span[hosts=1]"', {"ntasks": "8", "nodes": "1"}),
        ('-n 8 -R "span[ptile=4]"', {"ntasks": "8", "nodes": "2", "ntasks-per-node": "4"}),
        ('-n 7 -R"span[ptile=4]"', {"ntasks": "7", "nodes": "2", "ntasks-per-node": "4"}),
        ('-n 2 -R "span[ptile=4]"', {"ntasks": "2", "nodes": "1", "ntasks-per-node": "2"}),
        ('-R "rusage[mem=4000]"', {"mem": "4000M"}),
        ('-R "rusage[mem=4GB/host]"', {"mem": "4096M"}),
        ('-n 4 -R "rusage[mem=1G/task]"', {"ntasks": "4", "nodes": None, "mem-per-cpu": "1024M"}),
        ('-R "select[mem>4000] rusage[mem=4000]" -M 4000000', {"mem": "4000M"}),
        ('-R "select[type==any && ib && (a100||v100)]"', {"constraint": "ib&(a100|v100)"}),
        ("-R bigmem -R rusage[mem=8GB]", {"constraint": "bigmem", "mem": "8192M"}),
        ('-R "rusage[mem=2GB:ngpus_physical=2]"', {"mem": "2048M", "gpus-per-node": "2"}),
        ("-gpu num=2:mode=shared:j_exclusive=yes", {"gpus-per-node": "2"}),
        ("-gpu - -M 2GB", {"gpus-per-node": "1", "mem": "2048M"}),
        ('-n 4 -gpu "num=1/task:gmodel=a100"', {"ntasks": "4", "nodes": None, "gpus-per-task": "a100:1"}),
        ("-M 4000000", {"mem": "3907M"}),
        ("-W 90", {"time": "1:30:00"}),
        ("-W 24:00", {"time": "24:00:00"}),
        ("-W 10:30/host1", {"time": "10:30:00"}),
        ("-J sweep[1-10:2,15]%3", {"job-name": "sweep", "array": "1-10:2,15%3", "output": "lsf-%A-%a.out"}),
        ("-J sweep[1-3] -o out/%J.%I", {"job-name": "sweep", "array": "1-3", "output": "out/%A.%a"}),
        ("-o %J.%I.%x -e e%J", {"output": "%j.0.%%x", "error": "e%j"}),
        ("-oo logs/", {"output": "logs/lsf-%j.out", "open-mode": "truncate"}),
        ("-w done(17)", {"dependency": "afterok:17"}),
        ('-w "17 && ended(18[3]) && exit(19)"', {"dependency": "afterok:17,afterany:18_3,afternotok:19"}),
        ('-w "done(fluid) || started(\'fluid\')"', {"dependency": "afterok:12?after:12"}),
        ("-b 18:30", {"begin": "18:30:00"}),
        ("-b 15:8:05", {"begin": "2030-03-15T08:05"}),
        ("-b 4:1:0:0", {"begin": "2030-04-01T00:00"}),
        ("-b 2031:4:1:23:59", {"begin": "2031-04-01T23:59"}),
        ("-env all,A=1", {"export": "ALL,A=1"}),
        ("-env none", {"export": "NONE"}),
        ("-u ada@example.org -N -B", {"mail-user": "ada@example.org", "mail-type": "BEGIN,END"}),
        ("-Ne", {"mail-type": "FAIL"}),
        ("-m cn7 -cwd /scratch -i in -jd note", {"nodelist": "cn7", "chdir": "/scratch", "input": "in", "comment": "note"}),
    ],
)  # fmt: skip
def test_options(line: str, made: dict[str, Any]) -> None:
    expected = {long: value for long, value in (ALWAYS | made).items() if value is not None}
    assert options(line) == expected


def test_a_unit_of_the_site() -> None:
    assert options("-M 4000", LSF_UNIT_FOR_LIMITS="MB")["mem"] == "4000M"
    assert options("-M 4 -R rusage[mem=3]", LSF_UNIT_FOR_LIMITS="gb")["mem"] == "4096M"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("-n 4,8", "is no number of tasks"),
        ("-n 0", "is no number of tasks"),
        ("-M 4000", "is 4 MB by LSF's own unit"),
        ("-M much", "is not an amount of memory"),
        ("-R span[hosts=2]", r"span\[hosts=2\]' is not supported"),
        ("-R cu[type=rack]", "is not supported"),
        ("-R order[slots]", "is not supported"),
        ("-R affinity[core(2)]", "is not supported"),
        ("-R rusage[scratch=4]", "is not supported"),
        ("-R rusage[mem=4GB/job]", "is not supported"),
        ("-R rusage[mem", "is no requirement"),
        ("-R select[mem>8000]", "is more than what is reserved"),
        ("-R select[ncpus>4]", "is not supported"),
        ("-R select[hname!=cn1]", "is not supported"),
        ("-R select[]", "is not supported"),
        ("-gpu num=0", "is no number of GPUs"),
        ("-gpu mps=yes", "is not supported"),
        ("-W 0", "is no time limit"),
        ("-W 1:2:3", "is no time limit"),
        ("-J sweep[1-3", "is no array"),
        ("-J sweep[1-3]x", "is no array"),
        ("-w 'done(1) && ended(2) || exit(3)'", "mixes && with"),
        ("-w 'done(other)'", "is none of your jobs"),
        ("-w 'done(\"fl*\")'", "is no job"),
        ("-w numdone(17,>4)", "is not one of"),
        ("-w done(17", "is not one of"),
        ("-b tomorrow", "is not"),
        ("-b 25:00", "is not"),
        ("-o a -eo b", "appends and overwrites"),
        ("-m 'cn1 cn2'", "is more than one host"),
        ("-env all,~A", "takes variables away"),
        ("-n 2 -R rusage[mem=1GB/task] -M 2GB", "said for tasks and for hosts"),
    ],
)
def test_what_is_refused(line: str, why: str) -> None:
    with pytest.raises(OptionError, match=why):
        options(line)


def test_options_stop_at_the_command() -> None:
    found = parse(BSUB, ["-n4", "-oo", "x", "./prog", "-n", "8"])
    assert [(row.long, value) for row, value, _ in found.found] == [("n", "4"), ("oo", "x")]
    assert found.rest == ["./prog", "-n", "8"]
    assert parse(BSUB, ["-K", "--", "-n"]).rest == ["-n"]
    for words in (["-n"], ["-Z"], ["-Kx"], ["--help"]):
        with pytest.raises(UsageProblem):
            parse(BSUB, words)


@pytest.mark.parametrize("text", ["", "x", "17[", "17[]", "-1", "0"])
def test_what_is_no_job(text: str) -> None:
    with pytest.raises(OptionError, match="is no job id"):
        job_of(text, "-w")


def test_jobs() -> None:
    assert [job_of(one, "-w") for one in ("17", "17[3]", "17[1-3]")] == ["17", "17_3", "17_[1-3]"]
